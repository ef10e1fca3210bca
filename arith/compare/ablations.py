"""Compare an encoding with its ablations, variants of it without one part, as tables."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tape_arith.arith.compare.captions import signed
from tape_arith.arith.compare.columns import Column, choose, numbers, panel_columns
from tape_arith.arith.compare.labels import panel_labels
from tape_arith.arith.compare.tables import column_table, csv_text
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

    panel: Panel
    label: str
    difference: float | None = None
    p: float | None = None

    @property
    def unchanged(self) -> bool:
        """Tell whether this is the encoding without options."""
        return _family(self.panel.name) == self.panel.name

    @property
    def points(self) -> str:
        """The difference as "+3.1"; "-" if it is unknown."""
        return "-" if self.difference is None else signed(100 * self.difference, 1)


Families = Sequence[Sequence[Member]]
"""One sequence of members per family, the unchanged encoding first."""


def families(panels: Sequence[Panel]) -> list[list[Member]]:
    """Group `panels` by the encoding that their names begin with, the unchanged one first."""
    grouped: dict[str, list[Panel]] = {}
    for panel in panels:
        grouped.setdefault(_family(panel.name), []).append(panel)
    return [
        _members(name, sorted(group, key=lambda panel: panel.name != name))
        for name, group in grouped.items()
    ]


def _family(name: str) -> str:
    return name_and_options(name)[0]


def _members(name: str, group: Sequence[Panel]) -> list[Member]:
    """Compare the panels of the family `name` with the first one, the encoding without options."""
    first, *changed = group
    if first.name != name:
        return [Member(panel, panel.name) for panel in group]
    tests = [
        None
        if first.convergence or panel.convergence
        else welch(panel.seed_means(_TESTED), first.seed_means(_TESTED))
        for panel in changed
    ]
    adjusted = iter(holm([test.p for test in tests if test is not None]))
    members = [Member(first, first.name)]
    for panel, test in zip(changed, tests, strict=True):
        mean, base = panel.mean(_TESTED), first.mean(_TESTED)
        difference = None if mean is None or base is None else mean - base
        label = panel.name.removeprefix(f"{name}:").replace(":", ", ")
        members.append(Member(panel, label, difference, None if test is None else next(adjusted)))
    return members


def _columns(members: Sequence[Member]) -> list[Column[Member]]:
    """Return the columns in the order of files."""
    panels = [member.panel for member in members]
    return [
        Column("family", value=lambda member: _family(member.panel.name)),
        *panel_columns(panels, panel_labels(panels)).values(),
        Column(
            "difference",
            "difference to the first, points",
            lambda member: member.points,
            value=lambda member: member.difference,
        ),
        Column(
            "p",
            "p (Welch, Holm)",
            lambda member: "-" if member.p is None else f"{member.p:.2g}",
            value=lambda member: member.p,
            name="p_welch_holm",
        ),
    ]


def to_markdown(families: Families) -> str:
    """Format a pipe table of all families, means ± half-width of the 95 % interval in percent."""
    members = members_of(families)
    keys = ["encoding", "seeds", *REGIONS, "difference", "p", "converged"]
    return column_table(choose(_columns(members), keys), members)


def members_of(families: Families) -> list[Member]:
    return [member for members in families for member in members]


def to_csv(families: Families) -> str:
    """Format the columns of a sweep's table, the difference (as a fraction) and its p."""
    members = members_of(families)
    return csv_text(numbers(_columns(members), members))


FORMATS: dict[str, Callable[[Families], str]] = {"md": to_markdown, "csv": to_csv}
