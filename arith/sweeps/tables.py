"""The tables of a sweep, and the figure of one whose encodings differ in options. No torch here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tape_arith.arith.data.bucket import EVALUATION, SPLITS
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.tables import Row, ranked, rows, to_csv, to_markdown
from tape_arith.arith.files import write_text
from tape_arith.arith.runs.folder import find_grids
from tape_arith.arith.scoring.evaluation_set import EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.studies import ablations
from tape_arith.arith.sweeps.sweep import Sweep, sweep_folder
from tape_arith.arith.terminal import say
from tape_arith.models.names.parse import Name

FORMATS: dict[str, Callable[[Sequence[Row]], str]] = {"md": to_markdown, "csv": to_csv}
FIGURE = "ablations.png"


@dataclass(frozen=True)
class Choice:
    """The value of a tuned setting that one encoding takes: nothing out of distribution decides."""

    name: Name
    value: Any
    in_distribution: dict[Any, float]
    """Mean over seeds of exact match in distribution, 0..1, of every value."""
    panel: list[Grid]


def write_tables(sweep: Sweep, out: Path) -> list[Path]:
    """Write a table of each split, of what is scored; return their paths.

    Removes stale tables of an earlier sweep of the same name.
    """
    folder, written, stale = sweep_folder(sweep, out), [], []
    for split in dict.fromkeys((*sweep.splits, *SPLITS)):
        table = _rows(sweep, out, split) if split in sweep.splits else []
        stem = "table" if split == EVALUATION else f"table@{split}"
        for ending, text in FORMATS.items():
            file = folder / f"{stem}.{ending}"
            if table:
                write_text(file, text(table))
                written.append(file)
            else:
                stale.append(file.name)
    _remove_stale(folder, stale, f"nothing of {sweep.name} as it is now")
    return written


def draw_ablations(sweep: Sweep, out: Path, figure: Path | None = None) -> list[Path]:
    """Write the table and the figure of what is scored; return their paths.

    Raises UsageError for a tuned sweep, and for an unknown ending of `figure`.
    """
    if sweep.tuned is not None:
        raise UsageError(f"{sweep.name} tunes {sweep.tuned}: its runs are no ablations")
    scored, folder = panels(sweep, out), sweep_folder(sweep, out)
    tables = {folder / f"ablations.{end}": text for end, text in ablations.FORMATS.items()}
    if not scored:
        stale = [*(file.name for file in tables), FIGURE]
        _remove_stale(folder, stale, f"nothing of {sweep.name} as it is now")
        return []
    if figure is not None and figure.resolve() != (folder / FIGURE).resolve():
        _remove_stale(folder, [FIGURE], "what was scored before")
    families = ablations.families(scored)
    for file, text in tables.items():
        write_text(file, text(families))
    path = figure or folder / FIGURE
    ablations.draw(families, scored, path)
    return [*tables, path]


def panels(sweep: Sweep, out: Path, split: str = EVALUATION, value: Any = None) -> list[list[Grid]]:
    """The sweep's complete grids, a panel an encoding in the file's order; those of one `value` if
    the sweep is tuned."""
    runs = [run for run in sweep.runs(out) if run.root == sweep.root(out, value)]
    expected = {(str(run.name), run.seed) for run in runs}
    budget = (runs[0].config.steps, runs[0].config.sha256)
    grids = [
        grid
        for grid in find_grids(
            sweep.root(out, value), sweep.preset, sweep.names, EvaluationSet(split)
        )
        if (grid.name, grid.seed) in expected and grid.complete
        if (grid.budget.get("steps"), grid.budget.get("config_sha256")) == budget
    ]
    by_name = [[grid for grid in grids if grid.name == str(name)] for name in sweep.names]
    return [panel for panel in by_name if panel]


def choices(sweep: Sweep, out: Path, split: str = EVALUATION) -> Iterator[Choice]:
    """Choose the value of each encoding that is best in distribution, the first of equals.

    Skips an encoding unless every value has the same seeds: that would be another search.
    """
    by_value = {value: panels(sweep, out, split, value) for value in sweep.values}
    for name in sweep.names:
        by_name = {
            value: panel
            for value, scored in by_value.items()
            for panel in scored
            if panel[0].name == str(name)
        }
        seeds = {tuple(sorted(grid.seed for grid in panel)) for panel in by_name.values()}
        if len(by_name) < len(sweep.values) or len(seeds) > 1:
            continue
        means = {value: _in_distribution(panel) for value, panel in by_name.items()}
        best = max(means, key=lambda value: means[value])
        yield Choice(name, best, means, by_name[best])


def _rows(sweep: Sweep, out: Path, split: str) -> list[Row]:
    if sweep.tuned is None:
        scored = panels(sweep, out, split)
        return rows(scored) if scored else []
    return ranked(
        replace(row, encoding=f"{row.encoding} ({sweep.tuned} {choice.value:g})")
        for choice in choices(sweep, out, split)
        for row in rows([choice.panel])
    )


def _in_distribution(panel: Sequence[Grid]) -> float:
    """The mean on the standard problems: hard sums never choose."""
    standard = [grid if grid.split == EVALUATION else grid.usual for grid in panel]
    return fmean(grid.mean("in_distribution").value or 0.0 for grid in standard if grid is not None)


def _remove_stale(folder: Path, names: Sequence[str], content: str) -> None:
    """Remove files of an earlier call, and say that `content` is in them."""
    stale = [name for name in names if (folder / name).exists()]
    for name in stale:
        (folder / name).unlink()
    if stale:
        say(f"note: removed {', '.join(stale)} from {folder}: {content} is in them")
