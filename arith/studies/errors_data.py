"""Errors in answers: counts and tables. Never imports torch: `errors.py` measures.

Shapes: n problems; R regions, in distribution and out of it; C lengths of carry chains, from 0;
A places of an answer, 0 the least significant, its end token included; K kinds of errors.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.figures.captions import SPLITS, describe_seeds, preset_words, signed
from tape_arith.arith.figures.tables import pipe_table
from tape_arith.arith.scoring.grid import REGION_WORDS, Region
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.tasks.vocabulary import DIGIT_ZERO, EOS

Ints = NDArray[np.int64]
REGIONS: tuple[Region, ...] = ("in_distribution", "out_of_distribution")
KINDS = {
    "ended_early": "ended too early",
    "went_on": "did not end",
    "one_less": "digit one less",
    "one_more": "digit one more",
    "other_digit": "another digit",
    "no_digit": "no digit",
}
"""Kinds of a first error. Digits are compared modulo 10: a lost carry leaves one less, an invented
carry one more. A lost last carry ends the answer early, an invented one goes on."""
_WRONG_LENGTH = ("ended_early", "went_on")
_OFF_BY_ONE = ("one_less", "one_more")
_WRONG_DIGIT = (*_OFF_BY_ONE, "other_digit")


@dataclass(frozen=True)
class ErrorCounts:
    """Counts over problems, which add up over problems and over runs.

    problems     int64[R, C]  problems, by the length of their longest carry chain
    exact        int64[R, C]  exact answers among them
    first_wrong  int64[R, A]  wrong answers, by the place of their first wrong token
    kinds        int64[R, K]  wrong answers, by the kind of error at that place
    """

    problems: Ints
    exact: Ints
    first_wrong: Ints
    kinds: Ints

    def __add__(self, other: "ErrorCounts") -> "ErrorCounts":
        names = [field.name for field in fields(self)]
        return ErrorCounts(*(getattr(self, name) + getattr(other, name) for name in names))

    def wrong(self, region: Region) -> int:
        """Count wrong answers."""
        return int(self.first_wrong[REGIONS.index(region)].sum())

    def of_kinds(self, region: Region, *kinds: str) -> int:
        """Count wrong answers whose first error is of one of `kinds`."""
        columns = [list(KINDS).index(kind) for kind in kinds]
        return int(self.kinds[REGIONS.index(region), columns].sum())

    def as_dict(self, trained_digits: int) -> dict[str, Any]:
        """Return the counts of each region as plain Python.

        `beyond_trained` is a place less the trained digits: 0 is the first untrained place.
        """
        return {region: self._region(region, trained_digits) for region in REGIONS}

    def _region(self, region: Region, trained_digits: int) -> dict[str, Any]:
        row = REGIONS.index(region)
        problems, exact = self.problems[row].tolist(), self.exact[row].tolist()
        return {
            "problems": sum(problems),
            "exact": sum(exact),
            "by_longest_chain": [
                {"length": length, "problems": total, "exact": exact[length]}
                for length, total in enumerate(problems)
                if total
            ],
            "wrong": self.wrong(region),
            "by_first_wrong_place": [
                {"place": place, "beyond_trained": place - trained_digits, "wrong": wrong}
                for place, wrong in enumerate(self.first_wrong[row].tolist())
                if wrong
            ],
            "kinds": {kind: self.of_kinds(region, kind) for kind in KINDS},
            "wrong_length": self.of_kinds(region, *_WRONG_LENGTH),
            "wrong_digit": self.of_kinds(region, *_WRONG_DIGIT),
            "off_by_one": self.of_kinds(region, *_OFF_BY_ONE),
        }


def count_errors(
    problems: Problems,
    chains: Ints,
    first_wrong: Ints,
    predicted: Ints,
    *,
    trained_digits: int,
    max_digits: int,
    places: int,
) -> ErrorCounts:
    """Count the errors in answers to n problems.

    Each int64[n]: `chains` the length of the longest carry chain, `first_wrong` the place of the
    first wrong token (-1: none), `predicted` the token that is predicted at that place.
    """
    longer = (problems.operand_lengths > trained_digits).any(axis=1).astype(np.int64)
    wrong = first_wrong >= 0

    def count(values: Ints, rows: NDArray[np.bool_], size: int) -> Ints:
        counts = np.bincount((longer * size + values)[rows], minlength=len(REGIONS) * size)
        return counts.astype(np.int64).reshape(len(REGIONS), size)

    answer_starts = np.cumsum(problems.lengths) - problems.lengths + problems.prompt_lengths
    right = problems.tokens[answer_starts + np.maximum(first_wrong, 0)].astype(np.int64)
    return ErrorCounts(
        problems=count(chains, np.ones_like(wrong), max_digits + 1),
        exact=count(chains, ~wrong, max_digits + 1),
        first_wrong=count(first_wrong, wrong, places),
        kinds=count(_kinds(right, predicted), wrong, len(KINDS)),
    )


def _kinds(right: Ints, predicted: Ints) -> Ints:
    """Classify `predicted` for `right`: indices into KINDS, int64[n]."""
    more = (predicted - right) % 10
    cases = {
        "ended_early": predicted == EOS,
        "no_digit": (predicted < DIGIT_ZERO) | (predicted >= DIGIT_ZERO + 10),
        "went_on": right == EOS,
        "one_less": more == 9,
        "one_more": more == 1,
    }
    order = list(KINDS)
    indices = [order.index(kind) for kind in cases]
    kinds = np.select(list(cases.values()), indices, order.index("other_digit"))
    return kinds.astype(np.int64)


@dataclass(frozen=True)
class RunErrors:
    """The errors of one run."""

    run: str
    encoding: str
    seed: int
    counts: ErrorCounts


@dataclass(frozen=True)
class ErrorStudy:
    """The errors of some runs, all on the same problems. `settings` are those that differ from the
    preset's; `evaluation` has task, version, split, seed, max_digits, problems (their number) and
    sha256."""

    runs: tuple[RunErrors, ...]
    preset: str
    settings: dict[str, int | float | str]
    trained_digits: int
    evaluation: dict[str, Any]

    @cached_property
    def pooled(self) -> dict[str, ErrorCounts]:
        """The counts of each encoding, all its runs together."""
        pooled: dict[str, ErrorCounts] = {}
        for run in self.runs:
            before = pooled.get(run.encoding)
            pooled[run.encoding] = run.counts if before is None else before + run.counts
        return pooled

    @property
    def seeds(self) -> dict[str, list[int]]:
        """The seeds of each encoding."""
        return {
            name: sorted(run.seed for run in self.runs if run.encoding == name)
            for name in self.pooled
        }

    @property
    def regions(self) -> list[Region]:
        """The regions that have problems."""
        first = self.runs[0].counts.problems
        return [region for region, row in zip(REGIONS, first, strict=True) if row.any()]

    @property
    def source(self) -> str:
        """A sentence that describes task, problems and runs."""
        facts = self.evaluation
        split = SPLITS.get(facts["split"], facts["split"])
        return (
            f"Task {facts['task']}{f', {split},' if split else ','} trained to "
            f"{self.trained_digits} digits and tested to {facts['max_digits']} (preset "
            f"{preset_words(self.preset, self.settings)}), {facts['problems']:,} problems a run "
            f"(evaluation set {facts['sha256'][:8]}). Counts of all seeds together, these runs "
            f"only: {describe_seeds(self.seeds)}."
        )


# ---- tables ------------------------------------------------------------------------------------


def to_markdown(study: ErrorStudy) -> str:
    """Format tables of exact match by carry chain, of kinds of first errors and of their places."""
    parts = [_by_chain(study, region) for region in study.regions]
    parts.append(_by_kind(study))
    parts += [_by_place(study, region) for region in study.regions]
    legend = (
        "The first error is the token at which greedy decoding first leaves the right answer; "
        "place 0 is the least significant digit. By chance 22 % of wrong digits are off by one "
        f"(two of nine); 8 for 9 and 9 for 0 count as one less. {study.source}"
    )
    return "\n".join([*filter(None, parts), f"{legend}\n"])


def _share(part: int, whole: int) -> str:
    """Format a share in percent with its counts.

    >>> _share(3, 1200), _share(0, 0)
    ('0.2 % (3 of 1,200)', '-')
    """
    return f"{100 * part / whole:.1f} % ({part:,} of {whole:,})" if whole else "-"


def _table(title: str, head: Sequence[str], align: str, body: Sequence[Sequence[str]]) -> str:
    return f"{title}\n\n{pipe_table(head, align, body)}" if body else ""


def _by_chain(study: ErrorStudy, region: Region) -> str:
    row, counts = REGIONS.index(region), study.pooled.values()
    body = [
        [str(n), *(_share(c.exact[row, n], c.problems[row, n]) for c in counts)]
        for n in range(study.evaluation["max_digits"] + 1)
        if any(c.problems[row, n] for c in counts)
    ]
    title = f"Exact match by length of the longest carry chain, {REGION_WORDS[region]}"
    return _table(title, ["chain", *study.pooled], "r" * (1 + len(counts)), body)


def _by_kind(study: ErrorStudy) -> str:
    head = ["encoding", "seeds", "problems", "wrong answers", "wrong length", "wrong digit"]
    head += ["off by one, of wrong digits", *KINDS.values()]
    body = []
    for name, counts in study.pooled.items():
        for region in study.regions:
            wrong, digits = counts.wrong(region), counts.of_kinds(region, *_WRONG_DIGIT)
            shares = [
                _share(wrong, int(counts.problems[REGIONS.index(region)].sum())),
                _share(counts.of_kinds(region, *_WRONG_LENGTH), wrong),
                _share(digits, wrong),
                _share(counts.of_kinds(region, *_OFF_BY_ONE), digits),
            ]
            kinds = [f"{counts.of_kinds(region, kind):,}" for kind in KINDS]
            seeds = ", ".join(map(str, study.seeds[name]))
            body.append([name, seeds, REGION_WORDS[region], *shares, *kinds])
    return _table("First error of wrong answers", head, "lll" + "r" * 10, body)


def _by_place(study: ErrorStudy, region: Region) -> str:
    row, counts = REGIONS.index(region), study.pooled.values()
    body = [
        [
            str(place),
            signed(place - study.trained_digits, 0),
            *(_share(c.first_wrong[row, place], c.wrong(region)) for c in counts),
        ]
        for place in np.flatnonzero(sum(c.first_wrong[row] for c in counts)).tolist()
    ]
    title = f"Wrong answers by place of their first wrong token, {REGION_WORDS[region]}"
    head = ["place", "less trained digits", *study.pooled]
    return _table(title, head, "r" * len(head), body)


def to_json(study: ErrorStudy) -> str:
    """Format the counts of each encoding, all its seeds together, and of each run."""
    digits = study.trained_digits
    content = {
        "schema": 1,
        "kind": "errors",
        "preset": study.preset,
        "settings": study.settings,
        "trained_digits": digits,
        "evaluation": study.evaluation,
        "encodings": [
            {"encoding": name, "seeds": study.seeds[name], **counts.as_dict(digits)}
            for name, counts in study.pooled.items()
        ],
        "runs": [
            {"run": run.run, "encoding": run.encoding, "seed": run.seed}
            | run.counts.as_dict(digits)
            for run in study.runs
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
