"""Tables of text, in Markdown and in LaTeX."""

from collections.abc import Sequence

Cells = Sequence[Sequence[str]]
"""Rows of cells, each row as long as the head."""

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


def booktabs(head: Sequence[str], align: str, parts: Sequence[tuple[str, Cells]]) -> str:
    """A LaTeX tabular for the package booktabs: each part under its title, if it has one."""
    lines = [f"\\begin{{tabular}}{{{align}}}", "\\toprule", _line(head)]
    for title, body in parts:
        lines.append("\\midrule")
        if title:
            lines.append(f"\\multicolumn{{{len(head)}}}{{l}}{{\\textit{{{escape(title)}}}}} \\\\")
        lines += map(_line, body)
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def escape(text: str) -> str:
    """`text` as LaTeX that prints it.

    >>> escape("fox:b_f=5, 3 % ± <0.1")
    'fox:b\\\\_f=5, 3 \\\\% $\\\\pm$ $<$0.1'
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
