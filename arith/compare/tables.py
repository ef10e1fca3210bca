"""Rows and leaderboards as Markdown, CSV, LaTeX and JSON; a frame holds a table of text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

import pandas as pd

from tape_arith.arith.compare.board import Board, Section, chosen_heads, column_key, known_columns
from tape_arith.arith.compare.captions import ONE_SEED
from tape_arith.arith.compare.labels import display_names
from tape_arith.arith.compare.rows import LEVEL, OVER_PROBLEMS, Row, flat
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.axes import REGIONS

LEFT = ("encoding", "kind", "converged")
"""Columns that are aligned left."""
_PRINTED = {
    *("rank", "encoding", "seeds", "out_of_distribution", "in_distribution", "solved_to_90"),
    *("final_answer", "converged", "parameters", "flops_a_token", "loss", "tokens_s"),
}
"""The columns of a table for a paper, unless a user chooses others."""
_STACKED = 10
"""The most letters in a line of a head, unless one word is longer."""
_COMMENT_WIDTH = 96
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


def to_markdown(rows: Sequence[Row]) -> str:
    """Format a Markdown table: mean ± half-width of the 95 % interval, in percent.

    Grids of one axis have a dash in the columns that only those of two have.
    """
    labels = display_names(row.encoding for row in rows)
    most_regions = max((row.texts(*REGIONS) for row in rows), key=len, default={})
    table = pd.DataFrame(
        {
            "encoding": labels[row.encoding],
            **row.settings,
            "seeds": row.seed_count,
            **dict.fromkeys(most_regions, "-"),
            **row.texts(*REGIONS),
            "converged": row.mark or "yes",
        }
        for row in rows
    )
    # On the left is what tells rows apart: a terminal repeats it where it breaks the table.
    return pipe_table(table, [*LEFT, *(key for row in rows[:1] for key in row.settings)])


def to_csv(rows: Sequence[Row]) -> str:
    """Format CSV with fractions in 0..1; `_low` and `_high` are the interval, clipped to 0..1.

    The column `interval` says what that is over: "seeds" (Student t) or "this run only" (problems).
    """
    return csv_text([flat(row) for row in rows])


def csv_text(lines: Sequence[Mapping[str, object]], columns: Sequence[str] = ()) -> str:
    """Format CSV with the keys of `lines` as its head, or those that `columns` choose.

    A list, one number per seed, is one cell with spaces between, and "-" for an unknown number.
    """

    def text(value: object, unknown: str = "") -> str:
        if isinstance(value, list | tuple):
            return " ".join(text(each, "-") for each in value)
        if isinstance(value, float):
            return f"{value:.10g}"
        return unknown if value is None else str(value)

    frame = pd.DataFrame([{key: text(value) for key, value in line.items()} for line in lines])
    chosen = chosen_heads(columns, frame) if columns else None
    return frame.to_csv(columns=chosen, index=False, lineterminator="\n")


def json_text(content: Mapping[str, Any], columns: Sequence[str] = ()) -> str:
    """Format everything as JSON. Raises UsageError if `columns` are chosen."""
    if columns:
        raise UsageError("JSON always has everything: leave --show out, or write --csv")
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def pipe_table(table: pd.DataFrame, left: Sequence[object] = LEFT) -> str:
    """Format a Markdown table; the columns in `left` are aligned left.

    >>> print(pipe_table(pd.DataFrame({"encoding": ["rope"], "seeds": ["3"]})), end="")
    | encoding | seeds |
    | --- | ---: |
    | rope | 3 |
    """
    rule = ["---" if head in left else "---:" for head in table]
    lines = [list(map(str, table)), rule, *table.astype(str).to_numpy().tolist()]
    texts = (" | ".join(cell.replace("|", r"\|") for cell in line) for line in lines)
    return "".join(f"| {text} |\n" for text in texts)


def sectioned(
    heading: str, sections: Sequence[Section[Any]], table: pd.DataFrame, notes: Sequence[str]
) -> str:
    """Format a heading and a pipe table for each section, then the notes, as Markdown.

    `table` is indexed by encoding.
    """
    pieces = [f"# {heading}\n"]
    for title, reason, rows in sections:
        pieces.append(f"## {title}\n")
        if reason:
            pieces.append(f"{reason[0].upper()}{reason[1:]}.\n")
        pieces.append(pipe_table(table.loc[[row.encoding for row in rows]]))
    return "\n".join([*pieces, *(f"{note}\n" for note in notes)])


def floating(
    sections: Sequence[Section[Any]],
    table: pd.DataFrame,
    caption: str,
    comments: Sequence[str] = (),
) -> str:
    """Format a floating LaTeX table across both columns of a paper, no wider than the page.

    `table` is indexed by encoding.
    """
    parts = {each.heading: table.loc[[row.encoding for row in each.rows]] for each in sections}
    comments = ["needs \\usepackage{booktabs} and \\usepackage{graphicx}", *comments]
    return (
        "".join(f"% {line}\n" for note in comments for line in wrap(note, _COMMENT_WIDTH))
        + "\\begin{table*}\n\\centering\n\\scriptsize\n\\setlength{\\tabcolsep}{3pt}\n"
        # \width is the table's own: it shrinks to the page if it is wider.
        "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{"
        + booktabs(parts).rstrip()
        + f"}}\n\\caption{{{escape(caption)}}}\n\\end{{table*}}\n"
    )


def booktabs(parts: Mapping[str, pd.DataFrame]) -> str:
    """Format a LaTeX tabular for the package booktabs, each part under its title.

    Heads are broken into short lines.
    """
    heads = list(map(str, next(iter(parts.values()))))
    align = "".join("l" if head in LEFT else "r" for head in heads)
    above = " & ".join(map(_stack, heads, align)) + r" \\"
    lines = [f"\\begin{{tabular}}{{{align}}}", "\\toprule", above]
    for title, table in parts.items():
        lines += [
            "\\midrule",
            f"\\multicolumn{{{len(heads)}}}{{l}}{{\\textit{{{escape(title)}}}}} \\\\",
        ]
        lines += [" & ".join(map(escape, cells)) + r" \\" for cells in table.to_numpy()]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def escape(text: str) -> str:
    """Return LaTeX that prints `text`.

    >>> escape("fox:b_f=5, 3 % ± <0.1")
    'fox:b\\\\_f=5, 3 \\\\% $\\\\pm$ $<$0.1'
    """
    return text.translate(_LATEX)


def _stack(head: str, side: str) -> str:
    lines = [escape(line.replace(" %", "\N{NO-BREAK SPACE}%")) for line in head_lines(head)]
    joined = r" \\ ".join(lines)
    return f"\\shortstack[{side}]{{{joined}}}" if len(lines) > 1 else joined


def head_lines(head: str) -> list[str]:
    """Break a head into short lines; "%" stays in the line of the word before it."""
    joined = head.replace(" %", "\N{NO-BREAK SPACE}%")
    lines = wrap(joined, _STACKED, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


# ---- the leaderboard ---------------------------------------------------------------------------


def board_to_markdown(board: Board, columns: Sequence[str] = ()) -> str:
    """Format a table for each section, then the notes."""
    table = board.labelled(board.texts(columns))
    return sectioned(f"Leaderboard of {board.preset}", board.sections, table, board.notes())


def short_texts(board: Board, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return `Board.texts` for little room, with a dagger for "± over problems".

    Unless `columns` are chosen, those in which nothing is known are left out.
    """
    table = board.texts(columns).replace({f"1 {OVER_PROBLEMS}": f"1{ONE_SEED}"})
    return table if columns else table[known_columns(table)]


def legend(board: Board, table: pd.DataFrame) -> str:
    """Return two sentences: what was measured, and what the signs in `table` mean."""
    keys, cells = set(map(column_key, table)), " ".join(table.to_numpy().ravel())
    tests = ", ".join(f"vs {board.label(one)}" for one in board.references if f"vs_{one}" in keys)
    alone = ", ".join(board.label(row.encoding) for row in board.rows if len(row.seeds) == 1)
    among = f" among all {board.num_encodings} encodings"
    meanings = {
        f"Ranked by the mean out of distribution{among * (len(table) < board.num_encodings)}": True,
        "in brackets the lowest and the highest seed, where ± would leave 0 to 100 %": (
            "\N{EN DASH}" in cells
        ),
        f"{tests}: p of Welch's t test over seeds, after Holm over {board.num_tests} tests, "
        f"\N{UPWARDS ARROW} better and \N{DOWNWARDS ARROW} worse at {100 * LEVEL:g} %": tests,
        "solved to: the largest length up to which that share of problems is exact": any(
            key.startswith("solved_to") for key in keys
        ),
        "last states: the range of a run's last saved states, in points": "last_states" in keys,
        "parameters: those of the encoding": "parameters" in keys,
        "FLOPs: those that the encoding adds to a forward": "flops_a_token" in keys,
        f"{ONE_SEED}: one seed, ± over problems": ONE_SEED in cells,
        f"± over problems, of one seed: {alone}": alone and ONE_SEED not in cells,
    }
    source = board.source[0].lower() + board.source[1:].rstrip(".")
    return (
        f"Exact match in percent, mean ± 95 % interval over seeds (Student t): {source}. "
        f"{'; '.join(meaning for meaning, needed in meanings.items() if needed)}."
    )


def board_to_latex(board: Board, columns: Sequence[str] = ()) -> str:
    """Format a floating table, with the notes as comments."""
    table = short_texts(board, columns)
    if not columns:
        printed = _PRINTED | {column_key(f"vs {one}") for one in board.references}
        table = table[[head for head in table if column_key(head) in printed]]
    return floating(board.sections, board.labelled(table), legend(board, table), board.notes())


def board_to_csv(board: Board, columns: Sequence[str] = ()) -> str:
    """Format one CSV line per encoding: shares in 0..1, times in seconds, lists as in `csv_text`.

    Columns that are also in `to_csv` have the same names there.
    """
    return csv_text(board.numbers(), columns)


def board_to_json(board: Board, columns: Sequence[str] = ()) -> str:
    """Format everything as JSON: keys are stable, and `schema` counts changes of them."""
    content = {
        "schema": 3,
        "kind": "leaderboard",
        "preset": board.preset,
        **board.about,
        "references": board.references,
        "tests": board.num_tests,
        "level": LEVEL,
        "sections": [
            {"title": title, "why": reason, "rows": list(map(_content, rows))}
            for title, reason, rows in board.sections
        ],
        "left_out": [{"runs": runs, "why": reason} for runs, reason in board.left_out],
        "notes": board.notes(),
    }
    return json_text(content, columns)


def _content(row: Row) -> dict[str, Any]:
    numbers = asdict(row)
    del numbers["settings"]  # settings vary only in a sweep
    if not row.final_answers:
        del numbers["final_answers"], numbers["final_answers_of"]
    return {
        **numbers,
        "converged": row.mark is None,
        "solved_to": {f"{share:g}": length for share, length in row.solved_to.items()},
        "tests": {
            name: (test.welch._asdict() if test.welch else {})
            | {"p_holm": test.p_holm, "why_not": test.why_not}
            for name, test in row.tests.items()
        },
        "trainings": [training._asdict() for training in row.trainings],
        "last_states_range": row.last_states_range,
    }


FORMATS = {
    "markdown": board_to_markdown,
    "csv": board_to_csv,
    "latex": board_to_latex,
    "json": board_to_json,
}
FOR_PEOPLE = ("markdown", "latex")
"""The formats in which encodings have their labels; programs read the others."""
