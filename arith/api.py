"""Do in Python what the commands do, under the same names; results are frames and figures.

    import tape_arith

    run = tape_arith.train("rope", preset="mini", steps=60)
    run.score().to_frame()                             # one row per cell
    run.answer("123+45")                               # each digit with its probability
    tape_arith.load_grids("results/mini")              # the cells of every scored run
    tape_arith.heatmap("rope,fire", runs="results/mini")
    tape_arith.leaderboard("results/mini")

A finished run is not trained again, and an interrupted run continues. A request that makes no sense
raises UsageError, any other failure raises Failure; the text of both is one line for people.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

import pandas as pd

from tape_arith.arith.compare.across_tasks import across_tasks
from tape_arith.arith.compare.leaderboard import build_board
from tape_arith.arith.compare.selection import ALL, Selection
from tape_arith.arith.data.bucket import EVALUATION, known_split
from tape_arith.arith.errors import Failure as Failure  # offered beside the functions
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import panels_of
from tape_arith.arith.registry.names import Name, NamePart, parse, parse_extrapolation
from tape_arith.arith.runs import find
from tape_arith.arith.runs import run as runs_on_disk
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.preset import known_preset, load_preset, preset_of
from tape_arith.arith.runs.request import Request
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.terminal import say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tape_arith.arith.scoring.answer import Answer
    from tape_arith.models.decoder import Decoder


@dataclass(frozen=True)
class Run(runs_on_disk.Run):
    """A run at a path. `record()` is its recipe, `state()` tells how far it is.

    Raises UsageError if there is none.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", find.existing_run(Path(self.path)).path)

    def to_frame(self) -> pd.DataFrame:
        """Return the metrics of training, a row every few steps, without the nested values."""
        frame = pd.DataFrame(self.metrics())
        return frame.drop(columns=["small_grid", "state"], errors="ignore")

    def train(self, steps: int | None = None) -> "Run":
        """Train to the end of the run's budget; `steps` raises the budget first."""
        from tape_arith.arith.training.begin import extend_run
        from tape_arith.arith.training.session import continue_run
        from tape_arith.models.hardware import configure_process

        configure_process()
        if steps is not None:
            extend_run(self, steps)
        with _stopping() as should_stop:
            continue_run(self, should_stop=should_stop)
        return self

    def score(
        self,
        extrapolation: str | None = None,
        *,
        split: str = EVALUATION,
        max_digits: int | None = None,
        fresh: bool = False,
    ) -> Grid:
        """Return the run's grid of exact match; a complete grid is read, not scored again.

        extrapolation  a change of the encoding at test time, as in "yarn"
        split          "evaluation", or "carry" for problems with long carry chains
        max_digits     digits of the longest operands; None for the run's `tested_digits`
        """
        from tape_arith.arith.scoring.session import score_run
        from tape_arith.models.hardware import configure_process

        configure_process()
        problems = EvaluationSet(known_split(split), max_digits)
        with _stopping() as should_stop:
            return score_run(
                self,
                _parsed_extrapolation(extrapolation),
                evaluation_set=problems,
                fresh=fresh,
                should_stop=should_stop,
            )

    def answer(self, problem: str, extrapolation: str | None = None) -> "Answer":
        """Return the run's greedy answer to a problem that is written as in "123+45"."""
        from tape_arith.arith.scoring.answer import answer
        from tape_arith.models.hardware import configure_process

        configure_process()
        return answer(self, problem, _parsed_extrapolation(extrapolation))

    def decoder(self, extrapolation: str | None = None) -> "Decoder":
        """Return the trained decoder, a torch.nn.Module that is ready to evaluate."""
        from tape_arith.arith.decoders.weights import trained_decoder, trained_record
        from tape_arith.models.hardware import configure_process

        configure_process()
        record = trained_record(self)
        name = Name(record.name.encoding, _parsed_extrapolation(extrapolation))
        return trained_decoder(self, name, record).eval()


def train(
    pe: str,
    *,
    preset: str | None = None,
    seed: int = 0,
    runs: str | Path = "runs",
    data: str | Path | None = None,
    fresh: bool = False,
    **settings: Any,
) -> Run:
    """Train one encoding, or continue its run; return the run.

    pe        the encoding, as in "tape" or "fire:init_l=512" or "mine.py:Mine"
    preset    a preset of `tape-arith list`; None chooses one that suits this machine
    runs      the folder of runs
    data      the folder of a generated dataset; None as in `TrainOptions`
    fresh     whether to delete an earlier run first
    settings  values that replace the preset's, as in steps=60
    """
    from tape_arith.arith.decoders.cost import default_preset
    from tape_arith.arith.training.session import train_run
    from tape_arith.models.hardware import configure_process

    configure_process()
    if preset is None:
        preset, reason = default_preset()
        say(reason)
    config = load_preset(preset).with_settings({k: str(value) for k, value in settings.items()})
    options = TrainOptions(data=None if data is None else Path(data))
    request = Request(parse(pe), seed, preset_of(preset, config.task), config, Path(runs))
    with _stopping() as should_stop:
        return Run(train_run(request, options, fresh=fresh, should_stop=should_stop).path)


def find_runs(runs: str | Path = "runs") -> list[Run]:
    """Return the runs below a folder, sorted by path."""
    return [Run(run.path) for run in find.find_runs(Path(runs))]


def load_grids(
    runs: str | Path = "runs",
    pe: str | Sequence[str] = ALL,
    *,
    preset: str | None = None,
    split: str = EVALUATION,
    max_digits: int | None = None,
) -> pd.DataFrame:
    """Return the cells of every scored run below `runs`, one row per run and cell.

    The columns are those of `Grid.to_frame`. Runs of different budgets are all included; a grid
    that is scored in part is left out.
    """
    selection = _selection(runs, pe, preset, split, max_digits)
    grids = [grid for grid in selection.grids() if grid.complete]
    scored = {grid.name for grid in grids}
    missing = [name for name in selection.wanted if name not in scored]
    if missing or not grids:
        place = f"{runs}{selection.evaluation_set}"
        raise UsageError(f"no scored run of {', '.join(missing) or ALL} in {place}")
    return pd.concat([grid.to_frame() for grid in grids], ignore_index=True)


def heatmap(
    pe: str | Sequence[str] | Sequence[Grid] = ALL,
    *,
    runs: str | Path = "runs",
    preset: str | None = None,
    split: str = EVALUATION,
    max_digits: int | None = None,
    seed: int | None = None,
    sort: bool = False,
    labels: Mapping[str, str] | None = None,
    width: float | None = None,
    columns: int | None = None,
    caption: bool = True,
) -> "Figure":
    """Return the comparison heatmap of encodings or of grids, as a figure that a notebook shows.

    Each panel shows the mean of exact match over seeds, or one seed. Runs that are not comparable
    are left out and named on stderr; UsageError is raised instead if `pe` names them.

    seed      the seed to show instead of the mean
    sort      whether the best out of distribution stands first, as it always does for "all"
    labels    texts to print instead of names, as in {"mine.py:Mine": "Ours"}
    width     width of the figure in inches, as of a paper's column
    columns   number of panels in a row; None for as many as fit
    caption   whether to write a caption below the legend
    """
    from tape_arith.arith.compare.labels import panel_labels
    from tape_arith.arith.compare.leaderboard import describe_order, heatmap_panels, sort_panels
    from tape_arith.arith.figures.heatmap import compose

    grids = [] if isinstance(pe, str) else [grid for grid in pe if isinstance(grid, Grid)]
    if grids:
        if len(grids) < len(pe):
            raise UsageError("a heatmap is of grids or of names, not of both")
        panels = panels_of(grids)
        if seed is not None:
            panels = [panel.only(seed) for panel in panels]
        panels = sort_panels(panels) if sort else panels
    else:
        selection = _selection(runs, pe, preset, split, max_digits)
        panels, sort = heatmap_panels(selection, seed=seed, sort=sort)
    shown = panel_labels(panels, labels)
    return compose(
        panels,
        order=describe_order(panels, shown) if sort else "",
        labels=shown,
        width=width,
        columns=columns,
        caption=caption,
    )


def leaderboard(
    runs: str | Path = "runs",
    pe: str | Sequence[str] = ALL,
    *,
    preset: str | None = None,
    split: str = EVALUATION,
    max_digits: int | None = None,
    task: str | None = None,
    tasks: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the leaderboard, one row per encoding in its order, with the numbers of `--csv`.

    Ranks and tests are computed among all scored encodings, whichever `pe` selects.

    task   a task, whose runs alone are ranked
    tasks  "all", or tasks and presets, each ranked by itself: one row per encoding and task, with
           its rank there and its mean rank
    """
    selection = _selection(runs, pe, preset, split, max_digits, task)
    if tasks is not None:
        if preset or task:
            raise UsageError("tasks takes no preset and no task: name tasks and presets there")
        return pd.DataFrame(across_tasks(selection, _joined(tasks)).numbers())
    return pd.DataFrame(build_board(selection).numbers())


def _selection(
    runs: str | Path,
    pe: str | Sequence[object],
    preset: str | None,
    split: str,
    max_digits: int | None,
    task: str | None = None,
) -> Selection:
    evaluation_set = EvaluationSet(known_split(split), max_digits)
    return Selection(Path(runs), _joined(pe), known_preset(preset), task, evaluation_set)


def _joined(pe: str | Sequence[object]) -> str:
    """Join encodings by commas, as --pe takes them."""
    return pe if isinstance(pe, str) else ",".join(map(str, pe))


def _parsed_extrapolation(extrapolation: str | None) -> NamePart | None:
    return None if extrapolation is None else parse_extrapolation(extrapolation)


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C or a notebook's stop button save and end the work after the current step."""
    stopper = Stopper()
    if current_thread() is not main_thread():  # only the main thread gets signals
        yield stopper
        return
    with stopper.handling_signals():
        yield stopper
    if stopper.signal is not None:
        raise KeyboardInterrupt("saved: the same call goes on from here")
