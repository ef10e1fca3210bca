"""An encoding and what is left of it without one part: families of runs, and their table."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.figures.table import Row, csv_text, flat, percent, rows, seeds
from tape_arith.arith.figures.tabular import pipe_table
from tape_arith.arith.scoring.comparisons import holm, welch
from tape_arith.arith.scoring.regions import Region

HEAD = ["encoding", "seeds", "in distribution, %", "out of distribution, %"]
HEAD += ["difference to the first, points", "p (Welch, Holm)", "converged"]
REGION: Region = "out_of_distribution"


class Member(NamedTuple):
    """One encoding of a family, beside the family's first: the difference of their means out of
    distribution (None where either is not scored to its end) and the p that it is none, by Welch's
    test over seeds, adjusted after Holm for the tests of the family; None for the first itself and
    where nothing can be said. What has not converged is not tested: it is not ranked either."""

    row: Row
    label: str
    difference: float | None
    p: float | None


class Family(NamedTuple):
    """An encoding as it is, then with options of its own that change it."""

    name: str
    members: tuple[Member, ...]


def families(panels: Sequence[Panel]) -> list[Family]:
    """`panels` by the encoding that their names begin with, in their order; first in each family
    is the one without options, where it is there.

    Errors: UsageError where the grids must not be compared.
    """
    made = {row.encoding: row for row in rows(panels)}
    grouped: dict[str, list[Row]] = {}
    for panel in panels:
        name = panel[0].name
        grouped.setdefault(name.split(":")[0], []).append(made[name])
    return [
        Family(name, _members(name, sorted(found, key=lambda row: row.encoding != name)))
        for name, found in grouped.items()
    ]


def _members(name: str, found: Sequence[Row]) -> tuple[Member, ...]:
    first, *others = found
    tests = [
        None if first.mark or row.mark else welch(_seeds(row), _seeds(first)) for row in others
    ]
    known = [test.p for test in tests if test is not None]
    adjusted = iter(holm(known))
    members = [Member(first, first.encoding, None, None)]
    for row, test in zip(others, tests, strict=True):
        mine, base = row.means[REGION], first.means[REGION]
        difference = None if mine is None or base is None else mine.mean - base.mean
        label = row.encoding.removeprefix(f"{name}:").replace(":", ", ")
        members.append(Member(row, label, difference, None if test is None else next(adjusted)))
    return tuple(members)


def _seeds(row: Row) -> list[float]:
    return [value for value in row.values[REGION] if value is not None]


def to_markdown(found: Sequence[Family]) -> str:
    """A pipe table of all families, means ± the half-width of the 95 % interval in percent."""
    body = [
        [
            member.row.encoding,
            seeds(member.row),
            percent(member.row.means["in_distribution"]),
            percent(member.row.means[REGION]),
            points(member),
            "-" if member.p is None else f"{member.p:.2g}",
            member.row.mark or "yes",
        ]
        for family in found
        for member in family.members
    ]
    return pipe_table(HEAD, "lrrrrrl", body)


def to_csv(found: Sequence[Family]) -> str:
    """The columns of `table`, and the difference and its p as fractions."""
    lines = []
    for family in found:
        for member in family.members:
            difference = "" if member.difference is None else f"{member.difference:.6f}"
            p = "" if member.p is None else f"{member.p:.6g}"
            facts = {"family": family.name, **flat(member.row)}
            lines.append(facts | {"difference": difference, "p_welch_holm": p})
    return csv_text(lines)


def points(member: Member) -> str:
    """ "+3.1", "-" where there is nothing to say."""
    return "-" if member.difference is None else captions.signed(100 * member.difference, 1)


FORMATS: dict[str, Callable[[Sequence[Family]], str]] = {"md": to_markdown, "csv": to_csv}
