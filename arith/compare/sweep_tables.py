"""The tables of a sweep: encodings with the settings that vary, and with and without a part."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from tape_arith.arith.compare.captions import signed
from tape_arith.arith.compare.columns import UNKNOWN, Column, choose, numbers, panel_columns
from tape_arith.arith.compare.effects import RANKED_BY, Effect, contrasts, points
from tape_arith.arith.compare.labels import panel_labels
from tape_arith.arith.compare.leaderboard import by_rank
from tape_arith.arith.compare.tables import column_table, csv_text
from tape_arith.arith.grids.axes import REGIONS, Region
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.registry.names import name_and_options

DRAWN: tuple[Region, Region] = ("in_distribution", RANKED_BY)
"""The regions of a table, and of a figure, of ablations."""
T = TypeVar("T")


@dataclass(frozen=True)
class Table(Generic[T]):
    """Rows with a panel each, and their columns in the order of files."""

    rows: Sequence[T]
    columns: Sequence[Column[T]]
    printed: Sequence[str]
    """The keys of the columns for people."""

    def to_markdown(self) -> str:
        """Format a Markdown table: mean ± half-width of the 95 % interval, in percent.

        Grids of one axis have a dash in the columns that need two.
        """
        return column_table(choose(self.columns, self.printed), self.rows)

    def to_csv(self) -> str:
        """Format CSV with fractions in 0..1; `_low` and `_high` are the interval, clipped to 0..1.

        The column `interval` says what the interval is over: "seeds" (Student t) or "problems"
        (problems).
        """
        return csv_text([numbers(self.columns, row) for row in self.rows])


# ---- settings that vary ------------------------------------------------------------------------


class SweptRow(NamedTuple):
    """An encoding with the values of the settings that vary."""

    panel: Panel
    settings: Mapping[str, object]


def in_order(rows: Iterable[SweptRow]) -> list[SweptRow]:
    """Sort all rows as one leaderboard."""
    return sorted(rows, key=lambda row: by_rank(row.panel))


def sweep_table(rows: Sequence[SweptRow]) -> Table[SweptRow]:
    """Return the table of encodings and settings."""

    def setting(key: str) -> Column[SweptRow]:
        # Aligned left, because a terminal repeats left columns in each part of a broken table.
        return Column(key, key, value=lambda row: row.settings[key], left=True)

    panels, settings = [row.panel for row in rows], list(rows[0].settings)
    encoding, *measured = panel_columns(panels, panel_labels(panels)).values()
    regions = [column.key for column in measured if column.key in REGIONS]
    return Table(
        rows,
        [encoding, *map(setting, settings), *measured],
        ["encoding", *settings, "seeds", *regions, "converged"],
    )


# ---- ablations ---------------------------------------------------------------------------------


class Member(NamedTuple):
    """An encoding compared out of distribution with the first member of its family.

    If the unchanged encoding is not scored, nothing is compared, and labels are names.
    """

    panel: Panel
    label: str
    """The options that change the encoding; of the first member its name."""
    difference: float | None = None
    """Its mean minus the first member's; None if nothing is out of distribution."""
    effect: Effect = Effect()
    """The difference as it is tested in a leaderboard, after Holm over the tests of the family."""

    @property
    def p(self) -> float | None:
        return self.effect.p_holm

    @property
    def family(self) -> str:
        """Return the name without options."""
        return name_and_options(self.panel.name)[0]

    @property
    def unchanged(self) -> bool:
        """Tell whether this is the encoding without options."""
        return self.family == self.panel.name

    @property
    def points(self) -> str:
        """Return the difference as "+3.1 ± 1.2", "+3.1" without a test; "-" if it is unknown."""
        if self.effect.welch is not None:
            return points(self.effect.welch)
        return UNKNOWN if self.difference is None else signed(100 * self.difference, 1)


Families = Sequence[Sequence[Member]]
"""One sequence of members per family, the unchanged encoding first."""


def families(panels: Sequence[Panel]) -> list[list[Member]]:
    """Group `panels` by the encoding that their names begin with, the unchanged one first."""
    grouped: dict[str, list[Panel]] = {}
    for panel in panels:
        grouped.setdefault(name_and_options(panel.name)[0], []).append(panel)
    return [
        _members(name, sorted(group, key=lambda panel: panel.name != name))
        for name, group in grouped.items()
    ]


def _members(name: str, group: Sequence[Panel]) -> list[Member]:
    """Compare the panels of the family `name` with the first one, the encoding without options."""
    first, *changed = group
    if first.name != name:
        return [Member(panel, panel.name) for panel in group]
    tests = contrasts(group, [(panel.name, name) for panel in changed])
    members = [Member(first, name)]
    for panel, test in zip(changed, tests, strict=True):
        mean, base = panel.mean(RANKED_BY), first.mean(RANKED_BY)
        difference = None if mean is None or base is None else mean - base
        label = panel.name.removeprefix(f"{name}:").replace(":", ", ")
        members.append(Member(panel, label, difference, test.effect))
    return members


def ablation_table(families: Families) -> Table[Member]:
    """Return the table of all families: the columns of a sweep, the difference and its p."""
    members = list(chain.from_iterable(families))
    panels = [member.panel for member in members]
    columns = [
        Column("family", value=lambda member: member.family),
        *panel_columns(panels, panel_labels(panels)).values(),
        Column(
            "difference",
            "difference to the first, points",
            lambda member: member.points,
            numbers=lambda member: {
                "difference": member.difference,
                "difference_half_width": member.effect.welch and member.effect.welch.half_width,
            },
        ),
        Column(
            "p",
            "p (Welch, Holm)",
            lambda member: UNKNOWN if member.p is None else f"{member.p:.2g}",
            numbers=lambda member: {"p_welch_holm": member.p},
        ),
    ]
    keys = ["encoding", "seeds", *DRAWN, "difference", "p", "converged"]
    return Table(members, columns, keys)
