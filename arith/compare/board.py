"""The leaderboard: its rows, its columns and the notes below it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.columns import UNKNOWN, Column, notes_of, numbers, panel_columns
from tape_arith.arith.compare.costs import Training, cost_columns, format_median
from tape_arith.arith.compare.effects import (
    RANKED_BY,
    Contrast,
    Effect,
    contrasts_note,
    difference_columns,
    power_note,
)
from tape_arith.arith.compare.labels import panel_labels
from tape_arith.arith.compare.selection import TolerantState
from tape_arith.arith.grids.panel import SOLVED, Panel
from tape_arith.arith.runs.metrics import last_evaluations

_FIRST_IN_FILES = (
    *("section", "rank", "kind", "encoding", "seeds"),
    *("converged", "interval", "in_distribution"),
)
"""The first columns of CSV; the others follow in the order of the table."""
T = TypeVar("T")


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
        """Return steps and means out of distribution at each seed's last saved states.

        The means are of the small grid of training, scored without an extrapolation, so a name with
        one has none.
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
        """Return the numbers for JSON."""
        panel, states = self.panel, self.last_states
        finals = ("final_answers", "final_answers_of") if panel.final_answers else ()
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
            **{key: getattr(panel, key) for key in finals},
            "converged": panel.convergence is None,
            "last_states_range": self.last_states_range,
        }


class Section(NamedTuple, Generic[T]):
    """Encodings that are ranked against each other."""

    title: str
    reason: str
    """Why these encodings are ranked apart; "" if they are not."""
    rows: Sequence[T]

    @property
    def heading(self) -> str:
        return f"{self.title}: {self.reason}" if self.reason else self.title


@dataclass(frozen=True)
class Ranking(ABC, Generic[T]):
    """Sections of rows with columns and notes, from which tables are made in every format."""

    sections: Sequence[Section[T]]
    left_out: Sequence[tuple[str, str]] = field(default=(), kw_only=True)
    """Runs that are not shown, and why."""
    labels: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """The names to print for encodings; one without a label is printed as it is typed."""

    @property
    @abstractmethod
    def heading(self) -> str: ...
    @property
    @abstractmethod
    def columns(self) -> list[Column[T]]: ...
    @abstractmethod
    def numbers(self) -> list[dict[str, object]]: ...
    @abstractmethod
    def notes(self, columns: Sequence[Column[T]] = ()) -> list[str]:
        """Return what a reader of these columns must know, in paragraphs; without any, of all."""

    @property
    def rows(self) -> list[T]:
        return [row for section in self.sections for row in section.rows]

    def label(self, name: str) -> str:
        return self.labels.get(name, name)


@dataclass(frozen=True)
class Board(Ranking[Row]):
    """A leaderboard: all scored encodings of a preset that may be compared."""

    references: Sequence[str]
    num_tests: int = 0
    """Number of different tests; a test between two references is on the rows of both."""
    num_encodings: int = 0
    """Number of encodings that were ranked and tested, shown or not."""
    contrasts: Sequence[Contrast] = ()
    """Comparisons that were asked for, tested among themselves."""
    costs: bool = False
    """Whether parameters and FLOPs were asked for."""

    @property
    def heading(self) -> str:
        return f"Leaderboard of {self.preset}"

    @property
    def panels(self) -> list[Panel]:
        return [row.panel for row in self.rows]

    @property
    def preset(self) -> str:
        return self.panels[0].preset

    @property
    def source(self) -> str:
        """Describe where the numbers come from."""
        return captions.source(self.panels, self.labels)

    def about(self) -> dict[str, Any]:
        """Return task, lengths, budget and evaluation, the same for all runs, for JSON."""
        first = self.panels[0].first
        return {
            "settings": next((panel.settings for panel in self.panels if panel.settings), {}),
            "trained_digits": first.trained_digits,
            "max_digits": first.max_digits,
            "axes": [asdict(axis) for axis in first.axes],
            "budget": first.budget.as_dict(),
            "evaluation": first.evaluation.as_dict(),
        }

    def labelled(self, own: Mapping[str, str] | None = None) -> "Board":
        """Return the leaderboard with names as papers write them, or as in `own`.

        Raises UsageError as `display_names` does.
        """
        return replace(self, labels=panel_labels(self.panels, own, *self.references))

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

        def each_seed(row: Row) -> Sequence[float]:
            return row.panel.seed_means(RANKED_BY)

        of_panel = panel_columns(self.panels, self.labels)
        pairs = ("one_longer", "both_longer")
        placed = ("encoding", "seeds", "interval", "out_of_distribution", *pairs, "converged")
        return [
            Column("section", value=lambda row: row.section),
            Column(
                "rank",
                "#",
                lambda row: str(row.rank or UNKNOWN),
                value=lambda row: row.rank,
                printed=True,
                importance=4,
            ),
            of_panel["encoding"],
            Column("kind", "kind", value=lambda row: row.kind, left=True),
            Column(
                "told_tested_length",
                "told",
                lambda row: UNKNOWN if row.told is None else "yes" if row.told else "no",
                value=lambda row: row.told,
                left=True,
                shown=any(row.told for row in self.rows),
                note="Told: the encoding is told the longest tested length, which its positions "
                "cover in training." * any(row.told for row in self.rows),
            ),
            of_panel["seeds"],
            of_panel["interval"],
            replace(of_panel["out_of_distribution"], best=lambda row: row.rank and -row.rank),
            Column(
                "each_seed",
                "each seed, %",
                lambda row: " ".join(f"{100 * mean:.1f}" for mean in each_seed(row)) or UNKNOWN,
                numbers=lambda row: {f"{RANKED_BY}_seeds": each_seed(row)},
            ),
            *(of_panel[key] for key in pairs if key in of_panel),
            *(column for key, column in of_panel.items() if key not in placed),
            *difference_columns(self.references, self.num_tests, self.labels),
            Column(
                "last_states",
                "last states",
                lambda row: format_median([row.last_states_range], "{:.1%}"),
                numbers=lambda row: {"last_states_range": row.last_states_range},
                legend="last states: the range of a run's last saved states, in points",
                note=self._time_note,
            ),
            Column(
                "training_min",
                "training, min",
                lambda row: format_median((s and s / 60 for s in row.train_seconds), "{:.1f}"),
                numbers=lambda row: {"train_seconds": row.train_seconds},
                note=self._time_note,
            ),
            *(cost_columns(self.rows) if self.costs else ()),
            of_panel["converged"],
        ]

    def numbers(self) -> list[dict[str, object]]:
        """Return each encoding's numbers by their keys in CSV, in order."""
        first = {key: place for place, key in enumerate(_FIRST_IN_FILES)}
        order = sorted(self.columns, key=lambda column: first.get(column.key, len(first)))
        return [numbers(order, row) for row in self.rows]

    # ---- notes -----------------------------------------------------------------------------

    def notes(self, columns: Sequence[Column[Row]] = ()) -> list[str]:
        return [
            captions.footnote(self.panels, self.labels, self.panels[0].regions),
            *self.explanations(columns),
            *captions.left_out(self.left_out),
        ]

    def explanations(self, columns: Sequence[Column[Row]] = ()) -> list[str]:
        """Return the notes on order, columns and tests."""
        paragraphs = [
            "The order is that of the mean out of distribution: where intervals overlap widely it "
            "says little, and of rows with one seed nothing is known beyond that run."
            + " Equal means share a rank."
            * self._has_ties,
            *notes_of(columns or self.columns),
            *filter(None, [contrasts_note(self.contrasts, self.labels), power_note(self.panels)]),
        ]
        if len(self.rows) < self.num_encodings:
            paragraphs.append(
                f"{len(self.rows)} of the {self.num_encodings} encodings are shown; ranks and "
                f"tests are of all {self.num_encodings}."
            )
        return paragraphs

    @property
    def _has_ties(self) -> bool:
        ranks = [(row.section, row.rank) for row in self.rows if row.rank]
        return len(set(ranks)) < len(ranks)

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
