"""How wrong answers go wrong, as counts: after which carry chains, at which place, in what way.

Shapes: n problems; R regions, in distribution and out of it; C lengths of carry chains, from 0;
A places of an answer, 0 the least significant, its end token included; K kinds.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.tasks.vocabulary import DIGIT_ZERO, EOS

Ints = NDArray[np.int64]
Region = Literal["in_distribution", "out_of_distribution"]
Kind = Literal["ended_early", "went_on", "one_less", "one_more", "other_digit", "no_digit"]

REGIONS: tuple[Region, ...] = get_args(Region)
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The first error of an answer: the end token where a digit belongs; a digit where the end token
belongs; of the digits in place of another one those that are one less or one more (modulo 10), as
where a carry is lost or invented, and the others; and what is neither a digit nor the end token.
A lost last carry ends early, and an invented one goes on."""
WRONG_LENGTH: tuple[Kind, ...] = ("ended_early", "went_on")
OFF_BY_ONE: tuple[Kind, ...] = ("one_less", "one_more")
WRONG_DIGIT: tuple[Kind, ...] = (*OFF_BY_ONE, "other_digit")


@dataclass(frozen=True)
class Mistakes:
    """Counts over the same problems; they add up over problems and over runs."""

    problems: Ints
    """int64[R, C]: problems, by the length of their longest carry chain."""
    exact: Ints
    """int64[R, C]: of these, those answered exactly."""
    first_wrong: Ints
    """int64[R, A]: wrong answers, by the place of their first wrong token."""
    kinds: Ints
    """int64[R, K]: wrong answers, by what is wrong at that place."""

    def __add__(self, other: "Mistakes") -> "Mistakes":
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Mistakes(*(one + two for one, two in pairs))

    def wrong(self, region: Region) -> int:
        """How many answers are wrong."""
        return int(self.first_wrong[REGIONS.index(region)].sum())

    def of_kinds(self, region: Region, *kinds: Kind) -> int:
        """How many of them in one of these ways."""
        row = self.kinds[REGIONS.index(region)]
        return int(sum(row[KINDS.index(kind)] for kind in kinds))

    def content(self, trained_digits: int) -> dict[str, Any]:
        """As plain Python, with stable keys; `beyond_trained` is a place less the trained digits:
        0 is the first place that no trained operand has."""
        found: dict[str, Any] = {}
        for number, region in enumerate(REGIONS):
            chains = zip(self.problems[number], self.exact[number], strict=True)
            found[region] = {
                "problems": int(self.problems[number].sum()),
                "exact": int(self.exact[number].sum()),
                "by_longest_chain": [
                    {"length": length, "problems": int(problems), "exact": int(exact)}
                    for length, (problems, exact) in enumerate(chains)
                    if problems
                ],
                "wrong": self.wrong(region),
                "by_first_wrong_place": [
                    {"place": place, "beyond_trained": place - trained_digits, "wrong": int(wrong)}
                    for place, wrong in enumerate(self.first_wrong[number])
                    if wrong
                ],
                "kinds": {kind: self.of_kinds(region, kind) for kind in KINDS},
                "wrong_length": self.of_kinds(region, *WRONG_LENGTH),
                "wrong_digit": self.of_kinds(region, *WRONG_DIGIT),
                "off_by_one": self.of_kinds(region, *OFF_BY_ONE),
            }
        return found


def counted(
    problems: Problems,
    chains: Ints,
    first_wrong: Ints,
    said: Ints,
    *,
    trained_digits: int,
    max_digits: int,
    places: int,
) -> Mistakes:
    """The mistakes in answers to n problems, from int64[n] each: the length of the longest carry
    chain, the place of the first wrong token (-1: all right) and what is said there."""
    outside = (problems.operand_lengths > trained_digits).any(axis=1).astype(np.int64)
    wrong = first_wrong >= 0

    def count(values: Ints, among: NDArray[np.bool_], size: int) -> Ints:
        cells = np.bincount((outside * size + values)[among], minlength=len(REGIONS) * size)
        return cells.astype(np.int64).reshape(len(REGIONS), size)

    starts = np.cumsum(problems.lengths) - problems.lengths
    answer = starts + problems.prompt_lengths
    right = problems.tokens[answer + np.maximum(first_wrong, 0)].astype(np.int64)
    return Mistakes(
        problems=count(chains, np.ones_like(wrong), max_digits + 1),
        exact=count(chains, ~wrong, max_digits + 1),
        first_wrong=count(first_wrong, wrong, places),
        kinds=count(_kinds(right, said), wrong, len(KINDS)),
    )


def _kinds(right: Ints, said: Ints) -> Ints:
    """int64[n]: of KINDS, what saying `said` for `right` is; without meaning where they agree."""
    more = (said - right) % 10
    cases: list[tuple[Kind, NDArray[np.bool_]]] = [
        ("ended_early", said == EOS),
        ("no_digit", (said < DIGIT_ZERO) | (said >= DIGIT_ZERO + 10)),
        ("went_on", right == EOS),
        ("one_less", more == 9),
        ("one_more", more == 1),
    ]
    numbers = [KINDS.index(kind) for kind, _ in cases]
    chosen = np.select([case for _, case in cases], numbers, KINDS.index("other_digit"))
    return chosen.astype(np.int64)
