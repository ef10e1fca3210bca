"""Ablations: an encoding next to itself without one part, as tables."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from tape_arith.arith.compare.captions import signed
from tape_arith.arith.compare.labels import display_names
from tape_arith.arith.compare.rows import Row, flat, rows
from tape_arith.arith.compare.tables import csv_text, pipe_table
from tape_arith.arith.grids.axes import Region
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.grids.statistics import holm, welch
from tape_arith.arith.registry.names import name_and_options

REGIONS: tuple[Region, Region] = ("in_distribution", "out_of_distribution")
_TESTED = REGIONS[1]


class Member(NamedTuple):
    """An encoding compared out of distribution with the first member of its family.

    `label` is the options that change the encoding; for the first member, its name. `difference` is
    its mean minus the first member's (None if nothing is out of distribution). `p` is from Welch's
    test over seeds, Holm-adjusted for the tests of the family; None for the first member, for one
    seed, and for an encoding that has not converged, which is not ranked either. If the unchanged
    encoding is not scored, nothing is compared, and labels are names.
    """

    row: Row
    label: str
    difference: float | None = None
    p: float | None = None

    @property
    def unchanged(self) -> bool:
        """Tell whether this is the encoding as it is, without options."""
        return _family(self.row.encoding) == self.row.encoding

    @property
    def points(self) -> str:
        """The difference as "+3.1", "-" if it is unknown."""
        return "-" if self.difference is None else signed(100 * self.difference, 1)


Families = Sequence[Sequence[Member]]
"""One sequence of members per family, the unchanged encoding first."""


def families(panels: Sequence[Panel]) -> list[list[Member]]:
    """Group `panels` by the encoding that their names begin with, the unchanged one first."""
    by_name = {row.encoding: row for row in rows(panels)}
    grouped: dict[str, list[Row]] = {}
    for panel in panels:
        grouped.setdefault(_family(panel.name), []).append(by_name[panel.name])
    return [
        _members(name, sorted(group, key=lambda row: row.encoding != name))
        for name, group in grouped.items()
    ]


def _family(name: str) -> str:
    return name_and_options(name)[0]


def _members(name: str, group: Sequence[Row]) -> list[Member]:
    first, *changed = group
    if first.encoding != name:
        return [Member(row, row.encoding) for row in group]
    tests = [
        None if first.mark or row.mark else welch(row.values[_TESTED], first.values[_TESTED])
        for row in changed
    ]
    adjusted = iter(holm([test.p for test in tests if test is not None]))
    members = [Member(first, first.encoding)]
    for row, test in zip(changed, tests, strict=True):
        mean, base = row.means[_TESTED], first.means[_TESTED]
        difference = None if mean is None or base is None else mean.mean - base.mean
        label = row.encoding.removeprefix(f"{name}:").replace(":", ", ")
        members.append(Member(row, label, difference, None if test is None else next(adjusted)))
    return members


def to_markdown(families: Families) -> str:
    """Format a pipe table of all families, means ± half-width of the 95 % interval in percent."""
    labels = labels_of(families)
    table = pd.DataFrame(
        {
            "encoding": labels[member.row.encoding],
            "seeds": member.row.seed_count,
            **member.row.texts(*REGIONS),
            "difference to the first, points": member.points,
            "p (Welch, Holm)": "-" if member.p is None else f"{member.p:.2g}",
            "converged": member.row.mark or "yes",
        }
        for members in families
        for member in members
    )
    return pipe_table(table)


def labels_of(families: Families) -> dict[str, str]:
    return display_names(member.row.encoding for members in families for member in members)


def to_csv(families: Families) -> str:
    """Format the columns of a sweep's table, the difference (as a fraction) and its p."""
    lines = [
        {
            "family": _family(member.row.encoding),
            **flat(member.row),
            "difference": member.difference,
            "p_welch_holm": member.p,
        }
        for members in families
        for member in members
    ]
    return csv_text(lines)


FORMATS: dict[str, Callable[[Families], str]] = {"md": to_markdown, "csv": to_csv}
