"""Stability under positional shifts, as numbers and as tables. No torch here."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tape_arith.arith.figures.tables import pipe_table
from tape_arith.arith.scoring.statistics import student_t

Precision = Literal["float32", "float64"]
ROUNDING: dict[Precision, float] = {"float32": 3e-5, "float64": 1e-12}
"""Changes up to here are not told from rounding: some hundred units of it, and in float64 some
thousand, for there the angle of an index near 1000 is itself rounded by 1e-13."""
CHANGES = {
    "start 3": "indices start at 3",
    "start 1000": "indices start at 1000",
    "BOS": "three [BOS] in front",
}
"""The paper's two, and a shift that no trained index reaches."""
ATTENTION, RENORMALISED, PRODUCTS = "attention", "attention, renormalised", "inner products"
MEASURES = {
    ATTENTION: "attention weights",
    RENORMALISED: "attention weights, renormalised",
    PRODUCTS: "inner products of positions",
}
"""What is compared before and after a change. Renormalised: without the columns of the leading
tokens each row sums to 1 again (a row that they took all of stays zero)."""
NO_STATE = "no positional state"
UNTRAINED = "[BOS] not trained"


@dataclass(frozen=True)
class Series:
    """The relative change of one run, a number a layer, for one of CHANGES, one of MEASURES and one
    precision; `values` None if there are none, `why` then says why. Training put up to
    `leading_bos` [BOS] in front of its problems."""

    run: str
    encoding: str
    seed: int
    leading_bos: int
    precision: Precision
    change: str
    measure: str
    values: tuple[float, ...] | None
    why: str | None

    @property
    def label(self) -> str:
        return self.encoding + (f", 0 to {self.leading_bos} [BOS]" if self.leading_bos else "")


@dataclass(frozen=True)
class StabilityStudy:
    """All series, measured on the problems that `evaluation` describes: task, version, seed,
    max_digits, problems (how many), sha256."""

    series: tuple[Series, ...]
    preset: str
    evaluation: dict[str, Any]

    @property
    def several_seeds(self) -> bool:
        """Whether any encoding has more than one run."""
        runs = {(one.label, one.run) for one in self.series}
        return len({label for label, _ in runs}) < len(runs)

    @property
    def untrained_bos(self) -> bool:
        """Whether any run was trained without [BOS]."""
        return any(not one.leading_bos for one in self.series)

    @property
    def source(self) -> str:
        """A sentence on the problems."""
        of = self.evaluation
        return (
            f"{of['problems']} problems, the first of the evaluation set (task {of['task']}, to "
            f"{of['max_digits']} digits, seed {of['seed']}; SHA-256 of these {of['sha256'][:8]}); "
            f"preset {self.preset}."
        )


def to_markdown(study: StabilityStudy) -> str:
    """A row for each encoding, precision, change and measure, a column a layer."""
    groups: dict[tuple[str, ...], list[Series]] = {}
    for one in study.series:
        key = (one.label, one.precision, CHANGES[one.change], MEASURES[one.measure])
        groups.setdefault(key, []).append(one)
    layers = max((len(one.values) for one in study.series if one.values), default=0)
    body = [
        [
            runs[0].encoding,
            ", ".join(str(one.seed) for one in runs),
            f"0 to {runs[0].leading_bos} [BOS]" if runs[0].leading_bos else "no [BOS]",
            *facts,
            *(_cell(runs, layer) for layer in range(layers)),
        ]
        for (_, *facts), runs in groups.items()
    ]
    head = ["encoding", "seeds", "trained with", "numbers", "change", "of"]
    head += [f"layer {layer + 1}" for layer in range(layers)]
    table = pipe_table(head, "l" * 6 + "r" * layers, body)
    return table + "".join(f"\n{line}\n" for line in [_legend(study), *_reasons(study)])


def _cell(runs: Sequence[Series], layer: int) -> str:
    values = [one.values[layer] for one in runs if one.values is not None]
    if not values:
        return "none"
    interval = student_t(values)
    text = _number(values[0])
    if interval is not None:
        text = f"{_number(interval.mean)} ± {_number(interval.half_width)}"
    small = all(0 < value <= ROUNDING[runs[0].precision] for value in values)
    return f"{text} r" if small else text


def _number(value: float) -> str:
    """
    >>> _number(0.0), _number(2.13e-07), _number(0.87124)
    ('0', '2.1e-07', '0.871')
    """
    return f"{value:.3g}" if value == 0 or value >= 1e-3 else f"{value:.1e}"


def _legend(study: StabilityStudy) -> str:
    spread = " ± is the 95 % interval over seeds (Student t)." if study.several_seeds else ""
    precisions = sorted({one.precision for one in study.series})
    levels = ", ".join(f"{ROUNDING[precision]:g} in {precision}" for precision in precisions)
    untrained = f" {UNTRAINED}: such runs get a token that is untrained." * study.untrained_bos
    return (
        "Mean absolute change over mean absolute value, over keys up to the query, heads and "
        f"problems.{spread} r: not told from rounding (at most {levels}). Behind [BOS] the "
        "original tokens are compared, raw and with rows that sum to 1 "
        f"again.{untrained} {study.source}"
    )


def _reasons(study: StabilityStudy) -> list[str]:
    """A line for each reason why there are no numbers."""
    reasons: dict[str, dict[str, None]] = {}
    for one in study.series:
        if one.values is None and one.measure != RENORMALISED:
            change = "" if one.why == NO_STATE else f", {CHANGES[one.change]}"
            series = f"{one.label}{change}, {MEASURES[one.measure]}"
            reasons.setdefault(str(one.why), {})[series] = None
    return [f"none ({why}): {'; '.join(series)}." for why, series in reasons.items()]


def to_json(study: StabilityStudy) -> str:
    """All series, with what is at the level of rounding."""
    precisions = dict.fromkeys(one.precision for one in study.series)
    content = {
        "schema": 1,
        "kind": "stability",
        "preset": study.preset,
        "evaluation": study.evaluation,
        "rounding_level": {precision: ROUNDING[precision] for precision in precisions},
        "series": [
            vars(one)
            | {
                "at_rounding_level": None
                if one.values is None
                else [value <= ROUNDING[one.precision] for value in one.values]
            }
            for one in study.series
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def to_csv(study: StabilityStudy) -> str:
    """A row a number; a series without numbers has one row with the reason."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    head = ["run", "encoding", "seed", "leading_bos", "precision", "change", "measure", "why"]
    out.writerow([*head, "layer", "value", "at_rounding_level"])
    for one in study.series:
        facts = [getattr(one, name) for name in head]
        if one.values is None:
            out.writerow([*facts, "", "", ""])
        for layer, value in enumerate(one.values or (), start=1):
            out.writerow([*facts, layer, f"{value:.9e}", value <= ROUNDING[one.precision]])
    return text.getvalue()
