"""The table of a sweep: encodings, each with the settings that vary."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tape_arith.arith.compare.columns import Column, choose, numbers, panel_columns
from tape_arith.arith.compare.labels import panel_labels
from tape_arith.arith.compare.leaderboard import by_rank
from tape_arith.arith.compare.tables import column_table, csv_text
from tape_arith.arith.grids.axes import REGIONS
from tape_arith.arith.grids.panel import Panel


class SweptRow(NamedTuple):
    """An encoding with the values of the settings that vary."""

    panel: Panel
    settings: Mapping[str, object]


def in_order(rows: Iterable[SweptRow]) -> list[SweptRow]:
    """Sort all rows as one leaderboard."""
    return sorted(rows, key=lambda row: by_rank(row.panel))


def _columns(rows: Sequence[SweptRow]) -> list[Column[SweptRow]]:
    """Return the columns in the order of files."""

    def setting(key: str) -> Column[SweptRow]:
        # Aligned left, because a terminal repeats left columns in each part of a broken table.
        return Column(key, key, value=lambda row: row.settings[key], left=True)

    panels = [row.panel for row in rows]
    of_panel = panel_columns(panels, panel_labels(panels))
    encoding, *others = of_panel.values()
    return [encoding, *(setting(key) for row in rows[:1] for key in row.settings), *others]


def to_markdown(rows: Sequence[SweptRow]) -> str:
    """Format a Markdown table: mean ± half-width of the 95 % interval, in percent.

    Grids of one axis have a dash in the columns that need two.
    """
    columns = _columns(rows)
    settings = [key for row in rows[:1] for key in row.settings]
    regions = [column.key for column in columns if column.key in REGIONS]
    keys = ["encoding", *settings, "seeds", *regions, "converged"]
    return column_table(choose(columns, keys), rows)


def to_csv(rows: Sequence[SweptRow]) -> str:
    """Format CSV with fractions in 0..1; `_low` and `_high` are the interval, clipped to 0..1.

    The column `interval` says what the interval is over: "seeds" (Student t) or "this run only"
    (problems).
    """
    return csv_text(numbers(_columns(rows), rows))


FORMATS: Mapping[str, Callable[[Sequence[SweptRow]], str]] = {"md": to_markdown, "csv": to_csv}
