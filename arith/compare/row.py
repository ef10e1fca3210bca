"""A row of a leaderboard: an encoding, its rank, its tests and its trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tape_arith.arith.compare.effects import Effect
from tape_arith.arith.compare.run_states import TolerantState
from tape_arith.arith.grids.panel import SOLVED, Panel
from tape_arith.arith.runs.metrics import last_evaluations


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
    told: bool | None = None
    """Whether training depended on the longest tested length; None if unknown."""
    effects: Mapping[str, Effect] = field(default_factory=dict)
    """The difference from each reference, by its name."""
    from_best: Effect = field(default_factory=Effect)
    """The difference from the best encoding of the section that has two seeds."""
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
        return [run.record.seconds.get("train") if run else None for run in self.runs]

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
            "told_tested_length": self.told,
            "tests": {name: effect.content() for name, effect in self.effects.items()},
            "from_best": self.from_best.content(),
            "last_states": [[value for _, value in each] or None for each in states],
            "last_steps": [[step for step, _ in each] for each in states if each],
            "train_seconds": self.train_seconds,
            "trainings": [training._asdict() for training in self.trainings],
            "parameters": self.parameters,
            "flops_a_token": self.flops_a_token,
            **(finals if panel.final_answers else {}),
            "converged": panel.convergence is None,
        }
