"""The leaderboard as text: Markdown for people, LaTeX for papers, CSV and JSON for programs."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from tape_arith.arith.figures import tables
from tape_arith.arith.figures.leaderboard_data import LEVEL, Board, Standing, Training
from tape_arith.arith.figures.tables import booktabs, escape, pipe_table
from tape_arith.arith.scoring.grid import SOLVED
from tape_arith.arith.scoring.regions import REGION_WORDS, Region

SCHEMA = 2
NOT_MEASURED = "not measured"
DAGGER = "\N{DAGGER}"
_OTHERS: tuple[Region, ...] = ("one_longer", "both_longer", "in_distribution", "all_cells")
"""The means after the one that ranks."""


class Column(NamedTuple):
    """A column of the texts for people."""

    head: str
    cell: Callable[[Standing], str]
    value: Callable[[Standing], float | None] | None = None
    """The number that the column sorts by, None if it is not known; None for a column of words."""
    printed: bool = True
    """Whether a paper has room for it."""
    align: str = "r"


def columns(board: Board) -> list[Column]:
    """Return the columns from the rank to the costs, if they were asked for."""
    shown = [
        Column("#", lambda s: str(s.rank or "-")),
        Column("encoding", lambda s: s.row.encoding, align="l"),
        Column("kind", lambda s: s.kind, printed=False, align="l"),
        Column("seeds", lambda s: tables.seeds(s.row)),
        _mean("out_of_distribution"),
        Column("each seed, %", _each, printed=False),
        *map(_mean, _OTHERS),
        *(
            _number(f"solved to, {share * 100:g} %", partial(_solved, share), "{:.0f}", "-")
            for share in SOLVED
        ),
        *map(_against, board.references),
        Column("last states", _range, lambda s: s.range, printed=False),
        Column("training", _time, _seconds, printed=False),
    ]
    if board.costs:
        shown += [
            _number("parameters", lambda s: s.parameters, "{:,.0f}", "-"),
            _number("FLOPs a token", lambda s: s.flops_a_token, "{:,.0f}", "-"),
            _number("loss", partial(_median_of, "loss"), "{:.4f}"),
            _number("tokens/s", partial(_median_of, "tokens_per_second"), "{:,.0f}"),
            _number("MFU, %", partial(_median_of, "mfu"), "{:.1%}"),
        ]
    if any(standing.row.mark for standing in board.standings):
        shown.append(Column("converged", lambda s: s.row.mark or "yes", align="l"))
    return shown


def _number(
    head: str,
    value: Callable[[Standing], float | None],
    form: str,
    unknown: str = NOT_MEASURED,
) -> Column:
    def cell(standing: Standing) -> str:
        number = value(standing)
        return unknown if number is None else form.format(number).rstrip("%")

    return Column(head, cell, value)


def _mean(region: Region) -> Column:
    def value(standing: Standing) -> float | None:
        interval = standing.row.means[region]
        return interval.mean if interval else None

    return Column(f"{REGION_WORDS[region]}, %", lambda s: s.row.percent(region), value)


def _against(reference: str) -> Column:
    def cell(standing: Standing) -> str:
        test = standing.tests[reference]
        if test.holm is None:
            return "-"
        p = "<0.001" if test.holm < 0.001 else f"{test.holm:.3f}"
        return {1: "\N{UPWARDS ARROW} ", -1: "\N{DOWNWARDS ARROW} ", 0: ""}[test.sign] + p

    return Column(f"vs {reference}", cell, lambda s: s.tests[reference].holm)


def _solved(share: float, standing: Standing) -> float | None:
    return standing.solved[share]


def _each(standing: Standing) -> str:
    values = standing.row.values["out_of_distribution"]
    return " ".join("-" if value is None else f"{100 * value:.1f}" for value in values)


def _range(standing: Standing) -> str:
    return NOT_MEASURED if standing.range is None else f"{100 * standing.range:.1f}"


def _time(standing: Standing) -> str:
    seconds = _seconds(standing)
    if seconds is None:
        return NOT_MEASURED
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _seconds(standing: Standing) -> float | None:
    return _median(standing.train_seconds)


def _median_of(name: str, standing: Standing) -> float | None:
    return _median([getattr(training, name) for training in standing.trainings])


def _median(values: Sequence[float | None]) -> float | None:
    """Over the seeds that have a value."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def to_markdown(board: Board) -> str:
    """Format a heading and a pipe table for each section, then the notes."""
    shown = columns(board)
    head, align = [column.head for column in shown], "".join(column.align for column in shown)
    pieces = [f"# Leaderboard of {board.preset}\n"]
    for title, why, standings in board.sections:
        pieces.append(f"## {title}\n")
        if why:
            pieces.append(f"{why[0].upper()}{why[1:]}.\n")
        body = [[column.cell(standing) for column in shown] for standing in standings]
        pieces.append(pipe_table(head, align, body))
    pieces += [f"{note}\n" for note in board.notes]
    return "\n".join(pieces)


def to_latex(board: Board) -> str:
    """Format a floating table across both columns of a paper, with the notes as its caption.

    It needs the packages booktabs and graphicx and is no wider than the page.
    """
    shown = [
        column
        for column in columns(board)
        if column.printed and any(column.cell(s) != NOT_MEASURED for s in board.standings)
    ]
    parts = [
        (
            f"{title}: {why}" if why else title,
            [[_brief(column.cell(standing)) for column in shown] for standing in standings],
        )
        for title, why, standings in board.sections
    ]
    align = "".join(column.align for column in shown)
    caption = board.printed_notes
    if any(len(standing.row.seeds) == 1 for standing in board.standings):
        caption.append(f"{DAGGER} One seed: \N{PLUS-MINUS SIGN} is over problems.")
    return (
        "% needs \\usepackage{booktabs} and \\usepackage{graphicx}\n"
        "\\begin{table*}\n\\centering\n\\scriptsize\n\\setlength{\\tabcolsep}{3pt}\n"
        # \width is that of what is within: it shrinks to the page, and never grows.
        "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{"
        + booktabs([column.head for column in shown], align, parts, stacked=True).rstrip()
        + f"}}\n\\caption{{{escape(' '.join(caption))}}}\n\\end{{table*}}\n"
    )


def _brief(cell: str) -> str:
    return cell.replace(f" {tables.OVER_PROBLEMS}", DAGGER)


def to_csv(board: Board) -> str:
    """Format a line an encoding: shares in 0..1, seconds, numbers of seeds with spaces between.

    The columns of `tables.to_csv` are there under the same names.
    """
    lines = []
    for section in board.sections:
        for s in section.standings:
            line = {"section": section.title, "rank": _bare(s.rank), "kind": s.kind}
            line |= tables.flat(s.row)
            for region, values in s.row.values.items():
                line[f"{region}_seeds"] = " ".join(map(_share, values))
            for share, length in s.solved.items():
                line[f"solved_to_{share * 100:g}"] = _bare(length)
            for name, test in s.tests.items():
                line[f"difference_from_{name}"] = _share(test.welch and test.welch.difference)
                line[f"p_{name}"] = _bare(test.welch and test.welch.p)
                line[f"p_holm_{name}"] = _bare(test.holm)
                line[f"no_test_{name}"] = test.why or ""
            line["last_states_range"] = _share(s.range)
            line["train_seconds"] = " ".join("-" if t is None else str(t) for t in s.train_seconds)
            if board.costs:
                line |= {"parameters": _bare(s.parameters), "flops": _bare(s.flops_a_token)}
                for name in Training._fields:
                    each = [getattr(training, name) for training in s.trainings]
                    line[name] = " ".join("-" if v is None else repr(v) for v in each)
            lines.append(line)
    return tables.csv_text(lines)


def _bare(value: float | None) -> str:
    return "" if value is None else repr(value)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def to_json(board: Board) -> str:
    """Format everything for programs: keys are stable, `schema` counts their changes."""
    content = {
        "schema": SCHEMA,
        "kind": "leaderboard",
        "preset": board.preset,
        **board.about,
        "references": board.references,
        "tests": board.num_tests,
        "level": LEVEL,
        "sections": [
            {"title": title, "why": why, "rows": [_content(standing) for standing in standings]}
            for title, why, standings in board.sections
        ],
        "left_out": [{"runs": runs, "why": why} for runs, why in board.left_out],
        "notes": board.notes,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _content(standing: Standing) -> dict[str, Any]:
    return {
        "rank": standing.rank,
        "kind": standing.kind,
        **tables.content(standing.row),
        "solved_to": {f"{share:g}": length for share, length in standing.solved.items()},
        "tests": {
            name: {
                **(test.welch._asdict() if test.welch else {}),
                "p_holm": test.holm,
                "why_not": test.why,
            }
            for name, test in standing.tests.items()
        },
        "last_states": standing.last_states,
        "last_states_range": standing.range,
        "last_steps": standing.last_steps,
        "train_seconds": standing.train_seconds,
        "parameters": standing.parameters,
        "flops_a_token": standing.flops_a_token,
        "trainings": [training._asdict() for training in standing.trainings],
    }


FORMATS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex, "json": to_json}
