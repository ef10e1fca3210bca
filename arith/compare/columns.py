"""Define the columns of a table: what each shows in each format, and the notes on it."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pandas as pd

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.lengths import of_length, unit
from tape_arith.arith.errors import unknown
from tape_arith.arith.grids.axes import REGION_WORDS, REGIONS, Region, length_axes
from tape_arith.arith.grids.panel import SOLVED, Panel
from tape_arith.arith.grids.statistics import student_t

T = TypeVar("T")
UNKNOWN, NOT_MEASURED = "-", "not measured"
"""The texts for unknown values."""
_LONGER = (1, 2)
"""By how many digits problems are longer than trained that have columns of their own."""
OVER_PROBLEMS = "(± over problems)"
_IMPORTANCE: Mapping[Region, int] = {
    "out_of_distribution": 2,
    "in_distribution": 14,
    "one_longer": 15,
    "both_longer": 16,
}


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column over rows of type T: texts for people, numbers for programs."""

    key: str
    """The name by which a user chooses it."""
    head: str = ""
    """The text above the column; "" if only programs read it."""
    write: Callable[[T], str] | None = None
    """Returns the text of a row; None: the text of `value`."""
    value: Callable[[T], object] | None = None
    """Returns the number of a row in CSV, where its key is that of the column."""
    numbers: Callable[[T], Mapping[str, object]] | None = None
    """Returns the numbers of a row in CSV, if they have keys of their own."""
    left: bool = False
    """Whether its texts are aligned left."""
    shown: bool = True
    """Whether a table has it if the user chooses no columns."""
    printed: bool = False
    """Whether a table for a paper has it too."""
    best: Callable[[T], float | None] | None = None
    """Returns the number of a row of which the highest is the best."""
    importance: int = 99
    """A narrow terminal shows the columns of the lowest importance numbers."""
    signs: str = ""
    """The meaning of the signs in its cells; columns with the same text share one sentence."""
    legend: str = ""
    """A short explanation, for where there is little room."""
    note: str = ""
    """An explanation in a paragraph; columns may share one."""

    def text(self, row: T) -> str:
        """Return the text of a row in a table for people."""
        return self.write(row) if self.write else str(self.value and self.value(row))

    def best_of(self, rows: Sequence[T]) -> list[int]:
        """Return the places of the best of several rows; of one row none is."""
        values = {n: self.best(row) for n, row in enumerate(rows)} if self.best else {}
        known = [value for value in values.values() if value is not None]
        return [n for n, value in values.items() if len(known) > 1 and value == max(known)]

    def entries(self, row: T) -> Mapping[str, object]:
        """Return the numbers of a row by their keys in CSV."""
        if self.numbers is not None:
            return self.numbers(row)
        return {} if self.value is None else {self.key: self.value(row)}


def texts(columns: Iterable[Column[T]], rows: Iterable[T]) -> pd.DataFrame:
    """Return a table for people: a head for each column, a line for each of `rows`."""
    columns = [column for column in columns if column.head]
    cells = [[column.text(row) for column in columns] for row in rows]
    return pd.DataFrame(cells, columns=[column.head for column in columns])


def numbers(columns: Iterable[Column[T]], row: T) -> dict[str, object]:
    """Return a row of a table for programs: shares in 0..1, times in seconds."""
    return {key: value for column in columns for key, value in column.entries(row).items()}


def choose(columns: Iterable[Column[T]], keys: Iterable[str]) -> list[Column[T]]:
    """Return the columns for people with these keys; without keys, those that are shown.

    Raises UsageError for an unknown key.
    """
    columns = [column for column in columns if column.head]
    by_key = {column.key: column for column in columns}
    chosen = [by_key[key] for key in chosen_keys(keys, by_key)]
    return chosen or [column for column in columns if column.shown]


def chosen_keys(keys: Iterable[str], known: Collection[str]) -> list[str]:
    """Return each of `keys` once, as `column_key`. Raises UsageError for an unknown one."""
    chosen = list(dict.fromkeys(map(column_key, keys)))
    if wrong := [key for key in chosen if key not in known]:
        raise unknown("column", wrong[0], known)
    return chosen


def column_key(text: object) -> str:
    """Return the key that a user means.

    >>> column_key("Out of distribution"), column_key("tokens/s")
    ('out_of_distribution', 'tokens_s')
    """
    return re.sub(r"\W+", "_", str(text).lower()).strip("_")


def with_something_known(columns: Iterable[Column[T]], rows: Sequence[T]) -> list[Column[T]]:
    """Return the columns with at least one known text."""
    return [
        column
        for column in columns
        if any(column.text(row) not in (UNKNOWN, NOT_MEASURED) for row in rows)
    ]


def notes_of(columns: Iterable[Column[T]]) -> list[str]:
    """Return the paragraphs about columns, each once."""
    return list(dict.fromkeys(column.note for column in columns if column.note))


# ---- columns over rows that have a panel -------------------------------------------------------


def panel_columns(
    panels: Sequence[Panel], labels: Mapping[str, str] = {}
) -> dict[str, Column[Any]]:
    """Return the columns by key, in the order of files; each row has its panel as `panel`.

    A column that only some panels have a value for is included.

    labels  the names to print for encodings
    """
    regions = [region for region in REGIONS if any(region in panel.regions for panel in panels)]
    decoded = max(panel.final_answers_of for panel in panels)
    columns: list[Column[Any]] = [
        Column(
            "encoding",
            "encoding",
            lambda row: labels.get(row.panel.name, row.panel.name),
            value=lambda row: row.panel.name,
            left=True,
            printed=True,
            importance=1,
        ),
        Column(
            "seeds",
            "seeds",
            lambda row: f"{len(row.panel.seeds)}" + f" {OVER_PROBLEMS}" * _is_one_run(row),
            value=lambda row: row.panel.seeds,
            printed=True,
            importance=5,
        ),
        Column(
            "converged",
            "converged",
            value=lambda row: row.panel.convergence or "yes",
            left=True,
            shown=any(panel.convergence for panel in panels),
            printed=True,
        ),
        Column("interval", value=lambda row: "problems" if _is_one_run(row) else "seeds"),
        *map(_region, regions),
        *[_final_answer(decoded)] * bool(decoded),
        *(_longer(more, panels[0]) for more in _LONGER),
        _of_seeds(
            "right_tokens",
            "right tokens, %",
            lambda row: row.panel.right_tokens,
            importance=21,
            note="Right tokens: the share of right answer tokens out of distribution, each after "
            "the right ones before it; unlike exact match it is not scored again near a tie.",
        ),
        *(_solved_to(share, panels[0]) for share in SOLVED),
    ]
    return {column.key: column for column in columns}


def _is_one_run(row: Any) -> bool:
    """Tell whether intervals of a row are over problems, for want of seeds."""
    return len(row.panel.seeds) == 1


def _region(region: Region) -> Column[Any]:
    def entries(row: Any) -> dict[str, object]:
        if region not in row.panel.regions:
            return {}
        interval, seeds = row.panel.interval(region), row.panel.seed_means(region)
        parts = {"": "mean", "_half_width": "half_width", "_low": "low", "_high": "high"}
        numbers = {region + end: getattr(interval, part, None) for end, part in parts.items()}
        return {**numbers, f"{region}_seeds": seeds}

    def text(row: Any) -> str:
        has = region in row.panel.regions
        return captions.percent_of(row.panel, region) if has else UNKNOWN

    return Column(
        region,
        f"{REGION_WORDS[region]}, %",
        text,
        numbers=entries,
        printed=region in ("out_of_distribution", "in_distribution"),
        importance=_IMPORTANCE.get(region, Column.importance),
    )


def _final_answer(decoded: int) -> Column[Any]:
    def entries(row: Any) -> dict[str, object]:
        answers, count = row.panel.final_answers, row.panel.final_answers_of
        return {"final_answer_seeds": answers, "final_answer_problems": count} if answers else {}

    return Column(
        "final_answer",
        "final answer, %",
        lambda row: _percent(row.panel.final_answers),
        numbers=entries,
        printed=True,
        importance=3,
        note="Final answer: the share of right final answers out of distribution, whatever the "
        f"steps of the scratchpad before them, of the first {decoded} problems there, decoded "
        "greedily. All other columns count an answer as exact only with all its steps.",
    )


def _longer(more: int, panel: Panel) -> Column[Any]:
    length = panel.first.trained_digits + more

    def values(row: Any) -> tuple[float, ...]:
        own: Panel = row.panel
        # Rows of other tasks have lengths of their own.
        return own.seeds_by_length().get(own.first.trained_digits + more, ())

    counted = next(unit(axis) for axis in panel.axes if axis.counts == "digits")
    longer = "the longer operand has" if len(length_axes(panel.axes)) > 1 else "the problem has"
    return _of_seeds(
        f"longer_by_{more}",
        f"{length} {counted}, %",
        values,
        importance=18 + more,
        note=f"{length} {counted}: exact match where {longer} {length}, {more} more than trained.",
    )


def _of_seeds(
    key: str, head: str, values: Callable[[Any], Sequence[float]], **more: Any
) -> Column[Any]:
    """Return a column of a share of each seed."""
    return Column(
        key,
        head,
        lambda row: _percent(values(row)),
        numbers=lambda row: {f"{key}_seeds": values(row)},
        **more,
    )


def _percent(values: Sequence[float]) -> str:
    """Format a mean over seeds with its interval; that of one seed alone has none."""
    if interval := student_t(values):
        return captions.percent(interval, values)
    return f"{100 * values[0]:.1f}" if values else UNKNOWN


def _solved_to(share: float, panel: Panel) -> Column[Any]:
    key, shares = f"solved_to_{100 * share:g}", ", ".join(f"{100 * each:g} %" for each in SOLVED)
    over = "cells and seeds" if len(panel.axes) > 1 else "seeds"
    return Column(
        key,
        f"longest solved, {100 * share:g} %",
        lambda row: str(row.panel.solved_to(share)),
        numbers=lambda row: {key: row.panel.solved_to(share)},
        printed=share == SOLVED[0],
        importance=13 if share == SOLVED[0] else 17,
        legend="longest solved: the largest length up to which that share of problems is exact",
        note=f"Longest solved, at {shares}: the largest length L such that of the problems "
        f"{of_length(panel.axes, 'l')} that share is exact, for each l up to L (mean over "
        f"{over}; {panel.first.max_digits} is the longest tested).",
    )
