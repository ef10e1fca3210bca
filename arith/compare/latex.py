"""Columns of rows as LaTeX tables, for the package booktabs."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import TypeVar

import pandas as pd

from tape_arith.arith.compare.board import Section
from tape_arith.arith.compare.captions import ONE_SEED
from tape_arith.arith.compare.columns import OVER_PROBLEMS, Column, texts

T = TypeVar("T")
_STACKED = 10
"""The most letters in a line of a head, unless one word is longer."""
_COMMENT_WIDTH = 96
_PAGE, _ACROSS, _GAP = 397.0, 505.0, 3
"""The width of a page of one column of text (5.5 inches) and of one of two (7 inches), and half the
space between two columns of a table, in points."""
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
_GREEK = """
- - Gamma Delta - - - Theta - - Lambda - - Xi - Pi - - Sigma - Upsilon Phi - Psi Omega - - - - - - -
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi - pi rho varsigma sigma
tau upsilon varphi chi psi omega
"""
"""LaTeX's commands for the Greek letters from U+0391 on; it has none for those that Latin has."""
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "{}$&#%_"}
    | {sign: f"${command}$" for sign, command in _IN_MATHS.items()}
    | {code: f"$\\{name}$" for code, name in enumerate(_GREEK.split(), 0x391) if name != "-"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"\N{EN DASH}": "--", "\N{NO-BREAK SPACE}": "~", "\N{DAGGER}": r"\dag{}"}
    | {'"': r"\texttt{\char34}", "`": r"\`{}", "\0": "{}"}
)
_NOT_IN_PDFLATEX = re.compile("[^\0-\u017f\u2010-\u2026]")
"""Letters for which pdfLaTeX has no font."""


def floating(
    sections: Sequence[Section[T]],
    columns: Sequence[Column[T]],
    caption: str,
    label: str,
    comments: Sequence[str] = (),
    *,
    captioned: bool = True,
) -> str:
    """Format a LaTeX table: plain if it fits a column of _PAGE points, else wide, else turned.

    A table of more rows than a page has is a longtable, turned if it is too wide. The best of a
    section is in bold, which the caption says. A table that is not `captioned` is for a float that
    has a caption of its own; what ours says is a comment. Spaces and signs of `label` become "-".
    """
    parts = {each.heading: short_texts(columns, each.rows) for each in sections}
    left = [column.head for column in columns if column.left]
    bold = {
        (each.heading, place, column.head)
        for each in sections
        for column in columns
        for place in column.best_of(each.rows)
    }
    if bold:
        caption += " In bold the best of its section."
    label = re.sub(r"\W+", "-", label)
    below = f"\\caption{{{escape(caption)}}}\n\\label{{tab:{label}}}" if captioned else ""
    fitting = next((size for size, digit in _SIZES.items() if _width(parts, digit) <= _PAGE), None)
    size, is_long = fitting or [*_SIZES][-1], sum(map(len, parts.values())) > _LONG
    look = f"\\{size}\n\\setlength{{\\tabcolsep}}{{{_GAP}pt}}"
    kind, package = "table", "longtable" if is_long else ""
    body = booktabs(parts, left, bold, below if is_long else None)
    if is_long and not fitting:  # no box shrinks what spans pages
        package += ",pdflscape"
        body = f"\\begin{{landscape}}\n{body}\\end{{landscape}}\n"
    elif not fitting:
        # \width is the table's own: it shrinks to the line if it is wider.
        shrunk = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}"
        body = f"{shrunk}{{{body.rstrip()}}}\n"
        is_turned = captioned and _width(parts, _SIZES[size]) > _ACROSS
        kind, package = ("sidewaystable*", "rotating") if is_turned else ("table*", "graphicx")
    text = f"{look}\n{body}"
    if is_long or not captioned:
        text = f"{{{text}}}\n"
    else:
        text = f"\\begin{{{kind}}}\n\\centering\n{text}{below}\n\\end{{{kind}}}\n"
    needs = " and ".join(f"\\usepackage{{{each}}}" for each in ("booktabs", package) if each)
    comments = [f"needs {needs}", *[caption] * (not captioned), *comments]
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
    caption: str | None = None,
) -> str:
    """Format a LaTeX tabular for the package booktabs, each part under its title.

    Heads are broken into short lines; the columns in `left` are aligned left.

    bold     cells, each by the title of its part, its row and its head
    caption  of a longtable, which it then is; "" for one without
    """
    heads = list(map(str, next(iter(parts.values()))))
    align = "".join("l" if head in left else "r" for head in heads)
    above = " & ".join(map(_stack, heads, align)) + r" \\"
    long = caption is not None
    kind = "longtable" if long else "tabular"
    across = f"\\multicolumn{{{len(heads)}}}{{l}}"
    top = ["\\toprule", above]
    if long:
        top.append("\\midrule")
        again = rf"{across}{{\tablename~\thetable{{}} (continued)}}"
        first, later = ([rf"{text} \\"] * bool(caption) for text in (caption, again))
        top = [*first, *top, "\\endfirsthead", *later, *top, "\\endhead"]
        top += ["\\bottomrule", "\\endfoot"]
    lines = [f"\\begin{{{kind}}}{{{align}}}", *top]
    for number, (title, table) in enumerate(parts.items()):
        lines += ["\\midrule"] * (number > 0 or not long)
        # The star keeps a title on the page of its first row.
        lines.append(rf"{across}{{\textit{{{escape(title)}}}}} \\" + "*" * long)
        for place, cells in enumerate(table.to_numpy()):
            texts = [
                f"\\textbf{{{escape(cell)}}}" if (title, place, head) in bold else escape(cell)
                for head, cell in zip(heads, cells, strict=True)
            ]
            lines.append(" & ".join(texts) + r" \\")
    lines += ["\\bottomrule"] * (not long)
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


def short_texts(columns: Sequence[Column[T]], rows: Iterable[T]) -> pd.DataFrame:
    """Return texts for little room, with a dagger for "± over problems"."""
    return texts(columns, rows).replace({f"1 {OVER_PROBLEMS}": f"1{ONE_SEED}"})
