"""A row of a leaderboard: an encoding, its rank, its tests and its trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tape_arith.arith.compare.columns import UNKNOWN
from tape_arith.arith.compare.run_states import TolerantState
from tape_arith.arith.grids.panel import SOLVED, Panel
from tape_arith.arith.grids.statistics import Welch
from tape_arith.arith.runs.metrics import last_evaluations

LEVEL = 0.05
"""A difference is significant if Holm's p is at most this."""


@dataclass(frozen=True)
class Comparison:
    """The test of an encoding's mean out of distribution against that of a reference."""

    welch: Welch | None = None
    p_holm: float | None = None
    """The p value, corrected for all tests of the leaderboard."""
    why_not: str | None = None
    """Why there is no test."""

    def __str__(self) -> str:
        """Return p, with an arrow for a significant difference; "-" for no test."""
        if self.welch is None or self.p_holm is None:
            return UNKNOWN
        p = "<0.001" if self.p_holm < 0.001 else f"{self.p_holm:.3f}"
        better = self.welch.difference > 0
        arrow = "\N{UPWARDS ARROW} " if better else "\N{DOWNWARDS ARROW} "
        return arrow + p if self.p_holm <= LEVEL else p


class Training(NamedTuple):
    """Loss, speed and machine of a run's training; None for what is not known."""

    loss: float | None = None
    """Loss in the last steps, in nats a scored token."""
    tokens_per_second: float | None = None
    """Tokens without padding, over the whole training."""
    mfu: float | None = None
    """Useful FLOPs per second over the rate in the hardware's datasheet, 0..1."""
    machine: str | None = None
    """Product name of the GPU or CPU."""


@dataclass(frozen=True)
class Row:
    """An encoding of a leaderboard."""

    panel: Panel
    section: str = ""
    """The title of its section."""
    rank: int | None = None
    """The rank within its section, from 1; None if the encoding is not ranked."""
    kind: str = ""
    tests: Mapping[str, Comparison] = field(default_factory=dict)
    """The comparison with each reference, by its name."""
    runs: Sequence[TolerantState | None] = ()
    """The run of each seed, if its files are here."""
    trainings: Sequence[Training] = ()
    """The training of each seed, if costs were asked for."""
    parameters: int | None = None
    flops_a_token: float | None = None
    """FLOPs that the encoding adds to a forward pass over the longest trained sequence."""

    @cached_property
    def last_states(self) -> list[list[tuple[int, float]]]:
        """Steps and means out of distribution on the small grid at each seed's last saved states.

        They are scored without an extrapolation, so a name with one has none.
        """
        own = self.panel.name == self.panel.encoding
        return [last_evaluations(run.metrics) if run and own else [] for run in self.runs]

    @property
    def last_states_range(self) -> float | None:
        """Return highest minus lowest of a seed's last states, mean over the seeds with any."""
        values = [[value for _, value in states] for states in self.last_states if states]
        ranges = [max(each) - min(each) for each in values]
        return sum(ranges) / len(ranges) if ranges else None

    @property
    def train_seconds(self) -> list[float | None]:
        return [run.seconds.get("train") if run else None for run in self.runs]

    def content(self) -> dict[str, Any]:
        """Return the numbers for JSON that no column has."""
        panel, states = self.panel, self.last_states
        finals = {
            "final_answers": panel.final_answers,
            "final_answers_of": panel.final_answers_of,
        }
        intervals = {region: panel.interval(region) for region in panel.regions}
        return {
            "encoding": panel.name,
            "seeds": panel.seeds,
            "means": {region: each and asdict(each) for region, each in intervals.items()},
            "mark": panel.convergence,
            "values": {region: panel.seed_means(region) for region in panel.regions},
            "solved_to": {f"{share:g}": panel.solved_to(share) for share in SOLVED},
            "rank": self.rank,
            "kind": self.kind,
            "tests": {
                name: (test.welch._asdict() if test.welch else {})
                | {"p_holm": test.p_holm, "why_not": test.why_not}
                for name, test in self.tests.items()
            },
            "last_states": [[value for _, value in each] or None for each in states],
            "last_steps": [[step for step, _ in each] for each in states if each],
            "train_seconds": self.train_seconds,
            "trainings": [training._asdict() for training in self.trainings],
            "parameters": self.parameters,
            "flops_a_token": self.flops_a_token,
            **(finals if panel.final_answers else {}),
            "converged": panel.convergence is None,
        }
