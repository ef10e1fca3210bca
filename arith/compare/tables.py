"""Columns and leaderboards as Markdown, CSV, LaTeX and JSON."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, TypeVar

import pandas as pd
from pandas.api.types import is_numeric_dtype

from tape_arith.arith.compare.board import Board, Ranking, Row, Section
from tape_arith.arith.compare.captions import ONE_SEED, SPLIT_WORDS
from tape_arith.arith.compare.columns import (
    OVER_PROBLEMS,
    Column,
    choose,
    chosen_keys,
    column_key,
    texts,
    with_something_known,
)
from tape_arith.arith.compare.conclusion import conclusion
from tape_arith.arith.compare.effects import LEVEL
from tape_arith.arith.errors import UsageError

T = TypeVar("T")
_STACKED = 10
"""The most letters in a line of a head, unless one word is longer."""
_COMMENT_WIDTH = 96
_PAGE, _GAP = 397.0, 3
"""The width of a page of one column of text (5.5 inches) and half the space between two columns, in
points."""
_SIZES = {"small": 4.6, "footnotesize": 4.25, "scriptsize": 3.8}
"""LaTeX's sizes of letters, with the width of a digit in points."""
_LONG = 50
"""The most rows of a table that stays on one page."""
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
_SMALL = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi - pi rho varsigma sigma
tau upsilon varphi chi psi omega
"""
"""LaTeX's commands for the small Greek letters from U+03B1 on; it has none for omicron."""
_WITH_CAPITALS = "gamma delta theta lambda xi pi sigma upsilon varphi psi omega"
"""Those whose capitals, which stand 32 before, are not Latin letters too."""
_GREEK = {0x3B1 + place: name for place, name in enumerate(_SMALL.split()) if name != "-"}
_CAPITALS = {
    code - 32: name.removeprefix("var").capitalize()
    for code, name in _GREEK.items()
    if name in _WITH_CAPITALS.split()
}
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "{}$&#%_"}
    | {sign: f"${command}$" for sign, command in _IN_MATHS.items()}
    | {chr(code): f"$\\{command}$" for code, command in (_GREEK | _CAPITALS).items()}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"\N{EN DASH}": "--", "\N{NO-BREAK SPACE}": "~", "\N{DAGGER}": r"\dag{}"}
    | {'"': r"\texttt{\char34}", "`": r"\`{}", "\0": "{}"}
)
_NOT_IN_PDFLATEX = re.compile("[^\0-\u017f\u2010-\u2026]")
"""Letters for which pdfLaTeX has no font."""
_FORMULA = re.compile("'|[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20].", re.DOTALL)
"""The beginning of a text that spreadsheets execute; a sign alone is a text."""
_MARKUP = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])"  # a backslash before a sign
    r"|([`*~$])(?=.*\1)"  # the first of a pair
    r"|(?<![^\W_])_|_(?![^\W_])"  # at the edge of a word
    r"|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\[(?=.*\]\()|\|"
)
"""Signs that Markdown would not show as they are."""


def csv_text(lines: Sequence[Mapping[str, object]], columns: Sequence[str] = ()) -> str:
    """Format CSV with the keys of `lines` as its head, or those that `columns` choose.

    A list, one number per seed, is one cell with spaces between, and "-" for an unknown number.
    """

    def cell(value: object, unknown: str = "") -> str:
        if isinstance(value, list | tuple):
            return " ".join(cell(each, "-") for each in value)
        if isinstance(value, float):
            return f"{value:.10g}"
        return unknown if value is None else str(_inert(value))

    frame = pd.DataFrame([{key: cell(value) for key, value in line.items()} for line in lines])
    by_key = {column_key(key): key for key in frame}
    chosen = [by_key[key] for key in chosen_keys(columns, by_key)]
    return frame.to_csv(columns=chosen or None, index=False, lineterminator="\n")


def frame_to_csv(frame: pd.DataFrame) -> str:
    """Format a frame of numbers and texts as CSV."""
    names = [name for name in frame.columns if not is_numeric_dtype(frame[name])]
    inert = frame.assign(**{str(name): frame[name].map(_inert) for name in names})
    return inert.to_csv(index=False, lineterminator="\n", float_format="%.10g")


def _inert(value: object) -> object:
    """Return a value of CSV, in which a spreadsheet finds nothing to execute.

    An apostrophe is put before a text that begins like a formula, or with an apostrophe: whoever
    reads the text takes the first apostrophe away, and spreadsheets hide it.

    >>> _inert("=cmd|' /C calc'!A0"), _inert("-"), _inert(-0.5), _inert("'a")
    ("'=cmd|' /C calc'!A0", '-', -0.5, "''a")
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def json_text(content: Mapping[str, Any], columns: Sequence[str] = ()) -> str:
    """Format everything as JSON. Raises UsageError if `columns` are chosen."""
    if columns:
        raise UsageError("JSON always has everything: leave --show out, or write --csv")
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def pipe_table(table: pd.DataFrame, left: Sequence[object]) -> str:
    """Format a Markdown table; the columns in `left` are aligned left.

    >>> print(pipe_table(pd.DataFrame({"name": ["rope"], "seeds": ["3"]}), ["name"]), end="")
    | name | seeds |
    | --- | ---: |
    | rope | 3 |
    """
    rule = ["---" if head in left else "---:" for head in table]
    lines = [list(map(str, table)), rule, *table.astype(str).to_numpy().tolist()]
    texts = (" | ".join(map(as_markdown, line)) for line in lines)
    return "".join(f"| {text} |\n" for text in texts)


def as_markdown(text: str) -> str:
    r"""Return Markdown that shows `text`.

    >>> print(as_markdown("b_f=5, 3 % ± <0.1, 9.1*"), as_markdown("_a_ *b* <i> x|y"))
    b_f=5, 3 % ± <0.1, 9.1* \_a\_ \*b* \<i> x\|y
    """
    return _MARKUP.sub(r"\\\g<0>", text)


def from_markdown(text: str) -> str:
    """Return the text that the Markdown of `as_markdown` shows."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


def column_table(columns: Sequence[Column[T]], rows: Iterable[T]) -> str:
    """Format the texts of columns as a Markdown table."""
    return pipe_table(texts(columns, rows), [column.head for column in columns if column.left])


def to_csv(ranking: Ranking[T], columns: Sequence[str] = ()) -> str:
    """Format the numbers of a ranking: shares in 0..1, times in seconds, lists as in `csv_text`.

    Columns that are also in a sweep's table have the same names there.
    """
    return csv_text(ranking.numbers(), columns)


def to_markdown(ranking: Ranking[T], columns: Sequence[str] = ()) -> str:
    """Format a heading and a pipe table for each section, then the notes.

    columns  the keys of the columns, if some are chosen
    """
    shown = choose(ranking.columns, columns)
    pieces = [f"# {as_markdown(ranking.heading)}\n"]
    for title, reason, rows in ranking.sections:
        pieces.append(f"## {title}\n")
        if reason:
            pieces.append(f"{reason[0].upper()}{reason[1:]}.\n")
        pieces.append(column_table(shown, rows))
    return "\n".join([*pieces, *(f"{as_markdown(note)}\n" for note in ranking.notes())])


def floating(
    sections: Sequence[Section[T]],
    columns: Sequence[Column[T]],
    caption: str,
    label: str,
    comments: Sequence[str] = (),
) -> str:
    """Format a LaTeX table: plain if it fits a column of _PAGE points, else across the page.

    A table of more rows than a page has is a longtable. The best of a section is in bold.
    """
    parts = {each.heading: short_texts(columns, each.rows) for each in sections}
    left = [column.head for column in columns if column.left]
    bold = {
        (each.heading, place, column.head)
        for each in sections
        for column in columns
        for place in column.best_of(each.rows)
    }
    below = f"\\caption{{{escape(caption)}}}\n\\label{{tab:{label}}}"
    sizes = [size for size, digit in _SIZES.items() if _width(parts, digit) <= _PAGE]
    size, rows = (sizes or [*_SIZES])[0 if sizes else -1], sum(map(len, parts.values()))
    look, needs = f"\\{size}\n\\setlength{{\\tabcolsep}}{{{_GAP}pt}}", "booktabs"
    if rows > _LONG:
        needs += "} and \\usepackage{longtable"
        body = booktabs(parts, left, bold, below)
        text = f"{{{look}\n{body}}}\n"
    elif sizes:
        body = booktabs(parts, left, bold)
        text = f"\\begin{{table}}\n\\centering\n{look}\n{body}{below}\n\\end{{table}}\n"
    else:
        needs += "} and \\usepackage{graphicx"
        body = booktabs(parts, left, bold)
        text = (
            f"\\begin{{table*}}\n\\centering\n{look}\n"
            # \width is the table's own: it shrinks to the page if it is wider.
            "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{"
            f"{body.rstrip()}}}\n{below}\n\\end{{table*}}\n"
        )
    comments = [f"needs \\usepackage{{{needs}}}", *comments]
    if letters := sorted(set(_NOT_IN_PDFLATEX.findall(text))):
        comments.insert(1, f"needs XeLaTeX or LuaLaTeX, and a font that has {' '.join(letters)}")
    notes = "".join(f"% {line}\n" for note in comments for line in wrap(note, _COMMENT_WIDTH))
    return notes + text


def _width(parts: Mapping[str, pd.DataFrame], digit: float) -> float:
    """Estimate the width of a table in points, from the width of a digit."""
    table = pd.concat(parts.values())
    longest = [
        max(*map(len, table[head]), *map(len, head_lines(str(head))), 1) for head in table.columns
    ]
    return digit * sum(longest) + 2 * _GAP * len(longest)


def booktabs(
    parts: Mapping[str, pd.DataFrame],
    left: Sequence[str],
    bold: Collection[tuple[str, int, str]] = (),
    caption: str = "",
) -> str:
    """Format a LaTeX tabular for the package booktabs, each part under its title.

    Heads are broken into short lines; the columns in `left` are aligned left.

    bold     cells, each by the title of its part, its row and its head
    caption  of a longtable, which it then is
    """
    heads = list(map(str, next(iter(parts.values()))))
    align = "".join("l" if head in left else "r" for head in heads)
    above = " & ".join(map(_stack, heads, align)) + r" \\"
    kind = "longtable" if caption else "tabular"
    lines = [
        f"\\begin{{{kind}}}{{{align}}}",
        *[rf"{caption} \\"] * bool(caption),
        "\\toprule",
        above,
    ]
    lines += ["\\midrule", "\\endhead", "\\bottomrule", "\\endfoot"] if caption else []
    for number, (title, table) in enumerate(parts.items()):
        lines += ["\\midrule"] * (number > 0 or not caption)
        lines.append(f"\\multicolumn{{{len(heads)}}}{{l}}{{\\textit{{{escape(title)}}}}} \\\\")
        for place, cells in enumerate(table.to_numpy()):
            texts = [
                f"\\textbf{{{escape(cell)}}}" if (title, place, head) in bold else escape(cell)
                for head, cell in zip(heads, cells, strict=True)
            ]
            lines.append(" & ".join(texts) + r" \\")
    lines += ["\\bottomrule"] if not caption else []
    return "\n".join([*lines, f"\\end{{{kind}}}"]) + "\n"


def escape(text: str) -> str:
    """Return LaTeX that prints `text`.

    >>> escape("fox:b_f=5, 3 % ± <0.1")
    'fox:b\\\\_f=5, 3 \\\\% $\\\\pm$ $<$0.1'
    """
    # Two of some signs would be another one, and "[" or "*" belongs to the row's end before it.
    return re.sub(r"^(?=[\[*])|(?<=([-',]))(?=\1)", "\0", text).translate(_LATEX)


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


def short_columns(board: Board, columns: Sequence[str] = ()) -> list[Column[Row]]:
    """Return the columns that are chosen, or those of which something is known."""
    shown = choose(board.columns, columns)
    return shown if columns else with_something_known(shown, board.rows)


def short_texts(columns: Sequence[Column[T]], rows: Iterable[T]) -> pd.DataFrame:
    """Return texts for little room, with a dagger for "± over problems"."""
    return texts(columns, rows).replace({f"1 {OVER_PROBLEMS}": f"1{ONE_SEED}"})


def legend(board: Board, columns: Sequence[Column[Row]]) -> str:
    """Return two sentences: what was measured, and what the signs in a short table mean."""
    cells = " ".join(short_texts(columns, board.rows).to_numpy().ravel())
    alone = [board.label(row.panel.name) for row in board.rows if len(row.panel.seeds) == 1]
    among = f" among all {board.num_encodings} encodings"
    signs: dict[str, list[str]] = {}
    for column in columns:
        if column.signs:
            signs.setdefault(column.signs, []).append(column.head)
    meanings = [
        f"Ranked by the mean out of distribution{among * (len(board.rows) < board.num_encodings)}"
    ]
    if "\N{EN DASH}" in cells:
        meanings.append(
            "in brackets the lowest and the highest seed, where ± would leave 0 to 100 %"
        )
    meanings += [f"{', '.join(heads)}: {meaning}" for meaning, heads in signs.items()]
    meanings += dict.fromkeys(column.legend for column in columns if column.legend)
    if ONE_SEED in cells:
        meanings.append(f"{ONE_SEED}: one seed, ± over problems")
    elif alone:
        meanings.append(f"± over problems, of one seed: {', '.join(alone)}")
    source = board.source[0].lower() + board.source[1:].rstrip(".")
    return (
        f"Exact match in percent, mean ± 95 % interval over seeds (Student t): {source}. "
        f"{'; '.join(meanings)}."
    )


def _board_to_latex(board: Board, columns: Sequence[str] = ()) -> str:
    """Format a floating table, with the notes as comments."""
    shown = short_columns(board, columns)
    if not columns:
        shown = [column for column in shown if column.printed]
    split = SPLIT_WORDS.get(board.panels[0].first.split) and board.panels[0].first.split
    name = re.sub(r"\W+", "-", f"{board.preset} {split or ''}".strip())
    return floating(board.sections, shown, legend(board, shown), name, board.notes())


def _board_to_json(board: Board, columns: Sequence[str] = ()) -> str:
    """Format everything as JSON: keys are stable, and `schema` counts changes of them."""

    def content(row: Row) -> dict[str, Any]:
        own = (column for column in board.columns if column.value is not None)
        known = row.content()
        return known | {
            key: value
            for column in own
            for key, value in column.entries(row).items()
            if key not in known
        }

    document = {
        "schema": 3,
        "kind": "leaderboard",
        "preset": board.preset,
        **board.about(),
        "references": board.references,
        "tests": board.num_tests,
        "level": LEVEL,
        "conclusion": conclusion(board),
        "contrasts": [contrast.content() for contrast in board.contrasts],
        "sections": [
            {"title": title, "why": reason, "rows": list(map(content, rows))}
            for title, reason, rows in board.sections
        ],
        "left_out": [{"runs": runs, "why": reason} for runs, reason in board.left_out],
        "notes": board.notes(),
    }
    return json_text(document, columns)


FORMATS: Mapping[str, Callable[..., str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "latex": _board_to_latex,
    "json": _board_to_json,
}
FOR_PEOPLE = ("markdown", "latex")
"""The formats in which encodings have their labels; programs read the others."""
