"""What is logged while a run trains."""

from dataclasses import asdict, dataclass
from typing import Any

from tape_arith.arith.training.evaluation import Measures


@dataclass(frozen=True)
class Metrics:
    """One line of metrics.jsonl. `loss` is the mean over the steps since the line before, in nats
    a scored token, `gradient_norm` that of the last of them; `skipped` counts the steps so far that
    were left out since one of these was not finite, and which are in neither. `exact_match` is of
    held-out problems of the trained lengths, None where it was not taken; `tokens` counts real
    tokens so far, padding excluded; `small_grid` is what `SmallGrid.exact_match` gives and `state`
    what `state_measures` does, at each evaluation."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    tokens_per_second: float
    seconds: float
    exact_match: float | None
    small_grid: dict[str, Any] | None = None
    state: Measures | None = None
    skipped: int = 0

    def content(self) -> dict[str, Any]:
        """What the line says: without the small grid, the state and the steps left out where there
        are none."""
        content = asdict(self)
        absent = [key for key in ("small_grid", "state", "skipped") if not content[key]]
        return {key: value for key, value in content.items() if key not in absent}
