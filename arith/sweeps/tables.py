"""What a sweep ends in: its tables, from the grids that are there. No torch here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tape_arith.arith.data.bucket import EVALUATION, SPLITS
from tape_arith.arith.figures.table import Row, ranked, rows, to_csv, to_markdown
from tape_arith.arith.files import write_text
from tape_arith.arith.runs.find import find_grids
from tape_arith.arith.scoring.evaluation_set import EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.sweeps.sweep import Sweep
from tape_arith.arith.terminal import say
from tape_arith.models.names.parse import Name

FORMATS: dict[str, Callable[[Sequence[Row]], str]] = {"md": to_markdown, "csv": to_csv}


@dataclass(frozen=True)
class Choice:
    """Of one encoding in a tuned sweep: the value that was taken, and how every one did in
    distribution (mean over seeds, 0..1). Nothing out of distribution takes part."""

    name: Name
    value: Any
    in_distribution: dict[Any, float]
    panel: list[Grid]


def write_tables(sweep: Sweep, out: Path, folder: Path) -> list[Path]:
    """A table of each split, as far as it is scored; where they are. One of another time, of which
    nothing is scored as the sweep is asked for now, goes, which is told: it would pass for this."""
    written: list[Path] = []
    stale: list[str] = []
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
    drop(folder, stale, f"nothing of {sweep.name} as it is now")
    return written


def drop(folder: Path, names: Sequence[str], what: str) -> None:
    """Remove the files of `names` that are in `folder` from another time and hold `what`."""
    there = [name for name in names if (folder / name).exists()]
    for name in there:
        (folder / name).unlink()
    if there:
        say(f"note: removed {', '.join(there)} from {folder}: {what} is in them")


def _rows(sweep: Sweep, out: Path, split: str) -> list[Row]:
    if sweep.tuned is None:
        found = panels(sweep, out, split)
        return rows(found) if found else []
    return ranked(
        replace(row, encoding=f"{row.encoding} ({sweep.tuned} {choice.value:g})")
        for choice in choices(sweep, out, split)
        for row in rows([choice.panel])
    )


def panels(sweep: Sweep, out: Path, split: str = EVALUATION, value: Any = None) -> list[list[Grid]]:
    """The sweep's own grids that are complete, a panel an encoding in the file's order; of a tuned
    sweep those of `value`."""
    runs = [run for run in sweep.runs(out) if run.root == sweep.root(out, value)]
    wanted = {(str(run.name), run.seed) for run in runs}
    config = runs[0].config
    own = (config.steps, config.sha256)
    grids = [
        grid
        for grid in find_grids(
            sweep.root(out, value), sweep.preset, sweep.names, EvaluationSet(split)
        )
        if (grid.name, grid.seed) in wanted and grid.complete
        if (grid.budget.get("steps"), grid.budget.get("config_sha256")) == own
    ]
    found = [[grid for grid in grids if grid.name == str(name)] for name in sweep.names]
    return [panel for panel in found if panel]


def choices(sweep: Sweep, out: Path, split: str = EVALUATION) -> Iterator[Choice]:
    """Of each encoding the value that is best in distribution, the first of equals; only where
    every value has the same seeds: a choice among fewer would be another search."""
    by_value = {value: panels(sweep, out, split, value) for value in sweep.values}
    for name in sweep.names:
        of = {
            value: panel
            for value, found in by_value.items()
            for panel in found
            if panel[0].name == str(name)
        }
        seeds = [sorted(grid.seed for grid in panel) for panel in of.values()]
        if len(of) < len(sweep.values) or any(these != seeds[0] for these in seeds):
            continue
        inside = {value: _in_distribution(panel) for value, panel in of.items()}
        best = max(inside, key=lambda value: inside[value])
        yield Choice(name, best, inside, of[best])


def _in_distribution(panel: Sequence[Grid]) -> float:
    """On the usual problems: hard ones never choose."""
    usual = [grid if grid.split == EVALUATION else grid.usual for grid in panel]
    return fmean(grid.mean("in_distribution").value or 0.0 for grid in usual if grid is not None)
