"""Compare scored runs in frames, figures and a page; study trained runs from inside."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tape_arith.arith.api.arguments import AtLeastOne, Columns, Percent, Seed, Width, checked
from tape_arith.arith.api.processes import configure
from tape_arith.arith.compare.across_tasks import across_tasks
from tape_arith.arith.compare.leaderboard import build_board, sort_panels
from tape_arith.arith.compare.selection import ALL, Selection, canonical_task
from tape_arith.arith.data.bucket import EVALUATION, known_split
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.axes import Numbers
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import panels_of
from tape_arith.arith.runs.preset import known_preset, with_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tape_arith.arith.studies.study import Study

Folders = str | Path | Sequence[str | Path]
"""A folder of runs, or several, such as one's own and another lab's; the first gets figures."""


@checked
def load_grids(
    runs: Folders = "runs",
    pe: str | Sequence[str] = ALL,
    *,
    preset: str | None = None,
    split: str = EVALUATION,
    max_digits: AtLeastOne | None = None,
) -> pd.DataFrame:
    """Return the cells of every scored run below `runs`, one row per run and cell.

    The columns are those of `Grid.to_frame`. Runs of all budgets are included; an
    incomplete grid is left out.
    """
    selection = select(runs, pe, preset, split, max_digits)
    grids = [grid for grid in selection.grids() if grid.complete]
    scored = {grid.name for grid in grids}
    missing = [name for name in selection.wanted if name not in scored]
    if missing or not grids:
        place = f"{', '.join(map(str, selection.roots))}{selection.evaluation_set}"
        raise UsageError(f"no scored run of {', '.join(missing) or ALL} in {place}")
    return pd.concat([grid.to_frame() for grid in grids], ignore_index=True)


@checked
def heatmap(
    pe: str | Sequence[str] | Sequence[Grid] = ALL,
    *,
    runs: Folders = "runs",
    preset: str | None = None,
    split: str = EVALUATION,
    max_digits: AtLeastOne | None = None,
    seed: Seed | None = None,
    sort: bool = False,
    labels: Mapping[str, str] | None = None,
    width: Width | None = None,
    columns: Columns | None = None,
    numbers: Numbers = "all",
    difference: bool = True,
    legend: bool = True,
    caption: bool = True,
    font: str = "",
    vmax: Percent = 100,
    by_length: bool = False,
    axes: "Axes | Sequence[Axes] | None" = None,
) -> "Figure":
    """Return the comparison heatmap of encodings or of grids, as a figure that a notebook shows.

    Each panel shows the mean of exact match over seeds, or one seed. Runs that are not comparable
    are left out and named on stderr; UsageError is raised instead if `pe` names them. Fonts,
    colours, line widths, dpi and the colour map of your matplotlibrc hold; sizes of letters follow
    `width`.

    seed       the seed to show instead of the mean
    sort       whether the best out of distribution is first, as it always is for "all"
    labels     texts to print instead of names, as in {"mine.py:Mine": "Ours"}
    width      width of the figure in inches, such as that of a paper's column
    columns    number of panels in a row; None for as many as fit
    numbers    below names: "all" means and seeds, the mean "out" of distribution, or "none"
    difference, legend, caption  whether to draw the difference of two encodings, and the others
    font       a font, or "serif"; "" for matplotlib's own
    vmax       where the scale of exact match ends, in percent
    by_length  whether to draw lines over the length of the longer operand, with intervals
    axes       matplotlib's, one for each panel, to draw into instead: without colour bar, legend
               and caption; a third for two encodings gets their difference. Best in a figure of
               `layout="constrained"`, which has room for what is above panels
    """
    from tape_arith.arith.figures.heatmap import compose, draw

    looks: dict[str, Any] = {
        "width": width,
        "columns": columns,
        "numbers": numbers,
        "difference": difference,
        "legend": legend,
        "caption": caption,
        "font": font,
        "vmax": vmax,
        "by_length": by_length,
        "axes": None if axes is None else np.ravel(np.asarray(axes, object)).tolist(),
    }
    grids = [] if isinstance(pe, str) else [grid for grid in pe if isinstance(grid, Grid)]
    if not grids:
        selection = select(runs, pe, preset, split, max_digits)
        return draw(selection, seed=seed, sort=sort, labels=labels, **looks)[0]
    if len(grids) < len(pe):
        raise UsageError("a heatmap takes grids or names, not both")
    panels = panels_of(grids)
    if seed is not None:
        panels = [panel.only(seed) for panel in panels]
    panels = sort_panels(panels) if sort else panels
    return compose(panels, in_order=sort, labels=labels, **looks)


@checked
def leaderboard(
    runs: Folders = "runs",
    pe: str | Sequence[str] = ALL,
    *,
    preset: str | None = None,
    split: str = EVALUATION,
    max_digits: AtLeastOne | None = None,
    task: str | None = None,
    costs: bool = False,
) -> pd.DataFrame:
    """Return the leaderboard, one row per encoding in its order, with the numbers of `--csv`.

    `pe` selects rows; ranks and tests are those of all scored encodings.

    task   rank only the runs of this task
    costs  whether to add parameters, FLOPs, loss and speed of training
    """
    selection = select(runs, pe, preset, split, max_digits, task)
    return pd.DataFrame(build_board(selection, costs=costs).numbers())


@checked
def tasks(
    names: str | Sequence[str] = ALL,
    pe: str | Sequence[str] = ALL,
    *,
    runs: Folders = "runs",
    split: str = EVALUATION,
    max_digits: AtLeastOne | None = None,
) -> pd.DataFrame:
    """Return one row per encoding and task, with its rank there and its mean rank.

    names  tasks or presets, each ranked by itself
    """
    selection = select(runs, pe, None, split, max_digits)
    return pd.DataFrame(across_tasks(selection, _joined(names)).numbers())


@checked
def curves(
    pe: str | Sequence[str] = ALL, *, runs: Folders = "runs", preset: str | None = None
) -> pd.DataFrame:
    """Return the numbers of training and of its small grids, one row each (`Curves.rows`)."""
    from tape_arith.arith.compare.curves import study

    return study(select(runs, pe, preset)).rows


@checked
def report(
    pe: str | Sequence[str] = ALL,
    *,
    runs: Folders = "runs",
    preset: str | None = None,
    split: str = EVALUATION,
    max_digits: AtLeastOne | None = None,
    out: str | Path | None = None,
    costs: bool = False,
) -> Path:
    """Write everything about a comparison on one HTML page, by default next to the runs."""
    from tape_arith.arith.compare.report import collect
    from tape_arith.arith.figures.report.page import page
    from tape_arith.arith.files import write_text
    from tape_arith.arith.runs.find import preset_folder

    path = None if out is None else Path(out)
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write {path.name}: a report's name ends in .html")
    selection = select(runs, pe, preset, split, max_digits)
    content = collect(selection, costs=costs)
    folder = preset_folder(selection.root, content.board.preset)
    path = path or folder / f"report{selection.evaluation_set.name}.html"
    write_text(path, page(content))
    return path


@checked
def study(
    kind: str,
    runs: Sequence[str | Path],
    *,
    problems: AtLeastOne | None = None,
    split: str = EVALUATION,
    problem: str | None = None,
    layer: AtLeastOne | None = None,
    double: bool = False,
) -> "Study":
    """Measure "attention", "errors" or "stability" of trained runs; `figures()` draws them.

    problems        number of measured problems of the evaluation set; None for the study's default
    problem, layer  of attention: a problem such as "123+45" whose maps are measured too, and the
                    layer of the maps; None for the last
    double          of stability: whether to measure in float64 too, with little rounding
    """
    from tape_arith.arith.studies import DEFAULT_PROBLEMS, load

    options = {"problem": problem, "layer": layer, "double": double or None}
    options = {name: value for name, value in options.items() if value is not None}
    module = load(kind, options)
    from tape_arith.arith.studies.inputs import comparable_runs

    configure()
    studied = comparable_runs(list(map(Path, runs)), known_split(split))
    usual = min(DEFAULT_PROBLEMS[kind] or studied.num_problems, studied.num_problems)
    measured: Study = module.measure(studied, problems or usual, **options)
    return measured


def select(
    runs: Folders,
    pe: str | Sequence[object] = ALL,
    preset: str | None = None,
    split: str = EVALUATION,
    max_digits: AtLeastOne | None = None,
    task: str | None = None,
) -> Selection:
    """Return the selected runs. Raises UsageError for an unknown preset or split, or two tasks."""
    evaluation_set = EvaluationSet(known_split(split), max_digits)
    root, *other_roots = map(Path, [runs] if isinstance(runs, str | Path) else runs)
    preset = known_preset(preset)
    if preset is not None and task is not None:
        preset, task = with_task(preset, canonical_task(task)), None
    return Selection(root, _joined(pe), preset, task, evaluation_set, tuple(other_roots))


def _joined(pe: str | Sequence[object]) -> str:
    """Join encodings by commas, as --pe takes them."""
    return pe if isinstance(pe, str) else ",".join(map(str, pe))
