"""Encodings as rows of numbers: means, seeds, tests, what training said."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tape_arith.arith.compare import captions
from tape_arith.arith.grids.axes import REGION_WORDS, Region
from tape_arith.arith.grids.panel import SOLVED, Panel
from tape_arith.arith.grids.statistics import Interval, Welch

LEVEL = 0.05
"""A difference is significant if Holm's p is at most this."""
OVER_PROBLEMS = "(± over problems)"


@dataclass(frozen=True)
class Comparison:
    """An encoding's mean out of distribution against that of a reference."""

    welch: Welch | None = None
    p_holm: float | None = None
    """The p value, corrected for all tests of the leaderboard."""
    why_not: str | None = None
    """Why there is no test."""

    def __str__(self) -> str:
        """Return p with an arrow for a significant difference, "-" for no test."""
        if self.welch is None or self.p_holm is None:
            return "-"
        p = "<0.001" if self.p_holm < 0.001 else f"{self.p_holm:.3f}"
        better = self.welch.difference > 0
        arrow = "\N{UPWARDS ARROW} " if better else "\N{DOWNWARDS ARROW} "
        return arrow + p if self.p_holm <= LEVEL else p


class Training(NamedTuple):
    """Loss, speed and machine of a run's training; None for what is not known."""

    loss: float | None = None
    """Loss in the last steps, in nats per scored token."""
    tokens_per_second: float | None = None
    """Tokens without padding, over the whole training."""
    mfu: float | None = None
    """Useful FLOPs per second over the rate in the hardware's datasheet, 0..1."""
    machine: str | None = None
    """Product name of the GPU or CPU."""


@dataclass(frozen=True)
class Row:
    """The numbers of one encoding; those of single seeds are in the order of `seeds`.

    `rows` fills the fields without a default and those of final answers, a leaderboard the others,
    and a sweep `settings`.
    """

    encoding: str
    seeds: tuple[int, ...]
    means: Mapping[Region, Interval | None]
    """The mean of each region; None if the region has no cells."""
    mark: str | None
    """The words of `Panel.convergence`; None if all seeds converged."""
    values: Mapping[Region, tuple[float, ...]]
    """Each region's means, one per seed; empty if the region has no cells."""
    solved_to: Mapping[float, int]
    """The largest length that counts as solved, by share in SOLVED."""
    rank: int | None = None
    """The rank within its section, from 1; None if the encoding is not ranked."""
    kind: str = ""
    tests: Mapping[str, Comparison] = field(default_factory=dict)
    """The comparison with each reference, by its name."""
    last_states: Sequence[Sequence[float] | None] = ()
    """Means out of distribution on the small grid at each seed's last saved states, in order."""
    last_steps: Sequence[Sequence[int]] = ()
    """The steps of these states, for each seed that has any."""
    train_seconds: Sequence[float | None] = ()
    trainings: Sequence[Training] = ()
    """The training of each seed, if costs were asked for."""
    parameters: int | None = None
    flops_a_token: float | None = None
    """FLOPs that the encoding adds to a forward pass over the longest trained sequence."""
    final_answers: tuple[float, ...] = ()
    """Share of right final answers out of distribution of each seed, if a scratchpad is before them
    and all seeds tell."""
    final_answers_of: int = 0
    """The number of problems behind each of these shares."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The settings that vary in a sweep; a table has a column for each."""

    @property
    def ranked(self) -> bool:
        """Tell whether the encoding is ranked by its mean out of distribution."""
        return self.mark is None and self.means["out_of_distribution"] is not None

    @property
    def last_states_range(self) -> float | None:
        """Return highest minus lowest of a seed's last states, mean over the seeds with any."""
        ranges = [max(values) - min(values) for values in self.last_states if values]
        return sum(ranges) / len(ranges) if ranges else None

    @property
    def seed_count(self) -> str:
        """Return the number of seeds, and what the ± of a single one covers."""
        return str(len(self.seeds)) if len(self.seeds) > 1 else f"1 {OVER_PROBLEMS}"

    def mean(self, region: Region) -> float | None:
        """Return the mean of a region, 0..1."""
        interval = self.means[region]
        return interval.mean if interval else None

    def percent(self, region: Region) -> str:
        """Return "18.2 ± 3.1", in percent; "-" for no mean."""
        return captions.percent(self.means[region], self.values[region])

    def texts(self, *shown: Region) -> dict[str, str]:
        """Return the `percent` of each region in `shown` that the grid has, by its head."""
        return {
            f"{REGION_WORDS[region]}, %": self.percent(region)
            for region in shown
            if region in self.means
        }


def rows(panels: Sequence[Panel]) -> list[Row]:
    """Return a row for each encoding, in the order of `ranked`."""
    return ranked(
        Row(
            panel.name,
            panel.seeds,
            {region: panel.interval(region) for region in panel.regions},
            panel.convergence,
            {region: panel.seed_means(region) for region in panel.regions},
            {share: panel.solved_to(share) for share in SOLVED},
            final_answers=panel.final_answers,
            final_answers_of=panel.final_answers_of,
        )
        for panel in panels
    )


def ranked(rows: Iterable[Row]) -> list[Row]:
    """Sort by mean out of distribution, highest first; then what is not ranked, by name."""

    def order(row: Row) -> tuple[bool, float, str]:
        mean = row.mean("out_of_distribution") or 0.0
        return not row.ranked, -mean if row.ranked else 0.0, row.encoding

    return sorted(rows, key=order)


def flat(row: Row) -> dict[str, object]:
    """Return the numbers of a row, by the names of their columns in CSV."""
    facts: dict[str, object] = {
        "encoding": row.encoding,
        **row.settings,
        "seeds": row.seeds,
        "converged": row.mark or "yes",
        "interval": "seeds" if len(row.seeds) > 1 else "this run only",
    }
    for region, interval in row.means.items():
        facts[region] = row.mean(region)
        for part in ("half_width", "low", "high"):
            facts[f"{region}_{part}"] = getattr(interval, part, None)
        facts[f"{region}_seeds"] = row.values[region]
    if row.final_answers:
        facts["final_answer_seeds"] = row.final_answers
        facts["final_answer_problems"] = row.final_answers_of
    return facts | {f"solved_to_{100 * share:g}": n for share, n in row.solved_to.items()}
