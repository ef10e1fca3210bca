"""Tables of text, in Markdown and in LaTeX."""

from collections.abc import Sequence
from textwrap import wrap

Cells = Sequence[Sequence[str]]
"""Rows of cells, each row as long as the head."""
LINE = 10
"""So many letters of a head stand in a line, or one word."""

_LATEX = {
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
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MINUS SIGN}": "$-$",
    "\N{GREATER-THAN OR EQUAL TO}": r"$\ge$",
    "\N{UPWARDS ARROW}": r"$\uparrow$",
    "\N{DOWNWARDS ARROW}": r"$\downarrow$",
    "\N{NO-BREAK SPACE}": "~",
    "\N{DAGGER}": r"\dag{}",
}


def pipe_table(head: Sequence[str], align: str, body: Cells) -> str:
    """Markdown; `align` has a letter a column, l or r.

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
    """A LaTeX tabular for the package booktabs: each part under its title, if it has one. A
    `stacked` head is in lines as short as its words."""
    above = " & ".join(map(_stack, head, align)) + r" \\" if stacked else _line(head)
    lines = [f"\\begin{{tabular}}{{{align}}}", "\\toprule", above]
    for title, body in parts:
        lines.append("\\midrule")
        if title:
            lines.append(f"\\multicolumn{{{len(head)}}}{{l}}{{\\textit{{{escape(title)}}}}} \\\\")
        lines += map(_line, body)
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def _stack(head: str, side: str) -> str:
    """A cell of several lines, a unit with the word before it."""
    words = wrap(
        head.replace(" %", "\N{NO-BREAK SPACE}%"),
        LINE,
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = r" \\ ".join(map(escape, words))
    return f"\\shortstack[{side}]{{{lines}}}" if len(words) > 1 else lines


def escape(text: str) -> str:
    """`text` as LaTeX that prints it.

    >>> escape("fox:b_f=5, 3 % ± <0.1")
    'fox:b\\\\_f=5, 3 \\\\% $\\\\pm$ $<$0.1'
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
