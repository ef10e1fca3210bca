"""Every file that the commands write, read by the project's own readers: none that they take for
whole may be anything else."""

import json
from collections.abc import Callable
from pathlib import Path

from matplotlib.image import imread

from arith.data.dataset import verify
from arith.export.folder import MARK
from arith.files import read_json, sha256
from arith.scoring import grid_file
from arith.suite.folders import RunFolder
from arith.suite.plan import read_jobs
from arith.training import checkpoint


def _shard(path: Path) -> None:
    shard = read_json(path, "dataset shard")["shard"]
    for what in ("tokens", "lengths"):
        assert sha256(path.parent / shard[what]) == shard[f"{what}_sha256"], path


def _lines(path: Path) -> None:
    for line in path.read_text().splitlines():
        json.loads(line)


def _text(path: Path) -> None:
    assert path.read_text().endswith("\n"), f"{path} is cut short"


def _export(path: Path) -> None:
    note, file = read_json(path, "exported dataset"), path.with_suffix("")
    assert not file.exists() or sha256(file) == note["sha256"], f"{file} is not what its note says"


def _noted(path: Path) -> None:
    assert path.with_name(f"{path.name}.json").exists(), f"{path} has no note"


def _picture(path: Path) -> None:
    imread(path)


def _ends(path: Path) -> None:
    assert path.read_text().rstrip().endswith(f"</{path.suffix[1:]}>"), f"{path} is cut short"


def _nothing(path: Path) -> None:
    """Read with another: tokens and lengths with what vouches for them; a log by people."""


def _in_whole_export(path: Path) -> None:
    """A folder that is exported takes its place when all of it is written."""
    read_json(path.parent / MARK, "exported run")


READERS: dict[str, Callable[[Path], object]] = {
    "exports/*/*": _in_whole_export,
    "bench.json": lambda path: read_json(path, "bench"),
    "manifest.json": lambda path: verify(path.parent),
    "shard-*.json": _shard,
    "tokens-*.npy": _nothing,
    "lengths-*.npy": _nothing,
    "run.json": lambda path: RunFolder(path.parent).record(),
    "metrics.jsonl": lambda path: RunFolder(path.parent).metrics(),
    "timings.json": lambda path: RunFolder(path.parent).timings(),
    "environment.json": lambda path: read_json(path, "environment"),
    "grid*.json": grid_file.load,
    "*.safetensors": lambda path: checkpoint.load(path, "cpu"),
    "jobs.jsonl": lambda path: list(read_jobs(path.parent)),
    "ends.jsonl": _lines,
    "*.toml": _nothing,
    "*.log": _nothing,
    "*.txt.json": _export,
    "*.parquet.json": _export,
    "*.txt": _noted,
    "*.parquet": _noted,
    "*.png": _picture,
    "*.svg": _ends,
    "*.html": _ends,
    "*.md": _text,
    "*.csv": _text,
}


def read_all(folder: Path) -> int:
    """Read every file below `folder` but temporary ones and locks; how many there were.

    Errors: Failure or AssertionError for one that is broken, or that nobody here can read.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    whole = [path for path in files if not temporary(path)]
    for path in whole:
        reader = next((r for pattern, r in READERS.items() if path.match(pattern)), None)
        assert reader is not None, f"nobody reads {path}"
        try:
            reader(path)
        except FileNotFoundError:  # a process that outlives the killed one tidies up
            continue
    return len(whole)


def temporary(path: Path) -> bool:
    """Whether nobody reads `path`: half of a file, or who is at work."""
    return path.name.endswith(".partial") or path.name == ".lock"


def leftovers(folder: Path) -> list[str]:
    """What should be gone when nobody is at work any more."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if temporary(path)]
