"""Encodings and what is left of them without one part: families of runs, and their tables."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tape_arith.arith.figures.captions import Panel, signed
from tape_arith.arith.figures.tables import Row, csv_text, flat, pipe_table, rows, seeds
from tape_arith.arith.scoring.comparisons import holm, welch
from tape_arith.arith.scoring.regions import Region

HEAD = ["encoding", "seeds", "in distribution, %", "out of distribution, %"]
HEAD += ["difference to the first, points", "p (Welch, Holm)", "converged"]
REGION: Region = "out_of_distribution"


class Member(NamedTuple):
    """An encoding of a family, compared with the family's first.

    `difference` is that of their means out of distribution (None if either is not scored to its
    end). `p` is that of Welch's test over seeds, adjusted after Holm for the tests of the family;
    None for the first, for one seed, and for what has not converged, which is not ranked either.
    """

    row: Row
    label: str
    difference: float | None = None
    p: float | None = None

    @property
    def unchanged(self) -> bool:
        """Whether it is the first of its family."""
        return self.label == self.row.encoding


class Family(NamedTuple):
    """An encoding as it is, then with options of its own that change it."""

    name: str
    members: tuple[Member, ...]


def families(panels: Sequence[Panel]) -> list[Family]:
    """Group `panels` by the encoding that their names begin with, in their order; the one without
    options comes first, if it is there. Raises UsageError if grids must not be compared."""
    grouped: dict[str, list[Row]] = {}
    by_name = {row.encoding: row for row in rows(panels)}
    for panel in panels:
        name = panel[0].name
        grouped.setdefault(name.split(":")[0], []).append(by_name[name])
    return [
        Family(name, _members(name, sorted(group, key=lambda row: row.encoding != name)))
        for name, group in grouped.items()
    ]


def _members(name: str, group: Sequence[Row]) -> tuple[Member, ...]:
    first, *changed = group
    tests = [
        None if first.mark or row.mark else welch(_seed_values(row), _seed_values(first))
        for row in changed
    ]
    adjusted = iter(holm([test.p for test in tests if test is not None]))
    members = [Member(first, first.encoding)]
    for row, test in zip(changed, tests, strict=True):
        mean, base = row.means[REGION], first.means[REGION]
        difference = None if mean is None or base is None else mean.mean - base.mean
        label = row.encoding.removeprefix(f"{name}:").replace(":", ", ")
        members.append(Member(row, label, difference, None if test is None else next(adjusted)))
    return tuple(members)


def _seed_values(row: Row) -> list[float]:
    return [value for value in row.values[REGION] if value is not None]


def to_markdown(families: Sequence[Family]) -> str:
    """A pipe table of all families, means ± the half-width of the 95 % interval in percent."""
    body = [
        [
            member.row.encoding,
            seeds(member.row),
            member.row.percent("in_distribution"),
            member.row.percent(REGION),
            points(member),
            "-" if member.p is None else f"{member.p:.2g}",
            member.row.mark or "yes",
        ]
        for family in families
        for member in family.members
    ]
    return pipe_table(HEAD, "lrrrrrl", body)


def to_csv(families: Sequence[Family]) -> str:
    """The columns of `table`, with the difference as a fraction and its p."""
    lines = [
        {
            "family": family.name,
            **flat(member.row),
            "difference": "" if member.difference is None else f"{member.difference:.6f}",
            "p_welch_holm": "" if member.p is None else f"{member.p:.6g}",
        }
        for family in families
        for member in family.members
    ]
    return csv_text(lines)


def points(member: Member) -> str:
    """ "+3.1", "-" if the difference is not known."""
    return "-" if member.difference is None else signed(100 * member.difference, 1)


FORMATS: dict[str, Callable[[Sequence[Family]], str]] = {"md": to_markdown, "csv": to_csv}
