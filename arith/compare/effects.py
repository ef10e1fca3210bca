"""Differences between encodings out of distribution: intervals, tests, and what seeds can show."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from tape_arith.arith.compare.captions import signed
from tape_arith.arith.compare.columns import UNKNOWN, Column
from tape_arith.arith.errors import unknown
from tape_arith.arith.grids.axes import Region
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.grids.statistics import Paired, Welch, detectable, holm, paired, welch

RANKED_BY: Region = "out_of_distribution"
LEVEL = 0.05
"""A difference is significant if Holm's p is at most this."""
UP, DOWN = "\N{UPWARDS ARROW}", "\N{DOWNWARDS ARROW}"
_SEEDS = (3, 5, 10)
"""Numbers of seeds for which a note says what they can show."""
_FLOOR = 0.05
"""Encodings with a lower mean vary little because they solve little."""


@dataclass(frozen=True)
class Effect:
    """The difference of an encoding's mean from that of another."""

    welch: Welch | None = None
    paired: Paired | None = None
    """The difference over the seeds that both have."""
    p_holm: float | None = None
    """The p value, corrected for all tests of the leaderboard; None if this is none of them."""
    why_not: str | None = None
    """Why there is no test."""

    def __str__(self) -> str:
        """Return "+12.3 ± 4.5" in points, with an arrow if it is significant; "-" if unknown."""
        if self.welch is None:
            return UNKNOWN
        arrow = f"{UP if self.welch.difference > 0 else DOWN} " * self.is_significant
        return f"{arrow}{points(self.welch)}"

    @property
    def is_significant(self) -> bool:
        return self.p_holm is not None and self.p_holm <= LEVEL

    def content(self) -> dict[str, Any]:
        known = self.welch._asdict() if self.welch else {}
        pairs = self.paired._asdict() if self.paired else None
        return known | {"paired": pairs, "p_holm": self.p_holm, "why_not": self.why_not}


def points(test: Welch | Paired) -> str:
    """Return a difference with its interval in percentage points: "+12.3 ± 4.5"."""
    return f"{signed(100 * test.difference, 1)} ± {100 * test.half_width:.1f}"


def effect(panel: Panel, other: Panel) -> Effect:
    """Compare two encodings if both are ranked, without a correction for other tests.

    Two ways of scoring the same training runs are compared by seed only: Welch's test assumes
    independent means.
    """
    for each in (panel, other):
        if not each.ranked:
            return Effect(why_not=f"{each.name} is not ranked")
    one, two = (dict(zip(p.seeds, p.seed_means(RANKED_BY), strict=True)) for p in (panel, other))
    pairs = paired(one, two)
    if panel.encoding == other.encoding:
        return Effect(None, pairs, why_not="the same training runs")
    for each in (panel, other):
        if len(each.seeds) < 2:
            return Effect(why_not=f"one seed of {each.name}")
    test = welch(list(one.values()), list(two.values()))
    return Effect(test, pairs, why_not=None if test else "neither varies between seeds")


def effects(
    panels: Sequence[Panel], references: Sequence[str]
) -> tuple[dict[str, dict[str, Effect]], int]:
    """Compare each encoding with the references; return the effects and the number of tests.

    Holm's correction is over all tests: each trained encoding against each reference, whatever is
    shown. A test between two references counts once and is on the rows of both. Encodings that are
    not ranked are not compared. Runs that were scored again with a change are compared, but not
    tested: they are no further encodings.
    """
    by_name = {panel.name: panel for panel in panels}
    compared = {
        (panel.name, reference): _against(panel, reference, by_name.get(reference))
        for panel, reference in product(panels, references)
    }
    p = {
        frozenset(pair): effect.welch.p
        for pair, effect in compared.items()
        if effect.welch and effect.why_not is None
    }
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    of_name: dict[str, dict[str, Effect]] = {}
    for (name, reference), each in compared.items():
        p_holm = adjusted.get(frozenset((name, reference)))
        of_name.setdefault(name, {})[reference] = replace(each, p_holm=p_holm)
    return of_name, len(p)


def _against(panel: Panel, reference: str, other: Panel | None) -> Effect:
    if panel.name == reference:
        return Effect(why_not="the reference itself")
    if other is None:
        return Effect(why_not=f"no scored run of {reference}")
    compared = effect(panel, other)
    if compared.why_not is None and panel.name != panel.encoding:
        return replace(compared, why_not="scored again with a change, not trained")
    return compared


class Contrast(NamedTuple):
    """A comparison of two encodings that was asked for, tested among the contrasts alone."""

    one: str
    other: str
    effect: Effect

    def content(self) -> dict[str, Any]:
        return {"one": self.one, "other": self.other, **self.effect.content()}


def contrasts(panels: Sequence[Panel], pairs: Iterable[tuple[str, str]]) -> list[Contrast]:
    """Compare the pairs, with Holm's correction over them. Raises UsageError if one is not scored.

    Encodings that are not ranked are not tested, nor are two ways of scoring the same runs.
    """
    by_name = {panel.name: panel for panel in panels}
    pairs = list(dict.fromkeys(pairs))
    for name in chain.from_iterable(pairs):
        if name not in by_name:
            raise unknown("scored encoding", name, by_name)
    compared = [effect(by_name[one], by_name[other]) for one, other in pairs]
    adjusted = iter(holm([each.welch.p for each in compared if each.welch]))
    return [
        Contrast(*pair, replace(each, p_holm=next(adjusted)) if each.welch else each)
        for pair, each in zip(pairs, compared, strict=True)
    ]


def contrasts_note(contrasts: Sequence[Contrast], labels: Mapping[str, str]) -> str:
    """Describe the contrasts in a paragraph; "" if there are none."""

    def words(each: Contrast) -> str:
        effect, (one, other) = each.effect, (labels.get(n, n) for n in each[:2])
        if effect.welch is None:
            return f"{one} and {other}: no test, {effect.why_not}"
        by_seed = f"by seed {points(effect.paired)}; " if effect.paired else ""
        return (
            f"{one} \N{MINUS SIGN} {other}: {points(effect.welch)} ({by_seed}p = "
            f"{effect.welch.p:.2g}, after Holm {effect.p_holm:.2g})"
        )

    if not contrasts:
        return ""
    tests = sum(each.effect.welch is not None for each in contrasts)
    these = "this one" if tests == 1 else f"these {tests}"
    return (
        "Contrasts, chosen by whoever made this table: differences out of distribution in points "
        "with their 95 % interval, Welch's t test, Holm over "
        f"{these} alone: {'; '.join(map(words, contrasts))}."
    )


def power_note(panels: Sequence[Panel]) -> str:
    """Say which differences some numbers of seeds can show, from the spread of the seeds here.

    "" if no encoding above the floor has two seeds.
    """
    trained = (each for each in panels if each.ranked and each.name == each.encoding)
    means = [panel.seed_means(RANKED_BY) for panel in trained]
    deviations = [stdev(each) for each in means if len(each) > 1 and fmean(each) >= _FLOOR]
    if not deviations:
        return ""
    spread = median(deviations)
    seen = [f"{100 * detectable(spread, seeds):.1f} points with {seeds} seeds" for seeds in _SEEDS]
    return (
        f"What seeds can show: seeds differ by a standard deviation of {100 * spread:.1f} points "
        f"(median of the {len(deviations)} ranked encodings above {100 * _FLOOR:g} %), so one t "
        f"test at {100 * LEVEL:g} % finds a true difference in 80 of 100 cases if it is "
        f"{', '.join(seen[:-1])} or {seen[-1]}; a correction for many tests needs more."
    )


# ---- columns -----------------------------------------------------------------------------------


def difference_columns(
    references: Sequence[str], num_tests: int, labels: Mapping[str, str]
) -> list[Column[Any]]:
    """Return the columns of the differences from each reference and from the best encoding.

    A row has them as `effects` and `from_best`.
    """
    labelled = [labels.get(name, name) for name in references]
    arrows = f"{UP} better and {DOWN} worse at {100 * LEVEL:g} %"
    tests = f"{num_tests} test{'s' * (num_tests != 1)}"
    names = ", ".join(f"vs {label}" for label in labelled)
    tested = (
        f"{names}: the difference of the means out of distribution in points, with its 95 % "
        f"interval (Welch). {arrows}: Welch's t test over seeds, two-sided, after Holm over "
        f"the {tests} of trained encodings against {' and '.join(labelled)}. A dash: the "
        "row is the reference, the reference is not scored, one of the two has one seed or is not "
        "ranked, both are the same training runs, or neither varies between seeds. --csv has p and "
        "the difference paired by seed."
    )
    impossible = f"{names}: no test was possible; --csv says why, encoding by encoding."

    def column(reference: str, label: str) -> Column[Any]:
        return Column(
            f"vs_{reference}",
            f"vs {label}",
            lambda row: str(row.effects[reference]),
            numbers=lambda row: _numbers(reference, row.effects[reference]),
            printed=True,
            importance=12,
            signs="difference in points ± its 95 % interval"
            + f"; {arrows} by Welch's t test over seeds, after Holm over {tests}" * bool(num_tests),
            note=tested if num_tests else impossible,
        )

    from_best: Column[Any] = Column(
        "vs_best",
        "vs best",
        lambda row: str(row.from_best),
        numbers=lambda row: _numbers("best", row.from_best, tested=False),
        importance=18,
        note="Vs best: the same difference from the first of the section with two seeds, "
        "which the results themselves chose, so that it is not tested.",
    )
    return [*map(column, references, labelled), from_best]


def _numbers(other: str, effect: Effect, *, tested: bool = True) -> dict[str, object]:
    """Return the numbers of a difference from `other` for CSV."""
    test, pairs = effect.welch, effect.paired
    numbers: dict[str, object] = {
        f"difference_from_{other}": test and test.difference,
        f"difference_from_{other}_half_width": test and test.half_width,
        f"paired_difference_from_{other}": pairs and pairs.difference,
        f"paired_difference_from_{other}_half_width": pairs and pairs.half_width,
    }
    if tested:
        numbers[f"p_{other}"] = test and test.p
        numbers[f"p_holm_{other}"] = effect.p_holm
        numbers[f"no_test_{other}"] = effect.why_not
    return numbers
