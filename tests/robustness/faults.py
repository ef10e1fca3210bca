"""A disk that refuses: one write of a command, or every one from then on."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.robustness.writes import watched

FULL, BROKEN, READ_ONLY = errno.ENOSPC, errno.EIO, errno.EROFS
_NAMELESS = ("write", "fsync")
"""Operations on a descriptor: the system's error does not say which file it is."""


class Refusal:
    """The write that was refused."""

    def __init__(self) -> None:
        self.count = 0
        """of writes below the folder so far"""
        self.what = ""
        self.path = ""

    def names(self) -> list[str]:
        """How a line may call the file: by its own name, or by its folder below this one."""
        path = Path(os.path.relpath(self.path))
        own = re.sub(r"^\.(.+)\.[\w-]+\.partial$", r"\1", path.name)
        return [own, *([] if path.parent == Path() else [str(path.parent)])]

    def kept(self, folder: Path) -> set[str]:
        """What is still there because its removal was refused."""
        return {os.path.relpath(self.path, folder)} if self.what == "remove" else set()


@contextmanager
def refusing(folder: Path, at: int, number: int, *, on: bool = False) -> Iterator[Refusal]:
    """Write number `at` below `folder` fails with the error of that `number` (0: none does); with
    `on` all after it fail too."""
    refusal = Refusal()

    def watcher(what: str, path: str) -> None:
        refusal.count += 1
        if at and (refusal.count == at or (on and refusal.count > at)):
            if refusal.count == at:
                refusal.what, refusal.path = what, path
            where = () if what in _NAMELESS else (path,)
            raise OSError(number, os.strerror(number), *where)

    with watched(folder, watcher):
        yield refusal
