"""Pack the results of runs into one archive. Never imports torch.

An archive holds PRESET/PE/seed-S/ with the record, metrics and grids of each run, and its final
weights if they are asked for. `arith/archives.py` reads it.
"""

import gzip
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tape_arith.arith.archives import ENDINGS, on_disk
from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import atomic, sha256
from tape_arith.arith.runs.run import Run


def checked_archive(path: Path) -> Path:
    """Return the path of an archive to write. Raises UsageError if it has another ending."""
    if not path.name.endswith(ENDINGS):
        raise UsageError(f"{path} must end in {' or '.join(ENDINGS)}")
    return path


def pack(runs: Sequence[Run], out: Path, *, weights: bool = False) -> None:
    """Write the results of runs, also of those in archives, to the archive `out`.

    Equal results give equal archives, byte for byte: no time and no name of a user is in them. A
    run may be in several places with equal files. Raises UsageError if two files of a run differ or
    `out` has another ending; Failure if writing fails.
    """
    checked_archive(out)
    files: dict[Path, Path] = {}
    for run in sorted(runs, key=lambda run: run.place):
        for file in _files(run, weights):
            first = files.setdefault(run.place / file.relative_to(run.path), file)
            if first != file and sha256(first) != sha256(file):
                raise UsageError(f"{first} and {file} are two results of one run: leave one out")
    with (
        atomic(out) as temporary,
        open(temporary, "wb") as raw,
        gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for name, file in files.items():
            content = on_disk(file).read_bytes()
            member = tarfile.TarInfo(name.as_posix())
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _files(run: Run, weights: bool) -> list[Path]:
    files = [run.record_file, run.metrics_file, *run.every_grid_file()]
    files += [run.final] if weights else []
    return [file for file in files if on_disk(file).exists()]
