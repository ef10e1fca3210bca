"""An exported folder: whole or not there, and written over only where it is one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arith.errors import Failure, UsageError
from arith.files import neighbour, read_json, write_json

MARK = "tape-arith.json"
"""In every exported folder: what it was made of."""
_KIND = "exported run"


@contextmanager
def exported(out: Path, facts: dict[str, Any], fresh: bool) -> Iterator[Path]:
    """Yield an empty neighbour of `out`; when the block ends well it takes `out`'s place, with
    `facts` in the file MARK.

    Errors: UsageError where `out` holds something, unless that is an export and `fresh`; Failure
    from the disk.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        _check_ours(out, fresh)
    temporary = neighbour(out)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        write_json(temporary / MARK, {"kind": _KIND, **facts})
        if out.exists():
            shutil.rmtree(out)
        temporary.rename(out)
    except OSError as error:
        raise Failure(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_ours(out: Path, fresh: bool) -> None:
    try:
        read_json(out / MARK, _KIND)
    except Failure:
        raise UsageError(
            f"{out} is there and no export of tape-arith: choose another --out"
        ) from None
    if not fresh:
        raise UsageError(f"{out} is there: --fresh writes it again, or choose another --out")
