"""Tables that are no wider than the terminal, with short notes."""

import re
import sys
from collections.abc import Mapping, Sequence

import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tape_arith.arith.compare.board import Board, Row
from tape_arith.arith.compare.captions import left_out
from tape_arith.arith.compare.columns import Column
from tape_arith.arith.compare.effects import contrasts_note
from tape_arith.arith.compare.latex import head_lines, short_texts
from tape_arith.arith.compare.tables import from_markdown, legend, short_columns
from tape_arith.arith.terminal import escape_control

_LONGEST_NAME = 26
"""The most letters in a line of a name, or of another word, where room is short."""
_NOTES_WIDTH = 100
_GAP = 2
"""Spaces between columns."""


def print_board(
    board: Board,
    columns: Sequence[str] = (),
    *,
    wide: bool = False,
    advice: str = "--wide shows all, --show chooses.",
    console: Console | None = None,
) -> None:
    """Print a leaderboard with the columns that fit, or with `columns`, or, if `wide`, with all.

    `advice` says how to see the columns that do not fit.
    """
    console = console or Console(highlight=False)
    every, room = short_columns(board, columns), console.width
    widths, shown = _widths(short_texts(every, board.rows)), every
    if not (columns or wide):
        widths["encoding"] = min(widths["encoding"], _LONGEST_NAME)
        shown = _fitting(every, widths, room)
    console.width = max(room, sum(widths[column.head] + _GAP for column in shown))
    console.print(_text(board.heading), style="bold")
    notes_width = min(room, _NOTES_WIDTH)
    left = [column.head for column in shown if column.left]
    for number, section in enumerate(board.sections):
        console.print(_text(f"\n{section.heading}"), style="italic", width=notes_width)
        lines = short_texts(shown, section.rows)
        console.print(_rich(lines, left, widths, header=number == 0))
    notes = [legend(board, shown)]
    if hidden := [column.key for column in every if column not in shown]:
        notes.append(f"Not shown: {', '.join(hidden)}. {advice}")
    contrasts = contrasts_note(board.contrasts, board.labels)
    for note in [*notes, *filter(None, [contrasts]), *left_out(board.left_out)]:
        console.print(_text(f"\n{note}"), width=notes_width)


def _fitting(
    columns: Sequence[Column[Row]], widths: Mapping[str, int], room: int
) -> list[Column[Row]]:
    """Choose columns that fit in `room` together, by importance; return them in table order."""
    fitting = list[Column[Row]]()
    for column in sorted(columns, key=lambda column: column.importance):
        room -= widths[column.head] + _GAP
        if room < -1:  # no gap follows the last column, but for one letter
            break
        fitting.append(column)
    return [column for column in columns if column in fitting]


def print_markdown(text: str, console: Console | None = None) -> None:
    """Print Markdown; in a terminal or to a `console`, make tables fit and wrap paragraphs."""
    if console is None and not sys.stdout.isatty():
        print(text, end="")
        return
    console = console or Console(highlight=False)
    for number, block in enumerate(re.findall(r"(?:^\|.*\n)+|^[^|\n].*\n", text, re.MULTILINE)):
        if number:
            console.print()
        if not block.startswith("|"):
            console.print(
                _text(from_markdown(block.rstrip())), width=min(console.width, _NOTES_WIDTH)
            )
            continue
        head, rule, *body = [
            list(map(from_markdown, line[2:-2].split(" | "))) for line in block.splitlines()
        ]
        left = [name for name, side in zip(head, rule, strict=True) if side == "---"]
        _print_table(console, pd.DataFrame(body, columns=head), left)


def _print_table(console: Console, table: pd.DataFrame, left: Sequence[str]) -> None:
    """Print a table with its cells wrapped, or in parts if words would not fit.

    Each part repeats the columns in `left`, or the first column if `left` is empty.
    """
    keys = left or [str(table.columns[0])]
    words = _widths(table.map(lambda cell: max(cell.split(), key=len, default="")))
    least = {head: min(width, _LONGEST_NAME) for head, width in words.items()}
    parts = list[list[str]]()
    for head in (head for head in least if head not in keys):
        part = [*(parts[-1] if parts else []), head]
        if len(part) > 1 and sum(least[one] + _GAP for one in (*keys, *part)) <= console.width:
            parts[-1] = part
        else:
            parts.append([head])
    for number, part in enumerate(parts or [[]]):
        if number:
            console.print()
        shown = table[[head for head in least if head in keys or head in part]]
        widths = _widths(shown)
        while sum(widths.values()) + _GAP * len(widths) > console.width:
            longest = max(widths, key=lambda head: (widths[head] > least[head], widths[head]))
            if widths[longest] == 1:
                break
            widths[longest] -= 1
        console.print(_rich(shown, left, widths))


def _widths(table: pd.DataFrame) -> dict[str, int]:
    """Return how many letters the longest line of each column has."""
    return {str(head): max(map(cell_len, [*head_lines(str(head)), *table[head]])) for head in table}


def _rich(
    table: pd.DataFrame, left: Sequence[str], widths: Mapping[str, int], *, header: bool = True
) -> Table:
    printed = Table(box=box.SIMPLE_HEAD, show_header=header, show_edge=False, padding=(0, 1, 0, 0))
    stacked = [head_lines(str(head)) for head in table]
    height = max(map(len, stacked))
    for head, lines in zip(map(str, table), stacked, strict=True):
        printed.add_column(
            _text("\n" * (height - len(lines)) + "\n".join(lines)),
            justify="left" if head in left else "right",
            overflow="fold",
            width=widths[head],
        )
    for cells in table.to_numpy():
        printed.add_row(*map(_text, cells))
    return printed


def _text(text: str) -> Text:
    """Return `text` in which neither markup nor a command to the terminal has an effect."""
    return Text(escape_control(text))
