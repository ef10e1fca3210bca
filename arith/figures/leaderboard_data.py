"""The content of a leaderboard, and the notes that its readers need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tape_arith.arith.figures.tables import Row
from tape_arith.arith.scoring.comparisons import Welch
from tape_arith.arith.scoring.grid import SOLVED

LEVEL = 0.05
"""A difference is marked where Holm's p is at most this."""


@dataclass(frozen=True)
class Comparison:
    """An encoding's mean out of distribution against that of a reference."""

    welch: Welch | None
    holm: float | None
    """p, adjusted for all tests of the leaderboard."""
    why: str | None
    """Why there is no test."""

    @property
    def sign(self) -> int:
        """1 or -1 where it is better or worse than the reference, 0 where nobody can say."""
        if self.welch is None or self.holm is None or self.holm > LEVEL:
            return 0
        return 1 if self.welch.difference > 0 else -1


class Training(NamedTuple):
    """How a run's training went; None: not known."""

    loss: float | None = None
    """In its last steps, nats a scored token."""
    tokens_per_second: float | None = None
    """Real tokens, over the whole of it."""
    mfu: float | None = None
    """FLOPs that it needed over its time, of what its part's datasheet says; 0..1."""


@dataclass(frozen=True)
class Standing:
    """What a leaderboard says of one encoding; of its seeds in the order of `row.seeds`."""

    row: Row
    rank: int | None
    """Within its section, from 1; None where it is not ranked."""
    kind: str
    solved: Mapping[float, int | None]
    """By the share of SOLVED, the largest length solved (`reach.solved_to`); None: not known."""
    tests: Mapping[str, Comparison]
    """By reference."""
    last_states: Sequence[Sequence[float] | None]
    """Of each seed: out of distribution on the small grid at the last saved states, the final one
    included; None where that was not measured."""
    train_seconds: Sequence[float | None]
    parameters: int | None = None
    """Of the encoding's own, at the size that was trained; None where nobody asked."""
    flops_a_token: float | None = None
    """What it adds to a forward over the longest trained sequence, in matrix products."""
    trainings: Sequence["Training"] = ()
    """Of each seed, where costs were asked for."""
    last_steps: Sequence[Sequence[int]] = ()
    """After how many steps the states of `last_states` were saved, of each seed that has some."""

    @property
    def range(self) -> float | None:
        """Highest minus lowest of a run's last states, the mean over the seeds that have them."""
        ranges = [max(values) - min(values) for values in self.last_states if values]
        return sum(ranges) / len(ranges) if ranges else None


class Section(NamedTuple):
    """Encodings that are compared with each other."""

    title: str
    why: str
    """Why they stand apart, if they do."""
    standings: Sequence[Standing]


@dataclass(frozen=True)
class Board:
    """A leaderboard: all that is scored of a preset, as far as it may be compared."""

    preset: str
    about: Mapping[str, Any]
    """Task, lengths, budget and evaluation, the same for all runs."""
    source: str
    """Where the numbers come from (`captions.source`)."""
    caption: str
    """The same, and what the means and intervals are over."""
    sections: Sequence[Section]
    references: Sequence[str]
    left_out: Sequence[tuple[str, str]]
    """Runs that are not shown, and why."""
    costs: bool
    """Whether parameters and FLOPs were asked for."""

    @property
    def standings(self) -> list[Standing]:
        return [standing for section in self.sections for standing in section.standings]

    @property
    def num_tests(self) -> int:
        """How many different ones were made: that of a reference against another is on two rows."""
        return len(
            {
                frozenset((standing.row.encoding, reference))
                for standing in self.standings
                for reference, test in standing.tests.items()
                if test.welch
            }
        )

    @property
    def notes(self) -> list[str]:
        """What a reader must know, a paragraph each."""
        return [*self._of_all, self._of_runs, *self._of_costs, *self._left_out]

    @property
    def printed_notes(self) -> list[str]:
        """The notes without those on columns that a paper has no room for."""
        return [*self._of_all, *self._of_costs, *self._left_out]

    @property
    def _of_all(self) -> list[str]:
        shares = " and ".join(f"{share * 100:g} %" for share in SOLVED)
        return [
            self.caption,
            "The order is that of the mean out of distribution: where intervals overlap widely it "
            "says little, and of rows with one seed nothing is known beyond that run.",
            f"Solved to, at {shares}: the largest length L such that of the sums whose longer "
            "operand has l digits that share is exact, for each l up to L (mean over cells and "
            f"seeds; {self.about['max_digits']} is the longest tested).",
            f"vs {', vs '.join(self.references)}: Welch's t test of the means out of distribution, "
            f"over seeds, two-sided; p after Holm over the {self.num_tests} tests made here, "
            f"\N{UPWARDS ARROW} better and \N{DOWNWARDS ARROW} worse at {LEVEL * 100:g} %. A dash: "
            "no test, for one of the two has one seed or is not ranked, both are the same training "
            "runs, or neither varies between seeds.",
        ]

    @property
    def _of_runs(self) -> str:
        return (
            "Last states: out of distribution on the small grid of training, highest minus lowest "
            f"of {self._last_states}, in percentage points, mean over seeds. Training: median over "
            "seeds of the time it took where it ran."
        )

    @property
    def _last_states(self) -> str:
        """How many states and of which steps: the range includes what is learnt between them."""
        each = {tuple(steps) for standing in self.standings for steps in standing.last_steps}
        if not each:
            return "a run's last saved states"
        counts = sorted({len(steps) for steps in each})
        first, last = min(steps[0] for steps in each), max(steps[-1] for steps in each)
        many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        within = "within " if len(each) > 1 else ""
        return (
            f"a run's last {many} saved states ({within}steps {first:,} to {last:,}, what it "
            "learns meanwhile included)"
        )

    @property
    def _of_costs(self) -> list[str]:
        if not self.costs:
            return []
        return [
            "Parameters are the encoding's own; FLOPs are those of the matrix products that it "
            "adds to a forward, a token, over the longest trained sequence at this size. Loss: in "
            "the last steps of training, nats a scored token; tokens/s: real tokens over the whole "
            "of it; MFU: the FLOPs that it needed (no padding, half of attention) over its time, "
            "of the bfloat16 rate in the datasheet of the part, where there is one; each the "
            "median over seeds."
        ]

    @property
    def _left_out(self) -> list[str]:
        return [f"Left out: {runs}: {why}." for runs, why in self.left_out]
