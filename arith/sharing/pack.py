"""Pack the results of runs into one archive, and open such an archive. Never imports torch.

An archive holds PRESET/PE/seed-S/ with the record, metrics and grids of each run, and its final
weights if they are asked for.
"""

import gzip
import io
import re
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import atomic
from tape_arith.arith.runs.find import find_runs
from tape_arith.arith.runs.run import Run

ENDINGS = (".tgz", ".tar.gz")
_NAME = r"(?!\.)[^/]+"
_RESULT = re.compile(
    rf"{_NAME}/{_NAME}/seed-\d+/(at-\d+-steps/)?(run\.json|metrics\.jsonl|grid[^/]*\.json)"
)
_LARGEST = 2**30
"""Most bytes of all results of an archive: a small one may unpack to any size."""


def is_archive(path: Path) -> bool:
    return path.name.endswith(ENDINGS)


def checked_archive(path: Path) -> Path:
    """Return the path of an archive to write. Raises UsageError if it has another ending."""
    if not is_archive(path):
        raise UsageError(f"{path} must end in {' or '.join(ENDINGS)}")
    return path


def pack(
    root: Path, out: Path, *, runs: Sequence[Run] | None = None, weights: bool = False
) -> list[Path]:
    """Write the results of runs below `root` to the archive `out`; return what it holds.

    runs  which; None: all that are there

    Equal results give equal archives, byte for byte: no time and no name of a user is in them.
    Raises UsageError if there is no run or `out` has another ending; Failure if writing fails.
    """
    checked_archive(out)
    runs = find_runs(root) if runs is None else runs
    if not runs:
        raise UsageError(f"no run in {root}: `tape-arith list` shows where runs are")
    files = [file for run in runs for file in _files(run, weights)]
    with (
        atomic(out) as temporary,
        open(temporary, "wb") as raw,
        gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for file in files:
            content = file.read_bytes()
            member = tarfile.TarInfo(file.relative_to(root).as_posix())
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return files


def _files(run: Run, weights: bool) -> list[Path]:
    files = [run.record_file, run.metrics_file, *run.grid_files()]
    files += sorted(run.path.glob("at-*-steps/grid*.json"))
    return [file for file in [*files, *([run.final] if weights else [])] if file.exists()]


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """Yield a folder of runs: `path` itself, or what of an archive is results, in a temporary one.

    Nothing else of an archive is written anywhere. Raises UsageError if `path` is neither; Failure
    if the archive is damaged or larger than 1 GiB.
    """
    if path.is_dir():
        yield path
        return
    if not path.is_file() or not is_archive(path):
        raise UsageError(f"{path} is neither a folder of runs nor an archive of `tape-arith pack`")
    with tempfile.TemporaryDirectory() as folder:
        try:
            _extract(path, Path(folder))
        except (tarfile.TarError, EOFError, OSError) as error:
            raise Failure(f"{path} is no whole archive: {error}") from error
        yield Path(folder)


def _extract(path: Path, folder: Path) -> None:
    size = 0
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            if not (member.isreg() and _RESULT.fullmatch(member.name)):
                continue
            size += member.size
            if size > _LARGEST:
                raise Failure(f"{path} holds more than 1 GiB of results: send it in parts")
            file, content = folder / member.name, archive.extractfile(member)
            assert content is not None  # it is a regular file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.read())
