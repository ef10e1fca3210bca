"""The leaderboard: its rows, its columns and the notes below it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any, Generic, NamedTuple, TypeVar

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.columns import (
    NOT_MEASURED,
    UNKNOWN,
    Column,
    notes,
    numbers,
    panel_columns,
)
from tape_arith.arith.compare.lengths import of_length
from tape_arith.arith.compare.run_files import RunFiles
from tape_arith.arith.grids.axes import Axes
from tape_arith.arith.grids.panel import SOLVED, Panel
from tape_arith.arith.grids.statistics import Welch
from tape_arith.arith.runs.metrics import last_evaluations

LEVEL = 0.05
"""A difference is significant if Holm's p is at most this."""
_FIRST_IN_FILES = [
    "section",
    "rank",
    "kind",
    "encoding",
    "seeds",
    "converged",
    "interval",
    "in_distribution",
]
"""The columns that stand first in CSV; the others follow in the order of the table."""
T = TypeVar("T")


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
            return UNKNOWN
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
    """An encoding of a leaderboard."""

    panel: Panel
    section: str = ""
    """The title of its section."""
    rank: int | None = None
    """The rank within its section, from 1; None if the encoding is not ranked."""
    kind: str = ""
    tests: Mapping[str, Comparison] = field(default_factory=dict)
    """The comparison with each reference, by its name."""
    runs: Sequence[RunFiles | None] = ()
    """The run of each seed, if its files are here."""
    trainings: Sequence[Training] = ()
    """The training of each seed, if costs were asked for."""
    parameters: int | None = None
    flops_a_token: float | None = None
    """FLOPs that the encoding adds to a forward pass over the longest trained sequence."""

    @cached_property
    def last_states(self) -> list[list[tuple[int, float]]]:
        """Steps and means out of distribution on the small grid at each seed's last saved states.

        States are scored without what is added at test time, so that a name with such has none.
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
        """Return the numbers for JSON that are not those of a column."""
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


class Section(NamedTuple, Generic[T]):
    """Encodings that are ranked against each other."""

    title: str
    reason: str
    """Why this section stands apart; "" if it does not."""
    rows: Sequence[T]

    @property
    def heading(self) -> str:
        """Return the title, and the reason behind it."""
        return f"{self.title}: {self.reason}" if self.reason else self.title


@dataclass(frozen=True)
class Board:
    """A leaderboard: all scored encodings of a preset that may be compared."""

    preset: str
    axes: Axes
    about: Mapping[str, Any]
    """Task, lengths, budget and evaluation, the same for all runs."""
    source: str
    """The origin of the numbers, in words (`captions.source`)."""
    caption: str
    """`source`, followed by what the means and intervals are over."""
    sections: Sequence[Section[Row]]
    references: Sequence[str]
    left_out: Sequence[tuple[str, str]] = ()
    """Runs that are not shown, and why."""
    num_tests: int = 0
    """Number of different tests; that between two references is on both their rows."""
    num_encodings: int = 0
    """Number of encodings that were ranked and tested, shown or not."""
    costs: bool = False
    """Whether parameters and FLOPs were asked for."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The names to print of encodings; one without a label is printed as it is typed."""

    @property
    def rows(self) -> list[Row]:
        """Return the rows of all sections, in order."""
        return [row for section in self.sections for row in section.rows]

    def label(self, name: str) -> str:
        """Return the name to print of an encoding."""
        return self.labels.get(name, name)

    def only(self, names: Sequence[str]) -> "Board":
        """Return the leaderboard with the rows of `names` alone; ranks and tests stay."""
        sections = [
            section._replace(rows=[row for row in section.rows if row.panel.name in names])
            for section in self.sections
        ]
        return replace(self, sections=[section for section in sections if section.rows])

    @cached_property
    def columns(self) -> list[Column[Row]]:
        """Return the columns in the order of the table: a new one is an entry here."""
        of_panel = panel_columns([row.panel for row in self.rows], self.labels)
        solved = [f"solved_to_{100 * share:g}" for share in SOLVED]
        return [
            Column(key="section", numbers=lambda row: {"section": row.section}),
            Column(
                key="rank",
                head="#",
                text=lambda row: str(row.rank or UNKNOWN),
                value=lambda row: row.rank,
                printed=True,
                importance=4,
            ),
            of_panel["encoding"],
            Column(
                key="kind",
                head="kind",
                text=lambda row: row.kind,
                value=lambda row: row.kind,
                left=True,
            ),
            of_panel["seeds"],
            of_panel["interval"],
            of_panel["out_of_distribution"],
            Column(
                key="each_seed",
                head="each seed, %",
                text=lambda row: (
                    " ".join(
                        f"{100 * value:.1f}"
                        for value in row.panel.seed_means("out_of_distribution")
                    )
                    or UNKNOWN
                ),
            ),
            *(of_panel[region] for region in ("one_longer", "both_longer") if region in of_panel),
            of_panel["in_distribution"],
            of_panel["all_cells"],
            *(of_panel[key] for key in ("final_answer",) if key in of_panel),
            *(replace(of_panel[key], note=self._solved_note) for key in solved),
            *map(self._test, self.references),
            Column(
                key="last_states",
                head="last states",
                text=lambda row: _median([row.last_states_range], "{:.1%}"),
                value=lambda row: row.last_states_range,
                name="last_states_range",
                legend="last states: the range of a run's last saved states, in points",
                note=self._time_note,
            ),
            Column(
                key="training_min",
                head="training, min",
                text=lambda row: _median(
                    (None if s is None else s / 60 for s in row.train_seconds), "{:.1f}"
                ),
                value=lambda row: row.train_seconds,
                name="train_seconds",
                note=self._time_note,
            ),
            *(self._costs if self.costs else ()),
            of_panel["converged"],
        ]

    def _test(self, reference: str) -> Column[Row]:
        def entries(row: Row) -> dict[str, object]:
            test = row.tests[reference]
            return {
                f"difference_from_{reference}": test.welch and test.welch.difference,
                f"p_{reference}": test.welch and test.welch.p,
                f"p_holm_{reference}": test.p_holm,
                f"no_test_{reference}": test.why_not,
            }

        arrows = f"\N{UPWARDS ARROW} better and \N{DOWNWARDS ARROW} worse at {100 * LEVEL:g} %"
        names = ", ".join(f"vs {self.label(name)}" for name in self.references)
        note = (
            f"{names}: Welch's t test of the means out of distribution, over seeds, "
            f"two-sided; p after Holm over the {self.num_tests} tests made here, "
            f"{arrows}. A dash: "
            "no test. The row is the reference, the reference is not scored, one of the two has "
            "one seed or is not ranked, both are the same training runs, or neither varies between "
            "seeds."
        )
        if not self.num_tests:
            note = f"{names}: no test was possible; --csv says why, encoding by encoding."
        return Column(
            key=f"vs_{reference}",
            head=f"vs {self.label(reference)}",
            text=lambda row: str(row.tests[reference]),
            numbers=entries,
            printed=True,
            importance=12,
            signs="p of Welch's t test over seeds, after Holm over "
            f"{self.num_tests} tests, {arrows}",
            note=note,
        )

    @property
    def _costs(self) -> list[Column[Row]]:
        trained_on: Column[Row] = Column(
            key="trained_on",
            head="trained on",
            text=lambda row: (
                ", ".join(sorted({t.machine for t in row.trainings if t.machine})) or UNKNOWN
            ),
            note=self._costs_note,
        )
        return [
            *([trained_on] if len(self.machines) > 1 else []),
            Column(
                key="parameters",
                head="parameters",
                text=lambda row: _median([row.parameters], "{:,.0f}", UNKNOWN),
                value=lambda row: row.parameters,
                printed=True,
                importance=6,
                legend="parameters: those of the encoding",
                note=self._costs_note,
            ),
            Column(
                key="flops_a_token",
                head="FLOPs a token",
                text=lambda row: _median([row.flops_a_token], "{:,.0f}", UNKNOWN),
                numbers=lambda row: {"flops": row.flops_a_token},
                printed=True,
                importance=7,
                legend="FLOPs: those that the encoding adds to a forward",
                note=self._costs_note,
            ),
            Column(
                key="loss",
                head="loss",
                text=lambda row: _median((t.loss for t in row.trainings), "{:.4f}"),
                numbers=lambda row: {"loss": [t.loss for t in row.trainings]},
                printed=True,
                importance=8,
                note=self._costs_note,
            ),
            Column(
                key="tokens_s",
                head="tokens/s",
                text=lambda row: _median((t.tokens_per_second for t in row.trainings), "{:,.0f}"),
                numbers=lambda row: {
                    "tokens_per_second": [t.tokens_per_second for t in row.trainings]
                },
                printed=True,
                importance=9,
                note=self._costs_note,
            ),
            Column(
                key="mfu",
                head="MFU, %",
                text=lambda row: _median((t.mfu for t in row.trainings), "{:.1%}"),
                numbers=lambda row: {"mfu": [t.mfu for t in row.trainings]},
                importance=10,
                note=self._costs_note,
            ),
            Column(
                key="machine",
                numbers=lambda row: {"machine": [t.machine for t in row.trainings]},
            ),
        ]

    @property
    def machines(self) -> set[str]:
        """The product names of the GPUs and CPUs that trained the rows; known with costs alone."""
        return {each.machine for row in self.rows for each in row.trainings if each.machine}

    def numbers(self) -> list[dict[str, object]]:
        """Return each encoding's numbers by their keys in CSV, in order."""
        first = {key: place for place, key in enumerate(_FIRST_IN_FILES)}
        order = sorted(self.columns, key=lambda column: first.get(column.key, len(first)))
        return numbers(order, self.rows)

    # ---- notes -----------------------------------------------------------------------------

    def notes(self) -> list[str]:
        """Return what a reader must know, in paragraphs."""
        paragraphs = [
            self.caption,
            "The order is that of the mean out of distribution: where intervals overlap widely it "
            "says little, and of rows with one seed nothing is known beyond that run.",
            *notes(self.columns),
        ]
        if len(self.rows) < self.num_encodings:
            paragraphs.append(
                f"{len(self.rows)} of the {self.num_encodings} encodings are shown; ranks and "
                f"tests are of all {self.num_encodings}."
            )
        return [*paragraphs, *captions.left_out(self.left_out)]

    @property
    def _solved_note(self) -> str:
        shares = " and ".join(f"{share * 100:g} %" for share in SOLVED)
        over = "cells and seeds" if len(self.axes) > 1 else "seeds"
        return (
            f"Solved to, at {shares}: the largest length L such that of the problems "
            f"{of_length(self.axes, 'l')} that share is exact, for each l up to L (mean over "
            f"{over}; {self.about['max_digits']} is the longest tested)."
        )

    @property
    def _time_note(self) -> str:
        states = [state for row in self.rows for seed in row.last_states for state in seed]
        steps = sorted({step for step, _ in states})
        span = f", of steps {steps[0]:,} to {steps[-1]:,}" if steps else ""
        return (
            "Last states: out of distribution on the small grid of training, highest minus "
            f"lowest of a run's last saved states (five at most{span}, what it learns "
            "meanwhile included), in percentage points, mean over seeds. "
            "Training: median over seeds of the time it took where it ran."
        )

    @property
    def _costs_note(self) -> str:
        return (
            "Parameters are the encoding's own; FLOPs are those of the matrix products that it "
            "adds to a forward, a token, over the longest trained sequence at this size. Loss: "
            "in the last steps of training, nats a scored token; tokens/s: real tokens over "
            "the whole of it; MFU: the FLOPs that it needed (no padding, half of attention) "
            "over its time, of the bfloat16 rate in the datasheet of the part, where there is "
            "one; each the median over seeds."
            f"{' Times of different machines do not compare.' * (len(self.machines) > 1)}"
        )


def _median(values: Iterable[float | None], form: str, unknown: str = NOT_MEASURED) -> str:
    """Format the median of the known values; return `unknown` if there are none."""
    known = [value for value in values if value is not None]
    return form.format(median(known)).rstrip("%") if known else unknown
