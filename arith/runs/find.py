"""Find runs and grids below a folder. Never imports torch."""

from collections.abc import Sequence
from pathlib import Path

from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.folder import RunFolder, slug
from tape_arith.arith.scoring import grid_file
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.terminal import say
from tape_arith.models.names.parse import Name


def find_runs(root: Path) -> list[RunFolder]:
    """Every run below `root`, sorted by path."""
    return [RunFolder(file.parent) for file in sorted(root.glob("*/*/seed-*/run.json"))]


def find_grids(
    root: Path,
    preset: str | None = None,
    names: Sequence[Name] | None = None,
    evaluation_set: EvaluationSet = DEFAULT_SET,
) -> list[Grid]:
    """Return the grids below `root` on what is `evaluation_set`: all, or those of `names`.

    A corrupt grid is named on stderr and left out; of `names`, the runs of other encodings are not
    opened. Raises UsageError if the runs of one encoding are of two versions of the user's file.
    """
    if names is None:
        folders = list(map(RunFolder, sorted(root.glob(f"{preset or '*'}/*/seed-*"))))
        check_one_source(folders)
        return [
            grid
            for folder in folders
            for grid in _on(evaluation_set, folder, [*read_grids(folder).values()])
        ]
    result = []
    for encoding in dict.fromkeys(name.encoding for name in names):
        ways = [name for name in names if name.encoding == encoding]
        wanted = [str(name) for name in ways]
        paths = sorted(root.glob(f"{preset or '*'}/{slug(str(encoding))}/seed-*"))
        check_one_source([RunFolder(path) for path in paths])
        for path in paths:
            folder = RunFolder(path)
            grids = [grid for grid in read_grids(folder).values() if grid.name in wanted]
            result += _on(evaluation_set, folder, grids)
    return result


def check_one_source(folders: Sequence[RunFolder]) -> None:
    """Raise UsageError if runs of one encoding and preset were trained with different source files.

    Their seeds would be averaged as if they were of one encoding.
    """
    first: dict[Path, tuple[RunFolder, dict[str, str]]] = {}
    for folder in folders:
        try:
            sources = folder.record().sources
        except Failure:  # reported by whoever reads the record
            continue
        other, other_sources = first.setdefault(folder.path.parent, (folder, sources))
        if sources != other_sources:
            raise UsageError(
                f"{other.path} and {folder.path} were trained with different versions of "
                f"{', '.join(sources | other_sources)}: train the older anew with --fresh, or "
                "keep the versions apart with --out"
            )


def read_grids(folder: RunFolder) -> dict[str, Grid]:
    """Return the grids of a run by their files' names; a corrupt one is named and left out."""
    grids = {}
    for file in sorted(folder.path.glob("grid*.json"), key=lambda file: file.stem):
        try:
            grids[file.stem] = grid_file.load(file)
        except Failure as error:
            say(f"note: left out: {error}")
    return grids


def _on(evaluation_set: EvaluationSet, folder: RunFolder, grids: list[Grid]) -> list[Grid]:
    """Select the grids on `evaluation_set`; one of hard problems gets the standard grid too."""
    chosen = _select_set(evaluation_set, folder, grids)
    if evaluation_set.split != EVALUATION:
        usual = _select_set(DEFAULT_SET, folder, grids)
        for grid in chosen:
            grid.usual = next((other for other in usual if other.name == grid.name), None)
    return chosen


def _select_set(evaluation_set: EvaluationSet, folder: RunFolder, grids: list[Grid]) -> list[Grid]:
    of_split = [grid for grid in grids if grid.split == evaluation_set.split]
    digits = evaluation_set.max_digits
    if digits is None and of_split:
        digits = _tested_digits(folder)
        if digits is None:
            # A grid is worth showing without its record, where it is the only one of its name.
            if len({grid.name for grid in of_split}) < len(of_split):
                say(f"note: left out: {folder.path}: its run.json does not say which grid is meant")
                return []
            return of_split
    return [grid for grid in of_split if grid.max_digits == digits]


def _tested_digits(folder: RunFolder) -> int | None:
    """Return the setting `tested_digits` of a run; None if its record cannot be read."""
    try:
        return folder.record().config.tested_digits
    except Failure:
        return None


def existing_run(path: Path) -> RunFolder:
    """Return the run at `path`. Raises UsageError if there is none."""
    folder = RunFolder(path)
    if not folder.exists():
        raise UsageError(f"{path} holds no run: `tape-arith list` shows where runs are")
    return folder
