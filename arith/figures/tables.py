"""The comparison as a table, a row an encoding, in Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.scoring.regions import REGION_WORDS, REGIONS, Region
from tape_arith.arith.scoring.statistics import Interval, over_seeds

_HEAD = ["encoding", "seeds", *(f"{name}, %" for name in REGION_WORDS.values()), "converged"]
_ALIGN = f"l{'r' * (len(_HEAD) - 2)}l"
OVER_PROBLEMS = "(± over problems)"
_STACKED = 10
"""Letters in a line of a stacked head, or one word."""

Cells = Sequence[Sequence[str]]
"""Rows of cells, each row as long as the head."""

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "|": "$|$",
        "<": "$<$",
        ">": "$>$",
        "\N{EN DASH}": "--",
        "\N{PLUS-MINUS SIGN}": r"$\pm$",
        "\N{MINUS SIGN}": "$-$",
        "\N{GREATER-THAN OR EQUAL TO}": r"$\ge$",
        "\N{UPWARDS ARROW}": r"$\uparrow$",
        "\N{DOWNWARDS ARROW}": r"$\downarrow$",
        "\N{NO-BREAK SPACE}": "~",
        "\N{DAGGER}": r"\dag{}",
    }
)


@dataclass(frozen=True)
class Row:
    """The means of one encoding."""

    encoding: str
    seeds: tuple[int, ...]
    means: dict[Region, Interval | None]
    """None if cells of the region are missing, or none are in it."""
    mark: str | None
    """ "not converged", "not fully scored", or None."""
    values: dict[Region, tuple[float | None, ...]]
    """The mean of each seed, in the order of `seeds`."""

    @property
    def ranked(self) -> bool:
        """Whether it takes part in the order by its mean out of distribution."""
        return self.mark is None and self.means["out_of_distribution"] is not None

    def percent(self, region: Region) -> str:
        """Return "18.2 ± 3.1", in percent; "-" for no mean."""
        return percent(self.means[region], self.values[region])


def rows(panels: Sequence[Panel], seed: int | None = None) -> list[Row]:
    """Return a row an encoding, best out of distribution first, those not ranked last by name.

    Raises UsageError if the grids must not be compared.
    """
    return ranked(
        Row(
            grids[0].name,
            tuple(grid.seed for grid in grids),
            {region: over_seeds(grids, region) for region in REGIONS},
            captions.convergence(grids),
            {region: tuple(grid.mean(region).value for grid in grids) for region in REGIONS},
        )
        for grids in captions.checked_panels(panels, seed)
    )


def ranked(rows: Iterable[Row]) -> list[Row]:
    """Sort best out of distribution first, then by name what is not ranked."""

    def order(row: Row) -> tuple[bool, float, str]:
        outside = row.means["out_of_distribution"]
        return not row.ranked, -outside.mean if row.ranked and outside else 0.0, row.encoding

    return sorted(rows, key=order)


def percent(mean: Interval | None, seeds: Sequence[float | None] = ()) -> str:
    """Return "18.2 ± 3.1" (`captions.percent`) without its sign; "-" for no mean."""
    return captions.percent(mean, seeds).removesuffix(" %") if mean else "-"


def seeds(row: Row) -> str:
    """Return how many seeds there are, and what the ± of a single one covers."""
    return str(len(row.seeds)) if len(row.seeds) > 1 else f"1 {OVER_PROBLEMS}"


def to_markdown(rows: Sequence[Row]) -> str:
    """Format a pipe table: mean ± half-width of the 95 % interval, in percent."""
    return pipe_table(_HEAD, _ALIGN, [_cells(row) for row in rows])


def to_latex(rows: Sequence[Row]) -> str:
    """Format the cells of `to_markdown` for LaTeX with the package booktabs."""
    return booktabs(_HEAD, _ALIGN, [("", [_cells(row) for row in rows])])


def _cells(row: Row) -> list[str]:
    return [row.encoding, seeds(row), *map(row.percent, row.means), row.mark or "yes"]


def to_csv(rows: Sequence[Row]) -> str:
    """Format fractions in 0..1; `_low` and `_high` are the interval clipped to that.

    `interval` says what the ends cover: "seeds" (Student t) or "this run only" (problems).
    """
    return csv_text([flat(row) for row in rows])


def flat(row: Row) -> dict[str, str]:
    """Return a row by the names of CSV's columns."""
    facts = {
        "encoding": row.encoding,
        "seeds": " ".join(map(str, row.seeds)),
        "converged": row.mark or "yes",
        "interval": "seeds" if len(row.seeds) > 1 else "this run only",
    }
    for region, mean in row.means.items():
        for part in ("mean", "half_width", "low", "high"):
            column = region if part == "mean" else f"{region}_{part}"
            facts[column] = f"{getattr(mean, part):.6f}" if mean else ""
    return facts


def csv_text(lines: Sequence[Mapping[str, str]]) -> str:
    """Format CSV with the names of the first line's columns as its head."""
    text = io.StringIO()
    out = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    out.writeheader()
    out.writerows(lines)
    return text.getvalue()


def to_json(rows: Sequence[Row]) -> str:
    """Format the numbers of `to_csv` for programs: keys are stable, `schema` counts changes."""
    return json.dumps({"schema": 2, "rows": [content(row) for row in rows]}, indent=1) + "\n"


def content(row: Row) -> dict[str, Any]:
    """Return a row as plain Python, with stable keys."""
    return {
        "encoding": row.encoding,
        "seeds": row.seeds,
        "converged": row.mark is None,
        "mark": row.mark,
        "means": {name: asdict(mean) if mean else None for name, mean in row.means.items()},
        "values": row.values,
    }


FORMATS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex, "json": to_json}


def pipe_table(head: Sequence[str], align: str, body: Cells) -> str:
    """Format Markdown; `align` has a letter a column, l or r.

    >>> print(pipe_table(["encoding", "seeds"], "lr", [["rope", "3"]]), end="")
    | encoding | seeds |
    | --- | ---: |
    | rope | 3 |
    """
    rule = ["---:" if letter == "r" else "---" for letter in align]
    lines = [[cell.replace("|", r"\|") for cell in line] for line in (head, rule, *body)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def booktabs(
    head: Sequence[str], align: str, parts: Sequence[tuple[str, Cells]], *, stacked: bool = False
) -> str:
    """Format a LaTeX tabular for the package booktabs: each part under its title, if it has one.

    A `stacked` head is in lines as short as its words.
    """
    above = " & ".join(map(_stack, head, align)) + r" \\" if stacked else _latex_line(head)
    lines = [f"\\begin{{tabular}}{{{align}}}", "\\toprule", above]
    for title, body in parts:
        lines.append("\\midrule")
        if title:
            lines.append(f"\\multicolumn{{{len(head)}}}{{l}}{{\\textit{{{escape(title)}}}}} \\\\")
        lines += map(_latex_line, body)
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def escape(text: str) -> str:
    """Return LaTeX that prints `text`.

    >>> escape("fox:b_f=5, 3 % ± <0.1")
    'fox:b\\\\_f=5, 3 \\\\% $\\\\pm$ $<$0.1'
    """
    return text.translate(_LATEX)


def _stack(head: str, side: str) -> str:
    """Break a head into lines, a unit with the word before it."""
    joined = head.replace(" %", "\N{NO-BREAK SPACE}%")
    words = wrap(joined, _STACKED, break_long_words=False, break_on_hyphens=False)
    lines = r" \\ ".join(map(escape, words))
    return f"\\shortstack[{side}]{{{lines}}}" if len(words) > 1 else lines


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
