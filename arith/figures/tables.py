"""The numbers of an encoding as a row, and tables in Markdown, LaTeX and CSV."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from textwrap import wrap

import pandas as pd

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.scoring.grid import REGION_WORDS, REGIONS, Region
from tape_arith.arith.scoring.statistics import SOLVED, Interval, Welch, over_seeds, solved_to

LEVEL = 0.05
"""A difference is marked if Holm's p is at most this."""
OVER_PROBLEMS = "(± over problems)"
_STACKED = 10
"""Letters in a line of a LaTeX head, or one word."""
_IN_MATHS = {
    "|": "|",
    "<": "<",
    ">": ">",
    "\N{PLUS-MINUS SIGN}": r"\pm",
    "\N{MINUS SIGN}": "-",
    "\N{GREATER-THAN OR EQUAL TO}": r"\ge",
    "\N{UPWARDS ARROW}": r"\uparrow",
    "\N{DOWNWARDS ARROW}": r"\downarrow",
}
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "{}$&#%_"}
    | {sign: f"${command}$" for sign, command in _IN_MATHS.items()}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"\N{EN DASH}": "--", "\N{NO-BREAK SPACE}": "~", "\N{DAGGER}": r"\dag{}"}
)

Cells = Sequence[Sequence[str]]
"""Rows of cells, each row as long as the head."""


@dataclass(frozen=True)
class Comparison:
    """An encoding's mean out of distribution against that of a reference."""

    welch: Welch | None = None
    p_holm: float | None = None
    """p, adjusted for all tests of the leaderboard."""
    why_not: str | None = None
    """Why there is no test."""

    @property
    def sign(self) -> int:
        """1 or -1 if it is better or worse than the reference, 0 if that is not known."""
        if self.welch is None or self.p_holm is None or self.p_holm > LEVEL:
            return 0
        return 1 if self.welch.difference > 0 else -1


@dataclass(frozen=True)
class Training:
    """The course of a run's training; None for what is not known."""

    loss: float | None = None
    """In its last steps, nats a scored token."""
    tokens_per_second: float | None = None
    """Real tokens, over all of it."""
    mfu: float | None = None
    """Useful FLOPs a second over the rate in the datasheet of the part, 0..1."""


@dataclass(frozen=True)
class Row:
    """The numbers of one encoding, those of each seed in the order of `seeds`.

    A leaderboard adds what has a default here.
    """

    encoding: str
    seeds: tuple[int, ...]
    means: Mapping[Region, Interval | None]
    """None if no cell is in the region."""
    mark: str | None
    """ "not converged", "convergence unknown", or None."""
    values: Mapping[Region, tuple[float, ...]]
    """The mean of each seed; empty if no cell is in the region."""
    solved_to: Mapping[float, int]
    """The largest length solved, by the share in SOLVED."""
    rank: int | None = None
    """Within its section, from 1; None if it is not ranked."""
    kind: str = ""
    tests: Mapping[str, Comparison] = field(default_factory=dict)
    """By reference."""
    last_states: Sequence[Sequence[float] | None] = ()
    """Of each seed out of distribution on the small grid at the last saved states."""
    last_steps: Sequence[Sequence[int]] = ()
    """The steps of these states, of each seed that has some."""
    train_seconds: Sequence[float | None] = ()
    trainings: Sequence[Training] = ()
    """Of each seed, if costs were asked for."""
    parameters: int | None = None
    flops_a_token: float | None = None
    """What the encoding adds to a forward over the longest trained sequence."""

    @property
    def ranked(self) -> bool:
        """Tell whether it takes part in the order by its mean out of distribution."""
        return self.mark is None and self.means["out_of_distribution"] is not None

    @property
    def last_states_range(self) -> float | None:
        """Highest minus lowest of a run's last states, the mean over the seeds that have them."""
        ranges = [max(values) - min(values) for values in self.last_states if values]
        return sum(ranges) / len(ranges) if ranges else None

    def mean(self, region: Region) -> float | None:
        """The mean of a region, 0..1."""
        interval = self.means[region]
        return interval.mean if interval else None

    def percent(self, region: Region) -> str:
        """Return "18.2 ± 3.1", in percent; "-" for no mean."""
        return captions.percent(self.means[region], self.values[region])

    def median_training(self, name: str) -> float | None:
        """The median of a fact of Training over the seeds that have it."""
        return median_known([getattr(training, name) for training in self.trainings])


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
            {region: captions.seed_means(grids, region) for region in REGIONS},
            {share: solved_to(grids, share) for share in SOLVED},
        )
        for grids in captions.checked_panels(panels, seed)
    )


def ranked(rows: Iterable[Row]) -> list[Row]:
    """Sort best out of distribution first, then by name what is not ranked."""

    def order(row: Row) -> tuple[bool, float, str]:
        mean = row.mean("out_of_distribution") or 0.0
        return not row.ranked, -mean if row.ranked else 0.0, row.encoding

    return sorted(rows, key=order)


def median_known(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def seeds(row: Row) -> str:
    """Return how many seeds there are, and what the ± of a single one covers."""
    return str(len(row.seeds)) if len(row.seeds) > 1 else f"1 {OVER_PROBLEMS}"


def to_markdown(rows: Sequence[Row]) -> str:
    """Format a pipe table: mean ± half-width of the 95 % interval, in percent."""
    head = ["encoding", "seeds", *(f"{REGION_WORDS[r]}, %" for r in REGIONS), "converged"]
    body = [
        [row.encoding, seeds(row), *map(row.percent, REGIONS), row.mark or "yes"] for row in rows
    ]
    return pipe_table(head, f"l{'r' * (len(head) - 2)}l", body)


def to_csv(rows: Sequence[Row]) -> str:
    """Format fractions in 0..1; `_low` and `_high` are the interval clipped to that.

    `interval` says what the ends cover: "seeds" (Student t) or "this run only" (problems).
    """
    return csv_text([flat(row) for row in rows])


def flat(row: Row) -> dict[str, object]:
    """Return a row by the names of CSV's columns."""
    facts: dict[str, object] = {
        "encoding": row.encoding,
        "seeds": " ".join(map(str, row.seeds)),
        "converged": row.mark or "yes",
        "interval": "seeds" if len(row.seeds) > 1 else "this run only",
    }
    for region, interval in row.means.items():
        for part in ("mean", "half_width", "low", "high"):
            column = region if part == "mean" else f"{region}_{part}"
            facts[column] = f"{getattr(interval, part):.6f}" if interval else ""
    return facts


def csv_text(lines: Sequence[Mapping[str, object]]) -> str:
    """Format CSV with the names of the first line's columns as its head."""
    return pd.DataFrame(lines, dtype=object).to_csv(index=False, lineterminator="\n")


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


def booktabs(head: Sequence[str], align: str, parts: Sequence[tuple[str, Cells]]) -> str:
    """Format a LaTeX tabular for the package booktabs, each part under its title.

    The head is in lines as short as its words.
    """
    above = " & ".join(map(_stack, head, align)) + r" \\"
    lines = [f"\\begin{{tabular}}{{{align}}}", "\\toprule", above]
    for title, body in parts:
        lines += [
            "\\midrule",
            f"\\multicolumn{{{len(head)}}}{{l}}{{\\textit{{{escape(title)}}}}} \\\\",
        ]
        lines += [" & ".join(map(escape, cells)) + r" \\" for cells in body]
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
