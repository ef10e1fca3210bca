"""Columns and leaderboards as Markdown, CSV and JSON; a leaderboard as LaTeX too."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pandas as pd
from pandas.api.types import is_numeric_dtype

from tape_arith.arith.compare.board import Board, Ranking, Row
from tape_arith.arith.compare.captions import ONE_SEED, SPLIT_WORDS
from tape_arith.arith.compare.columns import (
    Column,
    choose,
    chosen_keys,
    column_key,
    texts,
    with_something_known,
)
from tape_arith.arith.compare.conclusion import conclusion
from tape_arith.arith.compare.effects import LEVEL
from tape_arith.arith.compare.latex import floating, short_texts
from tape_arith.arith.errors import UsageError

T = TypeVar("T")
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

    Columns that are also in a sweep's table have the same names there. The key of a column for
    people that is no name in the file chooses all its numbers.
    """
    lines = ranking.numbers()
    names = {
        column.key: [name for row in ranking.rows for name in column.entries(row)]
        for column in ranking.columns
    }
    names |= {column_key(name): [name] for line in lines for name in line}
    keys = map(column_key, columns)
    return csv_text(lines, [name for key in keys for name in names.get(key) or [key]])


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
    return "\n".join([*pieces, *(f"{as_markdown(note)}\n" for note in ranking.notes(shown))])


# ---- the leaderboard ---------------------------------------------------------------------------


def short_columns(board: Board, columns: Sequence[str] = ()) -> list[Column[Row]]:
    """Return the columns that are chosen, or those of which something is known."""
    shown = choose(board.columns, columns)
    return shown if columns else with_something_known(shown, board.rows)


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


def _board_to_latex(
    board: Board, columns: Sequence[str] = (), *, captioned: bool = True, label: str = ""
) -> str:
    """Format a floating table, with the notes as comments; its usual label is the preset."""
    shown = short_columns(board, columns)
    if not columns:
        shown = [column for column in shown if column.printed]
    split = SPLIT_WORDS.get(board.panels[0].first.split) and board.panels[0].first.split
    label = label or f"{board.preset} {split or ''}".strip()
    caption, notes = legend(board, shown), board.notes()
    return floating(board.sections, shown, caption, label, notes, captioned=captioned)


def _board_to_json(board: Board, columns: Sequence[str] = ()) -> str:
    """Format everything as JSON: keys are stable, and `schema` counts changes of them."""
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
            {"title": title, "why": reason, "rows": [row.content() for row in rows]}
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
CAPTIONED = ("latex",)
"""The formats with a caption, which may be left out."""
FOR_PEOPLE = ("markdown", *CAPTIONED)
"""The formats in which encodings have their labels; programs read the others."""
