"""A run: train, score and ask it; find runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tape_arith.arith.api.arguments import AtLeastOne, Seed, checked
from tape_arith.arith.api.processes import configure, training
from tape_arith.arith.data.bucket import EVALUATION, known_split
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import Name, NamePart, parse, parse_extrapolation
from tape_arith.arith.runs import find
from tape_arith.arith.runs import run as runs_on_disk
from tape_arith.arith.runs.command_lines import train_command
from tape_arith.arith.runs.options import AUTO, DEFAULTS, Compute, TrainOptions
from tape_arith.arith.stopping import Stopper, stopping

if TYPE_CHECKING:
    import pandas as pd

    from tape_arith.arith.scoring.answer import Answer
    from tape_arith.models.decoder import Decoder


@dataclass(frozen=True)
class Run(runs_on_disk.Run):
    """A run at a path. `record()` is its recipe, `state()` tells how far it is.

    Raises UsageError if the path has no run.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", find.existing_run(Path(self.path)).path)

    def to_frame(self) -> "pd.DataFrame":
        """Return the metrics of training, one row every few steps, without nested values."""
        import pandas as pd

        frame = pd.DataFrame(self.metrics())
        return frame.drop(columns=["small_grid", "state"], errors="ignore")

    @checked
    def train(
        self,
        steps: AtLeastOne | None = None,
        *,
        options: TrainOptions = DEFAULTS,
        stopper: Stopper | None = None,
    ) -> "Run":
        """Train to the end of the run's budget; `steps` raises the budget first."""
        from tape_arith.arith.training.begin import extend_run
        from tape_arith.arith.training.session import continue_run

        with training(options, stopper) as (stop, processes):
            if steps is not None:
                extend_run(self, steps, data=options.data)
            continue_run(self, options, processes=processes, should_stop=stop)
        return self

    @checked
    def score(
        self,
        extrapolation: str | None = None,
        *,
        split: str = EVALUATION,
        max_digits: AtLeastOne | None = None,
        compute: Compute = AUTO,
        fresh: bool = False,
        stopper: Stopper | None = None,
    ) -> Grid:
        """Return the run's grid of exact match; a complete grid is read, not scored again.

        extrapolation  a change of the encoding at test time, as in "yarn"
        split          "evaluation", or "carry" for problems with long carry chains
        max_digits     digits of the longest operands; None for the run's `tested_digits`
        """
        from tape_arith.arith.scoring.session import score_run

        configure()
        with stopping(stopper) as stop:
            grid = score_run(
                self,
                _parsed(extrapolation),
                evaluation_set=EvaluationSet(known_split(split), max_digits),
                compute=compute,
                fresh=fresh,
                should_stop=stop,
            )
        grid.precision = self.precision()
        return grid

    @checked
    def answer(self, problem: str, extrapolation: str | None = None) -> "Answer":
        """Return the run's greedy answer to a problem that is written as in "123+45"."""
        from tape_arith.arith.scoring.answer import answer

        configure()
        return answer(self, problem, _parsed(extrapolation))

    @checked
    def decoder(self, extrapolation: str | None = None) -> "Decoder":
        """Return the trained decoder, a torch.nn.Module that is ready to evaluate."""
        from tape_arith.arith.decoders.weights import trained_decoder, trained_record

        configure()
        record = trained_record(self)
        name = Name(record.name.encoding, _parsed(extrapolation))
        return trained_decoder(self, name, record)

    @checked
    def export(
        self,
        extrapolation: str | None = None,
        *,
        dataset_id: str | None = None,
        out: str | Path | None = None,
        fresh: bool = False,
    ) -> Path:
        """Write the run as a model for transformers; return the folder, by default in exports.

        dataset_id  a benchmark on the Hub, as OWNER/NAME, whose results the means are written as
        """
        from tape_arith.arith.export.export_run import export_run

        configure()
        return export_run(
            self,
            extrapolation=_parsed(extrapolation),
            dataset_id=dataset_id,
            out=None if out is None else Path(out),
            fresh=fresh,
        )


@checked
def find_runs(runs: str | Path = "runs") -> list[Run]:
    """Return the runs below a folder, sorted by path."""
    return [Run(run.path) for run in find.find_runs(Path(runs))]


@checked
def find_run(
    target: str | Path,
    *,
    runs: str | Path = "runs",
    preset: str | None = None,
    seed: Seed | None = None,
) -> tuple[Run, str | None]:
    """Return the run in the folder `target`, or that of the encoding `target`; its extrapolation.

    Raises UsageError unless exactly one run below `runs` matches.
    """
    if Path(target).is_dir() or ("/" in str(target) and ".py:" not in str(target)):
        if preset is not None or seed is not None:
            raise UsageError(
                f"{target} is a folder: --preset and --seed go with an encoding's name"
            )
        return Run(Path(target)), None
    root, name = Path(runs), parse(str(target))
    matching = find.find_runs(root, preset, name.encoding, seed or 0)
    if not matching:
        raise UsageError(
            f"no run of {name.encoding}, seed {seed or 0}, in {root}: "
            f"`{train_command(name, preset, root, seed or 0)}` trains one"
        )
    if len(matching) > 1:
        paths = ", ".join(str(run.path) for run in matching)
        raise UsageError(f"{name} is in {paths}: choose one with --preset")
    return Run(matching[0].path), str(name.extrapolation) if name.extrapolation else None


def _parsed(extrapolation: str | None) -> NamePart | None:
    return None if extrapolation is None else parse_extrapolation(extrapolation)
