"""Options of a training that change its numbers by rounding at most."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.runs.config import Policy, Precision


class Compute(NamedTuple):
    """The options --backend, --compile and --precision.

    attention  "auto" or the name of a backend
    compiled   whether blocks are compiled; None: on a GPU, and where a preset asks for it
    precision  the type of matrix products; "auto": bfloat16 where the machine multiplies it fast
    """

    attention: str = "auto"
    compiled: bool | None = None
    precision: Precision = "auto"

    @property
    def for_scoring(self) -> "Compute":
        """The options for scoring.

        Without --compile, which on a CPU takes longer than scoring, and without --precision, on
        which exact match does not depend.
        """
        compiled = None if self.compiled else self.compiled
        return self._replace(compiled=compiled, precision="auto")

    @property
    def options(self) -> list[str]:
        """The command-line options of these values; none for the defaults."""
        options = [] if self.attention == "auto" else ["--backend", self.attention]
        if self.compiled is not None:
            options.append("--compile" if self.compiled else "--no-compile")
        return options + ([] if self.precision == "auto" else ["--precision", self.precision])


AUTO = Compute()


@dataclass(frozen=True)
class TrainOptions:
    """Options that change a run's numbers by rounding at most, and so are not in its config.

    data          a generated dataset; None: the usual one if it fits (`training_data`); otherwise
                  the same problems are made as needed
    compute       attention backend and compilation
    curves        whether to score the small grid during training
    trackers      names of trackers that also get every line of metrics.jsonl
    on_nonfinite  policy for a loss or gradient that is not finite; None: as in the record
    """

    data: Path | None = None
    compute: Compute = AUTO
    curves: bool = True
    trackers: tuple[str, ...] = ()
    on_nonfinite: Policy | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a value that a run could not record."""
        if self.on_nonfinite not in (None, *get_args(Policy)):
            raise unknown("policy for --on-nonfinite", str(self.on_nonfinite), get_args(Policy))
        if isinstance(self.trackers, str):
            raise UsageError(f"trackers are a tuple of names, as in ('{self.trackers}',)")
        if self.data is not None:
            object.__setattr__(self, "data", Path(self.data))


DEFAULTS = TrainOptions()
