"""What goes into a report: the grids that may be compared, their runs, and what is left out.

No torch here, unless costs are wanted.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tape_arith.arith.compare import leaderboard
from tape_arith.arith.compare.order import in_order
from tape_arith.arith.compare.panels import ALL, all_panels, panels
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.figures.report.content import Curve, Report, Run
from tape_arith.arith.runs.command_lines import reproduction_commands
from tape_arith.arith.runs.folder import RunFolder, slug
from tape_arith.arith.runs.metrics import Line, by_length, curve
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tape_arith.models.names.parse import parse_list

ENVIRONMENT = ("tape-arith", "commit", "torch", "hardware", "dtype", "attention", "threads")
"""What of environment.json is listed."""


def collect(
    root: Path,
    names: str = ALL,
    preset: str | None = None,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    *,
    costs: bool = False,
) -> Report:
    """Return the report of the runs below `root` that are scored on `evaluation_set`: of the
    encodings in `names`, or of all; with `costs`, parameters and FLOPs too.

    Errors: UsageError and Failure as `compare.panels` and `compare.all_panels`, and UsageError
    where one that is named cannot be compared with the leaderboard's.
    """
    named = [] if names == ALL else parse_list(names)
    if names != ALL:
        preset = panels(root, named, preset, evaluation_set)[0][0].preset
    compared, _ = all_panels(root, preset, evaluation_set)
    board = leaderboard.board(root, preset, evaluation_set=evaluation_set, costs=costs)
    left_out = list(board.left_out)
    if names != ALL:
        wanted = {str(name) for name in named}
        compared = [panel for panel in compared if panel[0].name in wanted]
        lacking = sorted(wanted - {panel[0].name for panel in compared})
        if lacking:
            why = "; ".join(f"left out are {runs}: {why}" for runs, why in board.left_out)
            raise UsageError(
                f"{', '.join(lacking)} cannot be compared with the others of {root}/{board.preset} "
                f"({why})"
            )
        if len(compared) < len(board.standings):
            left_out.append(("every other encoding", f"this report is of {names}"))
    compared = in_order(compared)
    words = [] if names == ALL else ["--compare", names]
    words += evaluation_set.options
    words += ["--costs"] if costs else []
    return Report(
        compared,
        board,
        runs=runs(root, [grid for panel in compared for grid in panel]),
        left_out=left_out,
        command=shlex.join(["tape-arith", "report", "--preset", board.preset, *words]),
    )


def runs(root: Path, grids: Sequence[Grid]) -> list[Run]:
    """The training runs behind `grids`, each once, however often it was scored."""
    of: dict[tuple[str, int], list[Grid]] = {}
    for grid in grids:
        of.setdefault((grid.encoding, grid.seed), []).append(grid)
    return [_run(root, scored) for scored in of.values()]


def _run(root: Path, grids: Sequence[Grid]) -> Run:
    """What a run's folder tells; what it does not tell, or not whole, is not recorded."""
    first = grids[0]
    path = Path(first.preset, slug(first.encoding), f"seed-{first.seed}")
    folder = RunFolder(root / path)
    record, environment = _record(folder, first), _environment(folder)
    seconds, lines = _seconds(folder), _metrics(folder)
    facts = {
        "configuration": record.config.sha256 if record else "",
        "evaluation set": str(first.evaluation["sha256"]),
        "task": f"{first.evaluation['task']}, version {first.evaluation['version']}",
        **{name: environment.get(name, "") for name in ENVIRONMENT},
        "trained in": f"{seconds['train']:,.0f} s" if "train" in seconds else "",
        "dataset": (record.data or "made as needed") if record else "",
    }
    return Run(
        encoding=first.encoding,
        seed=first.seed,
        # Without the folders above the runs, which are nobody's business.
        folder=path.as_posix(),
        facts=facts,
        config=record.config.as_dict() if record else {},
        commands=reproduction_commands(root, record, grids) if record else (),
        recorded=environment.get("command"),
        curves=_curves(lines),
        by_length=by_length(lines),
    )


def _record(folder: RunFolder, grid: Grid) -> RunRecord | None:
    """run.json, where it is of the run that the grid is of."""
    try:
        record = folder.record()
    except Failure:
        return None
    return record if (record.encoding, record.seed) == (grid.encoding, grid.seed) else None


def _environment(folder: RunFolder) -> dict[str, str]:
    try:
        content = folder.environment().model_dump(by_alias=True, exclude={"earlier"})
    except Failure:
        return {}
    return {key: str(value) for key, value in content.items() if value is not None}


def _seconds(folder: RunFolder) -> dict[str, float]:
    try:
        return folder.timings()
    except Failure:
        return {}


def _metrics(folder: RunFolder) -> list[dict[str, Any]]:
    try:
        return folder.metrics()
    except Failure:
        return []


def _curves(lines: Sequence[Line]) -> dict[str, Curve]:
    """What was logged on the way, by name; what was not has no entry."""
    logged: dict[str, Curve] = {
        key: [(line["step"], line[key]) for line in lines if line.get(key) is not None]
        for key in ("loss", "exact_match")
    }
    logged["out_of_distribution"] = curve(lines, "out_of_distribution")
    return {key: points for key, points in logged.items() if points}
