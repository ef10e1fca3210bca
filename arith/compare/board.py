"""The leaderboard: its rows, its columns and the notes below it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any, Generic, NamedTuple, TypeVar

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.columns import (
    LONGER,
    NOT_MEASURED,
    UNKNOWN,
    Column,
    longer_key,
    notes_of,
    numbers,
    panel_columns,
    solved_key,
)
from tape_arith.arith.compare.effects import (
    DOWN,
    LEVEL,
    UP,
    Contrast,
    Effect,
    contrasts_note,
    power_note,
)
from tape_arith.arith.compare.labels import panel_labels
from tape_arith.arith.compare.row import Row
from tape_arith.arith.grids.panel import SOLVED, Panel

_FIRST_IN_FILES = (
    *("section", "rank", "kind", "encoding", "seeds"),
    *("converged", "interval", "in_distribution"),
)
"""The first columns of CSV; the others follow in the order of the table."""
T = TypeVar("T")


class Section(NamedTuple, Generic[T]):
    """Encodings that are ranked against each other."""

    title: str
    reason: str
    """Why these encodings are ranked apart; "" if they are not."""
    rows: Sequence[T]

    @property
    def heading(self) -> str:
        """Return the title, with the reason if there is one."""
        return f"{self.title}: {self.reason}" if self.reason else self.title


@dataclass(frozen=True)
class Board:
    """A leaderboard: all scored encodings of a preset that may be compared."""

    sections: Sequence[Section[Row]]
    references: Sequence[str]
    left_out: Sequence[tuple[str, str]] = ()
    """Runs that are not shown, and why."""
    num_tests: int = 0
    """Number of different tests; a test between two references is on the rows of both."""
    num_encodings: int = 0
    """Number of encodings that were ranked and tested, shown or not."""
    contrasts: Sequence[Contrast] = ()
    """Comparisons that were planned, tested among themselves."""
    costs: bool = False
    """Whether parameters and FLOPs were asked for."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The names to print for encodings; one without a label is printed as it is typed."""

    @property
    def rows(self) -> list[Row]:
        """Return the rows of all sections, in order."""
        return [row for section in self.sections for row in section.rows]

    @property
    def panels(self) -> list[Panel]:
        """Return the panels of all rows, in order."""
        return [row.panel for row in self.rows]

    @property
    def preset(self) -> str:
        return self.panels[0].preset

    @property
    def source(self) -> str:
        """Describe where the numbers come from."""
        return captions.source(self.panels, self.labels)

    @property
    def caption(self) -> str:
        """`source`, followed by what means and intervals are taken over."""
        return captions.footnote(self.panels, self.labels, self.panels[0].regions)

    def about(self) -> dict[str, Any]:
        """Return task, lengths, budget and evaluation, the same for all runs, for JSON."""
        first = self.panels[0].first
        return {
            "settings": next((panel.settings for panel in self.panels if panel.settings), {}),
            "trained_digits": first.trained_digits,
            "max_digits": first.max_digits,
            "axes": [axis._asdict() for axis in first.axes],
            "budget": first.budget.as_dict(),
            "evaluation": first.evaluation.as_dict(),
        }

    def labelled(self, own: Mapping[str, str] | None = None) -> "Board":
        """Return the leaderboard with names as papers write them, or as in `own`.

        Raises UsageError as `display_names` does.
        """
        return replace(self, labels=panel_labels(self.panels, own, *self.references))

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
        of_panel = panel_columns(self.panels, self.labels)
        middle = ["one_longer", "both_longer", "in_distribution", "all_cells", "final_answer"]
        middle += [*(longer_key(more) for more in LONGER), "right_tokens"]
        middle += [solved_key(share) for share in SOLVED]
        return [
            Column("section", numbers=lambda row: {"section": row.section}),
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
            of_panel["out_of_distribution"],
            Column("each_seed", "each seed, %", _each_seed),
            *(of_panel[key] for key in middle if key in of_panel),
            *map(self._difference, self.references),
            self._from_best,
            Column(
                "last_states",
                "last states",
                lambda row: _median([row.last_states_range], "{:.1%}"),
                value=lambda row: row.last_states_range,
                name="last_states_range",
                legend="last states: the range of a run's last saved states, in points",
                note=self._time_note,
            ),
            Column(
                "training_min",
                "training, min",
                lambda row: _median((s and s / 60 for s in row.train_seconds), "{:.1f}"),
                value=lambda row: row.train_seconds,
                name="train_seconds",
                note=self._time_note,
            ),
            *(self._costs if self.costs else ()),
            of_panel["converged"],
        ]

    def _difference(self, reference: str) -> Column[Row]:
        arrows = f"{UP} better and {DOWN} worse at {100 * LEVEL:g} %"
        names = ", ".join(f"vs {self.label(name)}" for name in self.references)
        note = (
            f"{names}: the difference of the means out of distribution in points, with its 95 % "
            f"interval (Welch). {arrows}: Welch's t test over seeds, two-sided, after Holm over "
            f"the {self.num_tests} tests of trained encodings against "
            f"{' and '.join(map(self.label, self.references))}. A dash: the row is the reference, "
            "the reference is not scored, one of the two has one seed or is not ranked, both are "
            "the same training runs, or neither varies between seeds. --csv has p and the "
            "difference paired by seed."
        )
        impossible = f"{names}: no test was possible; --csv says why, encoding by encoding."
        return Column(
            f"vs_{reference}",
            f"vs {self.label(reference)}",
            lambda row: str(row.effects[reference]),
            numbers=lambda row: _difference_numbers(reference, row.effects[reference]),
            printed=True,
            importance=12,
            signs="difference in points ± its 95 % interval, by Welch's t test over seeds after "
            f"Holm over {self.num_tests} tests {arrows}",
            note=note if self.num_tests else impossible,
        )

    @property
    def _from_best(self) -> Column[Row]:
        return Column(
            "vs_best",
            "vs best",
            lambda row: str(row.from_best),
            numbers=lambda row: _difference_numbers("best", row.from_best, tested=False),
            importance=18,
            note="Vs best: the same difference from the first of the section with two seeds, "
            "which the results themselves chose, so that it is not tested.",
        )

    @property
    def _costs(self) -> list[Column[Row]]:
        def of_training(key: str, head: str, form: str, fact: str, **more: Any) -> Column[Row]:
            def values(row: Row) -> list[Any]:
                return [getattr(training, fact) for training in row.trainings]

            return Column(
                key,
                head,
                lambda row: _median(values(row), form),
                numbers=lambda row: {fact: values(row)},
                **more,
            )

        def machines(row: Row) -> str:
            return ", ".join(sorted({t.machine for t in row.trainings if t.machine})) or UNKNOWN

        columns: list[Column[Row]] = [
            Column(
                "parameters",
                "parameters",
                lambda row: _median([row.parameters], "{:,.0f}", UNKNOWN),
                value=lambda row: row.parameters,
                printed=True,
                importance=6,
                legend="parameters: those of the encoding",
            ),
            Column(
                "flops_a_token",
                "FLOPs a token",
                lambda row: _median([row.flops_a_token], "{:,.0f}", UNKNOWN),
                numbers=lambda row: {"flops": row.flops_a_token},
                printed=True,
                importance=7,
                legend="FLOPs: those that the encoding adds to a forward",
            ),
            of_training("loss", "loss", "{:.4f}", "loss", printed=True, importance=8),
            of_training(
                "tokens_s", "tokens/s", "{:,.0f}", "tokens_per_second", printed=True, importance=9
            ),
            of_training("mfu", "MFU, %", "{:.1%}", "mfu", importance=10),
            of_training("machine", "", "", "machine"),
        ]
        if len(self.machines) > 1:
            columns.insert(0, Column("trained_on", "trained on", machines))
        return [replace(column, note=self._costs_note) for column in columns]

    @property
    def machines(self) -> set[str]:
        """The product names of the GPUs and CPUs that trained the rows; empty without costs."""
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
            "says little, and of rows with one seed nothing is known beyond that run."
            + " Equal means share a rank."
            * self._has_ties,
            *notes_of(self.columns),
            *filter(None, [contrasts_note(self.contrasts, self.labels), power_note(self.panels)]),
        ]
        if len(self.rows) < self.num_encodings:
            paragraphs.append(
                f"{len(self.rows)} of the {self.num_encodings} encodings are shown; ranks and "
                f"tests are of all {self.num_encodings}."
            )
        return [*paragraphs, *captions.left_out(self.left_out)]

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


def _difference_numbers(other: str, effect: Effect, *, tested: bool = True) -> dict[str, object]:
    """Return the numbers of a difference from `other` for CSV."""
    test, pairs = effect.welch, effect.paired
    numbers: dict[str, object] = {
        f"difference_from_{other}": test and test.difference,
        f"difference_from_{other}_half_width": test and test.half_width,
        f"paired_difference_from_{other}": pairs and pairs.difference,
        f"paired_difference_from_{other}_half_width": pairs and pairs.half_width,
    }
    if tested:
        numbers[f"p_{other}"] = test and test.p
        numbers[f"p_holm_{other}"] = effect.p_holm
        numbers[f"no_test_{other}"] = effect.why_not
    return numbers


def _each_seed(row: Row) -> str:
    means = row.panel.seed_means("out_of_distribution")
    return " ".join(f"{100 * mean:.1f}" for mean in means) or UNKNOWN


def _median(values: Iterable[float | None], form: str, unknown: str = NOT_MEASURED) -> str:
    """Format the median of the known values; return `unknown` if there are none."""
    known = [value for value in values if value is not None]
    return form.format(median(known)).rstrip("%") if known else unknown
