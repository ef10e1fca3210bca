"""What the lines of metrics.jsonl say of the way there: curves and the last states. No torch here.

Lines of older runs have no small grid and no state: what is not there is left out, never made up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any, Literal

LAST_STATES = 5

Line = Mapping[str, Any]
Region = Literal["in_distribution", "out_of_distribution"]


@dataclass(frozen=True)
class LastStates:
    """Exact match on the small grid, 0..1, of a run's last saved states, the final one included.

    It tells how much a result depends on when the run stopped. Nothing is selected by it: what
    counts is the final state's own grid.
    """

    steps: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def range(self) -> float:
        """From the lowest to the highest."""
        return max(self.values) - min(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation of a sample (n - 1)."""
        return stdev(self.values)


def last_states(
    lines: Sequence[Line], region: Region = "out_of_distribution", count: int = LAST_STATES
) -> LastStates | None:
    """Of the last `count` states that were saved, each of which was evaluated; of fewer where a run
    has fewer. None where fewer than two have a small grid of `region`."""
    found = curve(lines, region)[-count:]
    if len(found) < 2:
        return None
    steps, values = zip(*found, strict=True)
    return LastStates(steps, values)


def curve(lines: Sequence[Line], region: Region) -> list[tuple[int, float]]:
    """(step, exact match on the small grid) at each evaluation."""
    found = ((line["step"], line.get("small_grid")) for line in lines)
    return [(step, grid[region]) for step, grid in found if grid and grid[region] is not None]


def by_length(lines: Sequence[Line]) -> dict[int, list[tuple[int, float]]]:
    """The learning of each length: by digits of the longer operand, (step, exact match)."""
    curves: dict[int, list[tuple[int, float]]] = {}
    for line in lines:
        for length, value in (line.get("small_grid") or {}).get("by_length", {}).items():
            curves.setdefault(int(length), []).append((line["step"], value))
    return curves


def states(lines: Sequence[Line]) -> dict[str, list[tuple[int, list[float]]]]:
    """What an encoding measures of its state, by name: (step, a number for each layer)."""
    curves: dict[str, list[tuple[int, list[float]]]] = {}
    for line in lines:
        for name, values in (line.get("state") or {}).items():
            curves.setdefault(name, []).append((line["step"], values))
    return curves
