"""Which runs and grids there are below a folder. No torch here."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from arith.data.bucket import EVALUATION
from arith.errors import Failure, UsageError
from arith.scoring import grid_file
from arith.scoring.grid import Grid
from arith.suite.folders import RunFolder, slug
from arith.suite.progress import say
from models.catalog import Name


def find_runs(root: Path) -> list[RunFolder]:
    """Every run below `root`, sorted by path."""
    return [RunFolder(file.parent) for file in sorted(root.glob("*/*/seed-*/run.json"))]


def find_grids(
    root: Path,
    preset: str | None = None,
    names: Sequence[Name] | None = None,
    split: str = EVALUATION,
) -> list[Grid]:
    """The grids of a split over their runs' own lengths, below `root`: all, or those of `names`.

    Errors: Failure for a grid that is asked for and corrupt. Of `names`, another grid of the same
    run that is corrupt is told on stderr, and the runs of other encodings are not opened.
    UsageError where the runs of one encoding are of two versions of the user's file.
    """
    if names is None:
        folders = list(map(RunFolder, sorted(root.glob(f"{preset or '*'}/*/seed-*"))))
        of_one_source(folders)
        return [
            grid for folder in folders for grid in _of_split(folder, list(_grids(folder)), split)
        ]
    result = []
    for encoding in dict.fromkeys(name.encoding for name in names):
        ways = [name for name in names if name.encoding == encoding]
        wanted = [str(name) for name in ways]
        paths = sorted(root.glob(f"{preset or '*'}/{slug(str(encoding))}/seed-*"))
        of_one_source([RunFolder(path) for path in paths])
        for path in paths:
            folder = RunFolder(path)
            asked = [folder.grid_file(name.extrapolation, split=split) for name in ways]
            grids = [grid for grid in _grids(folder, asked) if grid.name in wanted]
            result += _of_split(folder, grids, split)
    return result


def of_one_source(folders: Sequence[RunFolder]) -> None:
    """Errors: UsageError where two of the runs of an encoding in a preset are of different files:
    their seeds would be averaged as if they were of one."""
    first: dict[Path, tuple[RunFolder, dict[str, str]]] = {}
    for folder in folders:
        try:
            sources = folder.record().sources
        except Failure:  # told where it is asked for
            continue
        other, theirs = first.setdefault(folder.path.parent, (folder, sources))
        if sources != theirs:
            raise UsageError(
                f"{other.path} and {folder.path} were trained with different versions of "
                f"{', '.join(sources | theirs)}: train the older anew with --fresh, or keep the "
                "versions apart with --out"
            )


def _grids(folder: RunFolder, asked: Sequence[Path] | None = None) -> Iterator[Grid]:
    """All grids of a run. Errors: Failure for a corrupt one among those `asked` for, or of all."""
    for file in sorted(folder.path.glob("grid*.json")):
        try:
            yield grid_file.load(file)
        except Failure as error:
            if asked is None or file in asked:
                raise
            say(f"note: {error}")


def _of_split(folder: RunFolder, grids: list[Grid], split: str) -> list[Grid]:
    """Of a run's `grids` those of `split`; hard ones with the usual one that judges them."""
    chosen = _own(folder, [grid for grid in grids if grid.split == split])
    if split != EVALUATION:
        usual = _own(folder, [grid for grid in grids if grid.split == EVALUATION])
        for grid in chosen:
            grid.usual = next((other for other in usual if other.name == grid.name), None)
    return chosen


def _own(folder: RunFolder, grids: list[Grid]) -> list[Grid]:
    """Those of a run's `grids` that go to its own lengths, not to those of `score --max-digits`."""
    if not grids:
        return []
    try:
        own = folder.record().config.tested_digits
    except Failure:
        # A grid is worth showing without its record, where it is the only one of its name.
        if len({grid.name for grid in grids}) < len(grids):
            raise
        return grids
    return [grid for grid in grids if grid.max_digits == own]


def existing_run(path: Path) -> RunFolder:
    """The run at `path`. Errors: UsageError where there is none."""
    folder = RunFolder(path)
    if not folder.exists():
        raise UsageError(f"{path} holds no run: `tape-arith list` shows where runs are")
    return folder
