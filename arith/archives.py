"""Read an archive of runs as if it were a folder of runs. Never imports torch.

A path may lead into an archive, as in lab.tgz/mini/rope/seed-0/grid.json. Messages name it so; what
is there is read from a temporary folder that lives as long as the process.
"""

import atexit
import re
import shlex
import tarfile
import zlib
from functools import cache
from pathlib import Path, PurePosixPath
from shutil import rmtree
from tempfile import mkdtemp

from tape_arith.arith.errors import Failure, UsageError

ENDINGS = (".tgz", ".tar.gz")
_NAME = r"(?!\.)[^/]+"
_RESULT = re.compile(
    rf"{_NAME}/{_NAME}/seed-\d+/(at-\d+-steps/)?(run\.json|metrics\.jsonl|grid[^/]*\.json)"
)
_LARGEST = 2**30
"""Most bytes of all results of an archive: a small one may unpack to any size."""


def is_archive(path: Path) -> bool:
    """Tell whether a file is an archive, by its name."""
    return path.name.endswith(ENDINGS) and path.is_file()


def archive_of(path: Path) -> Path | None:
    """Return the archive that a path is or leads into; None if there is none."""
    return next(filter(is_archive, (path, *path.parents)), None)


def on_disk(path: Path) -> Path:
    """Return where to read what is at a path: within an archive, in a temporary folder.

    Of an archive only results are there. Raises Failure if it is damaged or larger than 1 GiB.
    """
    archive = archive_of(path)
    if archive is None:
        return path
    facts = archive.stat()
    try:
        folder = _unpacked(archive.resolve(), facts.st_ino, facts.st_mtime_ns, facts.st_size)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise Failure(f"{archive} is no whole archive: {error}") from error
    return folder / path.relative_to(archive)


def intruders(path: Path) -> list[str]:
    """Return what in an archive is neither a file nor a folder below it; [] for a folder."""
    if not is_archive(path):
        return []
    with tarfile.open(path, "r:gz") as archive:
        return [
            member.name
            for member in archive
            if not (member.isreg() or member.isdir())
            or ".." in (place := PurePosixPath(member.name)).parts
            or place.is_absolute()
        ]


def check_writable(path: Path) -> None:
    """Raise UsageError if a path is an archive or leads into one."""
    if archive := archive_of(path):
        raise UsageError(how_to_unpack(archive))


def how_to_unpack(archive: Path) -> str:
    """Say why what is in an archive cannot be written or has no weights, and what to do."""
    command = shlex.join(["tar", "xzf", str(archive), "-C", str(archive.parent)])
    return f"{archive} is an archive, which is only read: `{command}` unpacks it"


@cache
def _unpacked(archive: Path, *version: int) -> Path:
    """Unpack the results of an archive; `version` tells whether it was replaced since."""
    folder, size = Path(mkdtemp(prefix="tape-arith-")), 0
    atexit.register(rmtree, folder, ignore_errors=True)
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            name = member.name.removeprefix("./")  # as `tar -C runs .` has it
            if not (member.isreg() and _RESULT.fullmatch(name)):
                continue
            size += member.size
            if size > _LARGEST:
                raise Failure(f"{archive.name} holds more than 1 GiB of results: send it in parts")
            file, content = folder / name, members.extractfile(member)
            assert content is not None  # it is a regular file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.read())
    return folder
