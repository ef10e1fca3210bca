"""The leaderboard: its content, its notes, and its text in Markdown, LaTeX, CSV and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from tape_arith.arith.figures import tables
from tape_arith.arith.figures.tables import LEVEL, Comparison, Row, Training
from tape_arith.arith.scoring.grid import REGION_WORDS, Region
from tape_arith.arith.scoring.statistics import SOLVED

_SCHEMA = 3
NOT_MEASURED = "not measured"
_DAGGER = "\N{DAGGER}"
_OTHERS: tuple[Region, ...] = ("one_longer", "both_longer", "in_distribution", "all_cells")
"""The means after the one that ranks."""
WORDS = ("#", "encoding", "kind", "seeds", "each seed, %", "converged")
"""Columns without a number to sort by."""
_LEFT = ("encoding", "kind", "converged")
"""Columns aligned to the left."""
_NOT_PRINTED = ("kind", "each seed, %", "last states", "training")
"""Columns for which a paper has no room."""


class Section(NamedTuple):
    """Encodings that are compared with each other."""

    title: str
    reason: str
    """Why they stand apart, if they do."""
    rows: Sequence[Row]


class Cell(NamedTuple):
    """A cell of the leaderboard for people."""

    text: str
    value: float | None = None
    """The number that its column sorts by, None if it is not known."""


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
    left_out: Sequence[tuple[str, str]] = ()
    """Runs that are not shown, and why."""
    num_tests: int = 0
    """How many different tests were made: one of two references is on both their rows."""
    num_encodings: int = 0
    """How many encodings were ranked and tested, shown or not."""
    costs: bool = False
    """Whether parameters and FLOPs were asked for."""

    @property
    def rows(self) -> list[Row]:
        """All rows in their order."""
        return [row for section in self.sections for row in section.rows]

    def only(self, names: Sequence[str]) -> "Board":
        """Return the leaderboard with the rows of `names` alone; ranks and tests stay."""
        sections = [
            section._replace(rows=[row for row in section.rows if row.encoding in names])
            for section in self.sections
        ]
        return replace(self, sections=[section for section in sections if section.rows])

    def notes(self, *, printed: bool = False) -> list[str]:
        """Return what a reader must know, a paragraph each; for a paper, of its columns alone."""
        shares = " and ".join(f"{share * 100:g} %" for share in SOLVED)
        notes = [
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
        if not printed:
            notes.append(
                "Last states: out of distribution on the small grid of training, highest minus "
                f"lowest of {self._last_states()}, in percentage points, mean over seeds. "
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
            )
        if len(self.rows) < self.num_encodings:
            notes.append(
                f"{len(self.rows)} of the {self.num_encodings} encodings are shown; ranks and "
                f"tests are of all {self.num_encodings}."
            )
        return [*notes, *(f"Left out: {runs}: {reason}." for runs, reason in self.left_out)]

    def _last_states(self) -> str:
        """Say how many states, and of which steps: the range has what is learnt between them."""
        each = {tuple(steps) for row in self.rows for steps in row.last_steps}
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

    def cells(self) -> list[dict[str, Cell]]:
        """Return the cells of each row by the heads of their columns."""
        return [self._cells(row) for row in self.rows]

    def _cells(self, row: Row) -> dict[str, Cell]:
        def mean(region: Region) -> tuple[str, Cell]:
            cell = Cell(row.percent(region), row.mean(region))
            return f"{REGION_WORDS[region]}, %", cell

        seconds, outside = tables.median_known(row.train_seconds), row.values["out_of_distribution"]
        each = " ".join(f"{100 * value:.1f}" for value in outside) or "-"
        cells = {
            "#": Cell(str(row.rank or "-")),
            "encoding": Cell(row.encoding),
            "kind": Cell(row.kind),
            "seeds": Cell(tables.seeds(row)),
            **dict([mean("out_of_distribution")]),
            "each seed, %": Cell(each),
            **dict(map(mean, _OTHERS)),
            **{
                f"solved to, {share * 100:g} %": _number(length, "{:.0f}", "-")
                for share, length in row.solved_to.items()
            },
            **{f"vs {name}": _against(row.tests[name]) for name in self.references},
            "last states": _number(row.last_states_range, "{:.1%}"),
            "training": Cell(_duration(seconds), seconds),
        }
        if self.costs:
            cells |= {
                "parameters": _number(row.parameters, "{:,.0f}", "-"),
                "FLOPs a token": _number(row.flops_a_token, "{:,.0f}", "-"),
                "loss": _number(row.median_training("loss"), "{:.4f}"),
                "tokens/s": _number(row.median_training("tokens_per_second"), "{:,.0f}"),
                "MFU, %": _number(row.median_training("mfu"), "{:.1%}"),
            }
        if any(each.mark for each in self.rows):
            cells["converged"] = Cell(row.mark or "yes")
        return cells


def _number(value: float | None, form: str, unknown: str = NOT_MEASURED) -> Cell:
    return Cell(unknown if value is None else form.format(value).rstrip("%"), value)


def _against(test: Comparison) -> Cell:
    if test.p_holm is None:
        return Cell("-")
    p = "<0.001" if test.p_holm < 0.001 else f"{test.p_holm:.3f}"
    arrow = {1: "\N{UPWARDS ARROW} ", -1: "\N{DOWNWARDS ARROW} ", 0: ""}[test.sign]
    return Cell(arrow + p, test.p_holm)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return NOT_MEASURED
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _bodies(board: Board, heads: Sequence[str]) -> list[tuple[Section, list[list[str]]]]:
    """Return the texts under `heads` of each section."""
    rows = iter(board.cells())
    return [
        (
            section,
            [[cells[head].text for head in heads] for cells in islice(rows, len(section.rows))],
        )
        for section in board.sections
    ]


def _align(heads: Sequence[str]) -> str:
    return "".join("l" if head in _LEFT else "r" for head in heads)


def to_markdown(board: Board) -> str:
    """Format a heading and a pipe table for each section, then the notes."""
    heads = list(board.cells()[0])
    pieces = [f"# Leaderboard of {board.preset}\n"]
    for section, body in _bodies(board, heads):
        pieces.append(f"## {section.title}\n")
        if section.reason:
            pieces.append(f"{section.reason[0].upper()}{section.reason[1:]}.\n")
        pieces.append(tables.pipe_table(heads, _align(heads), body))
    return "\n".join([*pieces, *(f"{note}\n" for note in board.notes())])


def to_latex(board: Board) -> str:
    """Format a floating table across both columns of a paper, with the notes as its caption.

    It needs the packages booktabs and graphicx and is no wider than the page.
    """
    cells = board.cells()
    heads = [
        head
        for head in cells[0]
        if head not in _NOT_PRINTED and any(row[head].text != NOT_MEASURED for row in cells)
    ]
    parts = [
        (
            f"{section.title}: {section.reason}" if section.reason else section.title,
            [[cell.replace(f" {tables.OVER_PROBLEMS}", _DAGGER) for cell in row] for row in body],
        )
        for section, body in _bodies(board, heads)
    ]
    notes = board.notes(printed=True)
    if any(len(row.seeds) == 1 for row in board.rows):
        notes.append(f"{_DAGGER} One seed: \N{PLUS-MINUS SIGN} is over problems.")
    return (
        "% needs \\usepackage{booktabs} and \\usepackage{graphicx}\n"
        "\\begin{table*}\n\\centering\n\\scriptsize\n\\setlength{\\tabcolsep}{3pt}\n"
        # \width is that of what is within: it shrinks to the page, and never grows.
        "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{"
        + tables.booktabs(heads, _align(heads), parts).rstrip()
        + f"}}\n\\caption{{{tables.escape(' '.join(notes))}}}\n\\end{{table*}}\n"
    )


def to_csv(board: Board) -> str:
    """Format a line an encoding: shares in 0..1, seconds, numbers of seeds with spaces between.

    The columns of `tables.to_csv` are there under the same names.
    """
    lines = []
    for section in board.sections:
        for row in section.rows:
            line: dict[str, object] = {"section": section.title, "rank": row.rank}
            line["kind"] = row.kind
            line |= tables.flat(row)
            for region, values in row.values.items():
                line[f"{region}_seeds"] = _joined(values, "{:.6f}")
            for share, length in row.solved_to.items():
                line[f"solved_to_{share * 100:g}"] = length
            for name, test in row.tests.items():
                line[f"difference_from_{name}"] = test.welch and f"{test.welch.difference:.6f}"
                line[f"p_{name}"] = test.welch and test.welch.p
                line[f"p_holm_{name}"] = test.p_holm
                line[f"no_test_{name}"] = test.why_not
            states = row.last_states_range
            line["last_states_range"] = None if states is None else f"{states:.6f}"
            line["train_seconds"] = _joined(row.train_seconds)
            if board.costs:
                line |= {"parameters": row.parameters, "flops": row.flops_a_token}
                for name in Training.__dataclass_fields__:
                    line[name] = _joined([getattr(training, name) for training in row.trainings])
            lines.append(line)
    return tables.csv_text(lines)


def _joined(values: Sequence[float | None], form: str = "{!r}") -> str:
    return " ".join("-" if value is None else form.format(value) for value in values)


def to_json(board: Board) -> str:
    """Format everything for programs: keys are stable, `schema` counts their changes."""
    content = {
        "schema": _SCHEMA,
        "kind": "leaderboard",
        "preset": board.preset,
        **board.about,
        "references": board.references,
        "tests": board.num_tests,
        "level": LEVEL,
        "sections": [
            {"title": title, "why": reason, "rows": [_content(row) for row in rows]}
            for title, reason, rows in board.sections
        ],
        "left_out": [{"runs": runs, "why": reason} for runs, reason in board.left_out],
        "notes": board.notes(),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _content(row: Row) -> dict[str, Any]:
    tests = {
        name: {
            **(test.welch._asdict() if test.welch else {}),
            "p_holm": test.p_holm,
            "why_not": test.why_not,
        }
        for name, test in row.tests.items()
    }
    return {
        **asdict(row),
        "converged": row.mark is None,
        "solved_to": {f"{share:g}": length for share, length in row.solved_to.items()},
        "tests": tests,
        "last_states_range": row.last_states_range,
    }


FORMATS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex, "json": to_json}
