"""The numbers of a study as a frame, with their runs and problems; its CSV, JSON and figures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tape_arith.arith.compare.captions import SPLIT_WORDS, describe_seeds, preset_words
from tape_arith.arith.compare.labels import display_names
from tape_arith.arith.compare.tables import frame_to_csv, json_text, pipe_table
from tape_arith.arith.figures.looks import Look, looks_of
from tape_arith.arith.grids.axes import REGION_WORDS, Region
from tape_arith.arith.grids.statistics import student_t
from tape_arith.arith.studies import load
from tape_arith.arith.tasks.task import Task

INSIDE: Region = "in_distribution"
OUTSIDE: Region = "out_of_distribution"
SPREAD = "± is the 95 % interval over seeds (Student t)."
_SCHEMA = 2


@dataclass(frozen=True)
class Study:
    """Numbers measured in comparable runs, all on the same problems.

    `facts` has the preset, the settings that differ from it, trained_digits, the trained and tested
    lengths in words and `evaluation`: task, version, split, seed, max_digits, the number of
    problems by region, and their sha256. `rows` has one row per number; its first columns are run,
    encoding, seed and leading_bos (the most [BOS] that training put in front of a problem).
    """

    kind: str
    facts: dict[str, Any]
    rows: pd.DataFrame

    @cached_property
    def labelled(self) -> pd.DataFrame:
        """The rows with a column `label`: the encoding's, with the [BOS] of its training."""
        bos = [f", 0 to {most} [BOS]" if most else "" for most in self.rows.leading_bos]
        encodings = self.rows.encoding
        return self.rows.assign(label=encodings.map(display_names(encodings.unique())) + bos)

    @property
    def seeds(self) -> dict[str, list[int]]:
        """The seeds of each label, labels in the order of the runs."""
        seeds = self.labelled.groupby("label", sort=False).seed.unique()
        return {str(label): sorted(map(int, each)) for label, each in seeds.items()}

    @property
    def looks(self) -> dict[str, Look]:
        """The look of each label, that of its encoding."""
        first = self.labelled.groupby("label", sort=False)[["encoding", "leading_bos"]].first()
        names = [f"{name},{most}" if most else name for name, most in first.to_numpy()]
        return dict(zip(map(str, first.index), looks_of(names).values(), strict=True))

    @property
    def points(self) -> dict[str, dict[str, Any]]:
        """The colour and marker of each label."""
        return {label: look.points for label, look in self.looks.items()}

    @property
    def regions(self) -> list[Region]:
        """The regions that have problems."""
        return list(self.facts["evaluation"]["problems"])

    @property
    def source(self) -> str:
        """A sentence that describes task, problems and runs."""
        evaluation = self.facts["evaluation"]
        split = SPLIT_WORDS.get(evaluation["split"], evaluation["split"])
        counts = " and ".join(
            f"{count:,} problems {REGION_WORDS[region]}"
            for region, count in evaluation["problems"].items()
        )
        return (
            f"Task {evaluation['task']}{f', {split},' if split else ','} {self.facts['lengths']} "
            f"(preset {preset_words(self.facts['preset'], self.facts['settings'])}), {counts} "
            "(the first of the evaluation set, SHA-256 to the last of them "
            f"{evaluation['sha256'][:8]}), {describe_seeds(self.seeds)}; other seeds may differ."
        )

    def to_markdown(self) -> str:
        """Format the tables of this kind of study."""
        return str(load(self.kind).to_markdown(self))

    def figures(self) -> dict[str, Figure]:
        """Draw this kind of study: each figure by the ending of its file's name."""
        drawn: dict[str, Figure] = load(self.kind).figures(self)
        return drawn

    def to_csv(self) -> str:
        """Format the rows."""
        return frame_to_csv(self.rows)

    def to_json(self) -> str:
        """Format the facts and the rows; a missing number is null."""
        rows = self.rows.astype(object).where(self.rows.notna(), None).to_dict("records")
        content = {"schema": _SCHEMA, "kind": self.kind, **self.facts, "rows": rows}
        return json_text(content)


def mean_cell(values: Iterable[float], number: str = ".3f") -> str:
    """Format the mean over seeds and the half-width of its interval; for one seed, its value.

    >>> mean_cell([0.5]), mean_cell([0.5, 0.5])
    ('0.500', '0.500 ± 0.000')
    """
    values = list(values)
    interval = student_t(values)
    if interval is None:
        return f"{values[0]:{number}}"
    return f"{interval.mean:{number}} ± {interval.half_width:{number}}"


def markdown(table: pd.DataFrame, text_columns: int) -> str:
    """Format a pipe table of text cells; the first `text_columns` columns are left-aligned."""
    return pipe_table(table, list(table)[:text_columns])


def draw_runs(
    ax: Axes,
    rows: pd.DataFrame,
    x: str,
    y: str,
    styles: Mapping[str, Mapping[str, Any]],
    **look: Any,
) -> None:
    """Draw `y` over `x` for each label: one thin line per run, and their mean above these."""
    for label, group in rows.groupby("label", sort=False):
        runs, style = group.pivot(index=x, columns="run", values=y), styles[str(label)]
        abscissas = runs.index.to_numpy(float)
        if len(runs.columns) > 1:
            ax.plot(abscissas, runs, color=style["color"], linewidth=0.5, alpha=0.5)
        ax.plot(abscissas, runs.mean(axis=1), zorder=3, **{**style, **look})


def example_answer(task: Task[Any]) -> str:
    """Return the answer to the example of a task, as a problem has it."""
    return task.text(task.example).partition("=")[2]


def is_one_number(task: Task[Any]) -> bool:
    """Tell whether token k of an answer is the digit of place k."""
    digits = example_answer(task).removesuffix("-")
    return task.digit_order == "reversed" and digits.isdecimal()
