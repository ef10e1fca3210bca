"""Stability under positional shifts as a table: Markdown for people, CSV and JSON for programs."""

import csv
import io
import json
from collections.abc import Sequence

from tape_arith.arith.figures.tabular import pipe_table
from tape_arith.arith.scoring.statistics import student_t
from tape_arith.arith.studies.stability_figure import (
    CHANGES,
    MEASURES,
    ROUNDING,
    UNTRAINED,
    Series,
    Study,
    sample_line,
    seed_counts,
)


def to_markdown(study: Study) -> str:
    """A row for each encoding, type, change and measure; below it what the numbers are."""
    groups: dict[tuple[str, ...], list[Series]] = {}
    for one in study.series:
        key = (one.label, one.precision, CHANGES[one.change], MEASURES[one.measure])
        groups.setdefault(key, []).append(one)
    layers = max((len(one.values) for one in study.series if one.values), default=0)
    body = []
    for (_, *how), runs in groups.items():
        seeds = ", ".join(str(one.seed) for one in runs)
        bos = f"0 to {runs[0].leading_bos} [BOS]" if runs[0].leading_bos else "no [BOS]"
        numbers = [_cell(runs, layer) for layer in range(layers)]
        body.append([runs[0].encoding, seeds, bos, *how, *numbers])
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


def _legend(study: Study) -> str:
    several = any(count > 1 for count in seed_counts(study).values())
    spread = " ± is the 95 % interval over seeds (Student t)." if several else ""
    precisions = {one.precision for one in study.series}
    small = ", ".join(f"{ROUNDING[p]:g} in {p}" for p in sorted(precisions))
    untrained = (
        f" {UNTRAINED}: before runs that were trained without it, a token is put that is untrained."
        if any(not one.leading_bos for one in study.series)
        else ""
    )
    return (
        "Mean absolute change over mean absolute value, over keys up to the query, heads and "
        f"problems.{spread} r: not told from rounding (at most {small}). Behind [BOS] "
        "the original tokens are compared, raw and with rows that sum to 1 "
        f"again.{untrained} {sample_line(study)}"
    )


def _reasons(study: Study) -> list[str]:
    found: dict[str, list[str]] = {}
    for one in study.series:
        if one.values is None and one.measure != "attention, renormalised":
            what = f"{one.label}, {CHANGES[one.change]}, {MEASURES[one.measure]}"
            if one.why == "no positional state":
                what = f"{one.label}, {MEASURES[one.measure]}"
            places = found.setdefault(str(one.why), [])
            if what not in places:
                places.append(what)
    return [f"none ({why}): {'; '.join(places)}." for why, places in found.items()]


def to_json(study: Study) -> str:
    """For programs: keys are stable, `schema` counts their changes."""
    levels = {p: ROUNDING[p] for p in dict.fromkeys(one.precision for one in study.series)}
    series = [
        {
            **vars(one),
            "at_rounding_level": None
            if one.values is None
            else [value <= levels[one.precision] for value in one.values],
        }
        for one in study.series
    ]
    content = {
        "schema": 1,
        "kind": "stability",
        "preset": study.preset,
        "evaluation": study.evaluation,
        "rounding_level": levels,
        "series": series,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def to_csv(study: Study) -> str:
    """A row a number; of what there is none of, one row with the reason."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    head = ["run", "encoding", "seed", "leading_bos", "precision", "change", "measure", "why"]
    out.writerow([*head, "layer", "value", "at_rounding_level"])
    for one in study.series:
        facts = [getattr(one, name) for name in head]
        small = ROUNDING[one.precision]
        for layer, value in enumerate(one.values or (), start=1):
            out.writerow([*facts, layer, f"{value:.9e}", value <= small])
        if one.values is None:
            out.writerow([*facts, "", "", ""])
    return text.getvalue()
