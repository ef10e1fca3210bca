"""The leaderboard as rows of text: its sections, its columns and the notes below it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Generic, NamedTuple, TypeVar

import pandas as pd

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.lengths import of_length
from tape_arith.arith.compare.rows import LEVEL, Row, Training, flat
from tape_arith.arith.errors import unknown
from tape_arith.arith.grids.axes import Axes
from tape_arith.arith.grids.panel import SOLVED
from tape_arith.arith.grids.statistics import student_t

_NOT_MEASURED = "not measured"
T = TypeVar("T")


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
            section._replace(rows=[row for row in section.rows if row.encoding in names])
            for section in self.sections
        ]
        return replace(self, sections=[section for section in sections if section.rows])

    def texts(self, columns: Sequence[str] = ()) -> pd.DataFrame:
        """Return the table for people: a row per encoding, indexed by its name.

        `columns` are keys (`column_key`). Raises UsageError for an unknown one.
        """
        table = pd.DataFrame(map(self._texts, self.rows), [row.encoding for row in self.rows])
        if columns:
            return table[chosen_heads(columns, table)]
        return table if any(row.mark for row in self.rows) else table.drop(columns="converged")

    def labelled(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table of `texts` with the names to print, in its rows and its heads."""
        if "encoding" in table:
            table = table.assign(encoding=table.encoding.map(self.label))
        return table.rename(
            columns={f"vs {one}": f"vs {self.label(one)}" for one in self.references}
        )

    def numbers(self) -> list[dict[str, object]]:
        """Return each encoding's numbers by column, in order; shares in 0..1, times in seconds."""
        lines = []
        for title, _, rows in self.sections:
            for row in rows:
                line: dict[str, object] = {
                    "section": title,
                    "rank": row.rank,
                    "kind": row.kind,
                    **flat(row),
                }
                for name, test in row.tests.items():
                    line[f"difference_from_{name}"] = test.welch and test.welch.difference
                    line[f"p_{name}"] = test.welch and test.welch.p
                    line[f"p_holm_{name}"] = test.p_holm
                    line[f"no_test_{name}"] = test.why_not
                line["last_states_range"] = row.last_states_range
                line["train_seconds"] = row.train_seconds
                if self.costs:
                    line |= {"parameters": row.parameters, "flops": row.flops_a_token}
                    line |= zip(Training._fields, zip(*row.trainings, strict=True), strict=True)
                lines.append(line)
        return lines

    def _texts(self, row: Row) -> dict[str, str]:
        outside = [f"{100 * value:.1f}" for value in row.values["out_of_distribution"]]
        minutes = [seconds / 60 for seconds in row.train_seconds if seconds is not None]
        texts = {
            "#": str(row.rank or "-"),
            "encoding": row.encoding,
            "kind": row.kind,
            "seeds": row.seed_count,
            **row.texts("out_of_distribution"),
            "each seed, %": " ".join(outside) or "-",
            **row.texts("one_longer", "both_longer", "in_distribution", "all_cells"),
            **self._final_answer(row),
            **{f"solved to, {100 * share:g} %": str(n) for share, n in row.solved_to.items()},
            **{f"vs {name}": str(row.tests[name]) for name in self.references},
            "last states": _median([row.last_states_range], "{:.1%}"),
            "training, min": _median(minutes, "{:.1f}"),
        }
        if self.costs:
            losses, rates, mfus, machines = zip(*row.trainings, strict=True)
            if len(self.machines) > 1:
                texts["trained on"] = ", ".join(sorted(set(filter(None, machines)))) or "-"
            texts |= {
                "parameters": _median([row.parameters], "{:,.0f}", "-"),
                "FLOPs a token": _median([row.flops_a_token], "{:,.0f}", "-"),
                "loss": _median(losses, "{:.4f}"),
                "tokens/s": _median(rates, "{:,.0f}"),
                "MFU, %": _median(mfus, "{:.1%}"),
            }
        return texts | {"converged": row.mark or "yes"}

    def _final_answer(self, row: Row) -> dict[str, str]:
        if not any(each.final_answers for each in self.rows):
            return {}
        interval = student_t(row.final_answers)
        mean = f"{100 * row.final_answers[0]:.1f}" if row.final_answers else "-"
        text = captions.percent(interval, row.final_answers) if interval else mean
        return {"final answer, %": text}

    @property
    def machines(self) -> set[str]:
        """The product names of the GPUs and CPUs that trained the rows; known with costs alone."""
        return {each.machine for row in self.rows for each in row.trainings if each.machine}

    def notes(self) -> list[str]:
        """Return what a reader must know, in paragraphs."""
        shares = " and ".join(f"{share * 100:g} %" for share in SOLVED)
        tests = ", ".join(f"vs {self.label(name)}" for name in self.references)
        over = "cells and seeds" if len(self.axes) > 1 else "seeds"
        notes = [
            self.caption,
            "The order is that of the mean out of distribution: where intervals overlap widely it "
            "says little, and of rows with one seed nothing is known beyond that run.",
            f"Solved to, at {shares}: the largest length L such that of the problems "
            f"{of_length(self.axes, 'l')} that share is exact, for each l up to L (mean over "
            f"{over}; {self.about['max_digits']} is the longest tested).",
            f"{tests}: Welch's t test of the means out of distribution, over seeds, "
            f"two-sided; p after Holm over the {self.num_tests} tests made here, "
            f"\N{UPWARDS ARROW} better and \N{DOWNWARDS ARROW} worse at {LEVEL * 100:g} %. A dash: "
            "no test. The row is the reference, the reference is not scored, one of the two has "
            "one seed or is not ranked, both are the same training runs, or neither varies between "
            "seeds."
            if self.num_tests
            else f"{tests}: no test was possible; --csv says why, encoding by encoding.",
        ]
        steps = sorted({step for row in self.rows for states in row.last_steps for step in states})
        span = f", of steps {steps[0]:,} to {steps[-1]:,}" if steps else ""
        notes.append(
            "Last states: out of distribution on the small grid of training, highest minus "
            f"lowest of a run's last saved states (five at most{span}, what it learns "
            "meanwhile included), in percentage points, mean over seeds. "
            "Training: median over seeds of the time it took where it ran."
        )
        if self.costs:
            notes.append(
                "Parameters are the encoding's own; FLOPs are those of the matrix products that it "
                "adds to a forward, a token, over the longest trained sequence at this size. Loss: "
                "in the last steps of training, nats a scored token; tokens/s: real tokens over "
                "the whole of it; MFU: the FLOPs that it needed (no padding, half of attention) "
                "over its time, of the bfloat16 rate in the datasheet of the part, where there is "
                "one; each the median over seeds."
                f"{' Times of different machines do not compare.' * (len(self.machines) > 1)}"
            )
        if decoded := max((row.final_answers_of for row in self.rows), default=0):
            notes.append(
                "Final answer: the share of right final answers out of distribution, whatever the "
                f"steps of the scratchpad before them, of the first {decoded} problems there, "
                "decoded greedily. All other columns count an answer as exact only with all its "
                "steps."
            )
        if len(self.rows) < self.num_encodings:
            notes.append(
                f"{len(self.rows)} of the {self.num_encodings} encodings are shown; ranks and "
                f"tests are of all {self.num_encodings}."
            )
        return [*notes, *captions.left_out(self.left_out)]


def column_key(head: object) -> str:
    """Return the key by which a user chooses the column under a head.

    >>> column_key("#"), column_key("out of distribution, %"), column_key("solved to, 90 %")
    ('rank', 'out_of_distribution', 'solved_to_90')
    """
    return re.sub(r"\W+", "_", str(head).lower()).strip("_") or "rank"


def chosen_heads(columns: Iterable[str], heads: Iterable[object]) -> list[str]:
    """Return the heads of the keys `columns`, each once. Raises UsageError for an unknown key."""
    by_key = {column_key(head): str(head) for head in heads}
    chosen = dict.fromkeys(map(column_key, columns))
    if wrong := [column for column in chosen if column not in by_key]:
        raise unknown("column", wrong[0], by_key)
    return [by_key[column] for column in chosen]


def known_columns(table: pd.DataFrame) -> list[str]:
    """Return the heads of the columns with at least one known value."""
    return list(table.columns[~table.isin(["-", _NOT_MEASURED]).all()])


def _median(values: Iterable[float | None], form: str, unknown: str = _NOT_MEASURED) -> str:
    """Format the median of the known values; return `unknown` if there are none."""
    known = [value for value in values if value is not None]
    return form.format(median(known)).rstrip("%") if known else unknown
