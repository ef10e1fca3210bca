"""Options of a training call. Never imports torch."""

from dataclasses import dataclass
from pathlib import Path

from tape_arith.models.backends import AUTO, AttentionChoice


@dataclass(frozen=True)
class TrainOptions:
    """Options that change no number of a run beyond rounding, so its record holds none of them.

    data          a generated dataset; None makes the same problems as they are needed
    compute       attention backend and compilation
    curves        whether to score the small grid on the way
    trackers      names of trackers that get every line of metrics.jsonl too
    on_nonfinite  policy at a loss or gradient that is not finite; None keeps the record's
    """

    data: Path | None = None
    compute: AttentionChoice = AUTO
    curves: bool = True
    trackers: tuple[str, ...] = ()
    on_nonfinite: str | None = None


DEFAULTS = TrainOptions()
