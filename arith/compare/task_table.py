"""Encodings by tasks: a mean out of distribution for each, and mean ranks, in every format."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.board import Ranking, Row
from tape_arith.arith.compare.captions import NBSP, ONE_SEED, percent_of
from tape_arith.arith.compare.columns import (
    UNKNOWN,
    Column,
    choose,
    column_key,
    numbers,
    panel_columns,
)
from tape_arith.arith.compare.latex import floating
from tape_arith.arith.compare.leaderboard import ACROSS_TASKS
from tape_arith.arith.compare.tables import json_text, to_csv, to_markdown
from tape_arith.arith.grids.axes import Region
from tape_arith.arith.grids.panel import Panel

_SHOWN: Region = "out_of_distribution"
_NOT_CONVERGED = (
    f"*: not converged (below 99{NBSP}% in distribution in a seed or more) or not known to be; "
    "ranked all the same."
)
_SEED_NOTE = f"{ONE_SEED}: one seed, ± over problems, not over seeds."
_ORDER = (
    "Mean rank: by mean out of distribution among the encodings of its section here, those told "
    "the tested length among the task-agnostic; equal means share a rank. It compares best what is "
    "scored in the same tasks; what is scored in fewer than half of them stands last."
)
_FEWEST_LEADING = 4
"""Fewest encodings whose order is compared."""
_COUNTS = "In brackets: the number of tasks that a mean rank is over."


class TaskRuns(NamedTuple):
    """A task: runs of one preset, one budget and one evaluation set."""

    task: str
    preset: str
    recipe: str
    """The preset with the settings that differ from it (`captions.recipe`)."""
    lengths: str
    """ "trained to 8 digits and tested to 16" """
    source: str
    """A description of where the numbers come from (`captions.source`)."""
    guess: str
    """How often a guess is right, in words, if that does not fall with length."""
    uncounted: str = ""
    """Why the task is not in mean ranks; "" if it is."""
    seen: str = ""
    """The share of problems in distribution that training has seen, in words, if it is known."""


class Line(NamedTuple):
    """An encoding and its numbers in each task."""

    encoding: str
    cells: Mapping[str, Panel]
    """By task, where it is scored."""
    ranks: Mapping[str, float]
    """By task, whether it converged or not; equal means share the mean of their ranks."""
    counted: Collection[str]
    """The tasks that are in mean ranks."""

    @property
    def counted_ranks(self) -> list[float]:
        return [rank for task, rank in self.ranks.items() if task in self.counted]

    @property
    def mean_rank(self) -> float | None:
        """Return the mean over the tasks that count and in which the encoding is scored."""
        ranks = self.counted_ranks
        return sum(ranks) / len(ranks) if ranks else None


class RankCorrelation(NamedTuple):
    """How far the order of encodings in a task is that in the first task: Spearman's rho.

    leading  over the half that leads in the first task, which tells whether the order says more
             than who is at the floor
    """

    task: str
    all: float
    encodings: int
    leading: float
    leading_encodings: int


@dataclass(frozen=True)
class TaskTable(Ranking[Line]):
    """Encodings by tasks."""

    heading = "Leaderboard across tasks"

    runs: Sequence[TaskRuns]

    @property
    def tasks(self) -> list[str]:
        return [runs.task for runs in self.runs]

    @property
    def panels(self) -> list[Panel]:
        return [panel for line in self.rows for panel in line.cells.values()]

    @property
    def has_unranked(self) -> bool:
        return any(panel.convergence for panel in self.panels)

    @property
    def has_one_seed(self) -> bool:
        return any(len(panel.seeds) == 1 for panel in self.panels)

    @property
    def columns(self) -> list[Column[Line]]:
        """Return the columns for people: one per task, and the mean rank."""

        def of_task(task: str) -> Column[Line]:
            def text(line: Line) -> str:
                panel = line.cells.get(task)
                return UNKNOWN if panel is None else percent_of(panel, _SHOWN) + signs(panel)

            return Column(column_key(task), f"{task}, %", text)

        return [
            Column("encoding", "encoding", lambda line: self.label(line.encoding), left=True),
            *map(of_task, self.tasks),
            Column("mean_rank", "mean rank", lambda line: self.rank_text(line, 2)),
        ]

    def rank_text(self, line: Line, places: int) -> str:
        """Return "2.40", or "2.40 (5)" with the number of tasks if it is not ranked in all."""
        if line.mean_rank is None:
            return "-"
        ranked = len(line.counted_ranks)
        count = f" ({ranked})" * (ranked < len(line.counted))
        return f"{line.mean_rank:.{places}f}{count}"

    @property
    def has_counts(self) -> bool:
        """Tell whether an encoding is ranked in some of the tasks that count but not in all."""
        return any(0 < len(line.counted_ranks) < len(line.counted) for line in self.rows)

    def numbers(self) -> list[dict[str, object]]:
        """Return a row for each encoding and task, in order; shares are in 0..1."""
        columns = panel_columns(self.panels)
        for region in ("one_longer", "both_longer"):  # not of all tasks
            columns.pop(region, None)
        return [
            {
                "section": section.title,
                "task": runs.task,
                "preset": runs.preset,
                "rank": line.ranks.get(runs.task),
                "mean_rank": line.mean_rank,
                "ranked_in": len(line.counted_ranks),
                **numbers(columns.values(), Row(line.cells[runs.task])),
            }
            for section in self.sections
            for line in section.rows
            for runs in self.runs
            if runs.task in line.cells
        ]

    @property
    def uncounted(self) -> str:
        """Name the tasks that are not in mean ranks, and say why; "" if all are."""
        reasons: dict[str, list[str]] = {}
        for runs in self.runs:
            reasons.setdefault(runs.uncounted, []).append(runs.task)
        parts = [f"{', '.join(tasks)} ({reason})" for reason, tasks in reasons.items() if reason]
        return f"Not in the mean rank: {'; '.join(parts)}." if parts else ""

    @property
    def rank_correlations(self) -> list[RankCorrelation]:
        """Correlate each task that counts with the first one, if that counts.

        Over the encodings without a prior of the task, as far as they are scored in both.
        """
        first, *later_tasks = self.tasks
        lines = [
            line
            for section in self.sections
            if section.title in ACROSS_TASKS
            for line in section.rows
            if first in line.ranks
        ]
        result = []
        for task in later_tasks:
            pairs = sorted(
                (line.ranks[first], line.ranks[task])
                for line in lines
                if task in line.ranks and {first, task} <= set(line.counted)
            )
            leading = pairs[: (len(pairs) + 1) // 2]
            if len(leading) >= _FEWEST_LEADING:
                rho, leading_rho = map(_spearman, (pairs, leading))
                if not (isnan(rho) or isnan(leading_rho)):  # all alike
                    result.append(RankCorrelation(task, rho, len(pairs), leading_rho, len(leading)))
        return result

    def _correlation_note(self) -> str:
        """Return the rank correlations in two sentences; "" if there are none."""
        correlations = self.rank_correlations
        if not correlations:
            return ""
        values = [
            f"{each.task} {captions.signed(each.all, 2)} ({captions.signed(each.leading, 2)})"
            for each in correlations
        ]
        counts = {f"{each.encodings} ({each.leading_encodings})" for each in correlations}
        return (
            f"Rank correlation (Spearman) with the order in {self.tasks[0]}, over the encodings "
            "that are not task-structured, and in brackets over the half of them that leads there: "
            f"{', '.join(values)}. Numbers of encodings: {', '.join(sorted(counts))}."
        )

    def notes(self, columns: Sequence[Column[Line]] = ()) -> list[str]:
        keys = [column.key for column in columns or self.columns]
        ranked = "mean_rank" in keys
        ranges = captions.RANGES * captions.has_ranges(self.panels, [_SHOWN])
        signs = [
            *[_ORDER, self.uncounted, _COUNTS * self.has_counts] * ranked,
            _NOT_CONVERGED * self.has_unranked,
            _SEED_NOTE * self.has_one_seed,
        ]
        paragraphs = [
            f"Exact match out of distribution in percent, mean ± 95{NBSP}% interval over seeds "
            f"(Student{NBSP}t). {ranges}".rstrip(),
            " ".join(filter(None, signs)),
            self._correlation_note() * ranked,
            *(runs.source for runs in self.runs if ranked or column_key(runs.task) in keys),
            *captions.left_out(self.left_out),
        ]
        return [paragraph for paragraph in paragraphs if paragraph]


def _spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Compute Spearman's rank correlation, not a number if one side is all alike.

    >>> _spearman([(1, 10), (2, 30), (3, 20)])
    0.5
    """
    ranks = pd.DataFrame(pairs).rank().to_numpy()
    with np.errstate(invalid="ignore"):
        return float(np.corrcoef(ranks.T)[0, 1])


def signs(panel: Panel) -> str:
    """Return the signs behind a mean: for one seed, for not converged."""
    return ONE_SEED * (len(panel.seeds) == 1) + "*" * (panel.convergence is not None)


def _to_latex(
    table: TaskTable, columns: Sequence[str] = (), *, captioned: bool = True, label: str = ""
) -> str:
    """Format a floating table, with the notes as its caption."""
    shown = choose(table.columns, columns)
    caption = " ".join(table.notes(shown))
    return floating(table.sections, shown, caption, label or "tasks", captioned=captioned)


def _to_json(table: TaskTable, columns: Sequence[str] = ()) -> str:
    """Format everything as JSON: `schema` counts changes of its keys."""
    content: dict[str, Any] = {
        "schema": 1,
        "kind": "leaderboard across tasks",
        "tasks": [runs._asdict() for runs in table.runs],
        "rows": table.numbers(),
        "rank_correlations": [each._asdict() for each in table.rank_correlations],
        "left_out": [{"runs": runs, "why": reason} for runs, reason in table.left_out],
        "notes": table.notes(),
    }
    return json_text(content, columns)


FORMATS: Mapping[str, Callable[..., str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "latex": _to_latex,
    "json": _to_json,
}
