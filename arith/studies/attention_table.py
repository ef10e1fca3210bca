"""Attention patterns as a table: Markdown for people, JSON for programs."""

import json
from collections.abc import Sequence
from typing import Any

from tape_arith.arith.figures.tabular import pipe_table
from tape_arith.arith.scoring.statistics import student_t
from tape_arith.arith.studies.attention_figure.study import (
    REGIONS,
    StudiedAttention,
    Study,
    sample_line,
)
from tape_arith.arith.studies.attention_patterns import Patterns


def to_markdown(study: Study) -> str:
    """How the best head addresses places, then the weight on the diagonal; with means of seeds."""
    several = len({run.label for run in study.runs}) < len(study.runs)
    spread = " ± is the 95 % interval over seeds (Student t)." if several else ""
    note = (
        "Place addressing: the weight that the query which predicts the answer's digit of place r "
        "puts on the operands' digits of place r, of the head that is best in distribution, which "
        "is chosen and measured on the same problems. Chance: a query that attends to all it sees "
        f"alike.{spread} {sample_line(study)}"
    )
    return f"{_places(study)}\n{_diagonal(study)}\n{note}\n"


def _places(study: Study) -> str:
    regions = [region for region in REGIONS if region in study.runs[0].regions]
    head = ["encoding", "trained with", "seed", "best head"]
    head += [column for region in regions for column in (f"place, {region}", "chance")]
    body = []
    for runs in _by_label(study):
        for run in runs:
            layer, number = run.best
            cells = [*_facts(run), str(run.seed), f"layer {layer + 1}, head {number + 1}"]
            for region in regions:
                cells += [f"{run.best_score(region):.3f}", f"{run.regions[region].chance:.3f}"]
            body.append(cells)
        if len(runs) > 1:
            cells = [*_facts(runs[0]), f"all {len(runs)}", ""]
            for region in regions:
                chance = f"{runs[0].regions[region].chance:.3f}"
                cells += [_mean([run.best_score(region) for run in runs]), chance]
            body.append(cells)
    return pipe_table(head, "llrl" + "rr" * len(regions), body)


def _diagonal(study: Study) -> str:
    layers = len(study.runs[0].regions[REGIONS[0]].diagonal)
    head = ["encoding", "trained with", "seeds", "weight on the diagonal"]
    head += [f"layer {layer + 1}" for layer in range(layers)]
    body = []
    for region in REGIONS:
        if region not in study.runs[0].regions:
            continue
        for runs in _by_label(study):
            means = [run.regions[region].diagonal.mean(axis=1) for run in runs]
            seeds = ", ".join(str(run.seed) for run in runs)
            numbers = [_mean([float(mean[layer]) for mean in means]) for layer in range(layers)]
            body.append([*_facts(runs[0]), seeds, region, *numbers])
        alike = f"{study.runs[0].regions[region].uniform[0]:.3f}"
        body.append(["(all that is seen alike)", "", "", region, *[alike] * layers])
    return pipe_table(head, "llll" + "r" * layers, body)


def _by_label(study: Study) -> list[list[StudiedAttention]]:
    labels = dict.fromkeys(run.label for run in study.runs)
    return [[run for run in study.runs if run.label == label] for label in labels]


def _facts(run: StudiedAttention) -> list[str]:
    bos = f"0 to {run.leading_bos} [BOS]" if run.leading_bos else "no [BOS]"
    return [run.encoding, bos]


def _mean(values: Sequence[float]) -> str:
    interval = student_t(values)
    if interval is None:
        return f"{values[0]:.3f}"
    return f"{interval.mean:.3f} ± {interval.half_width:.3f}"


def to_json(study: Study, layers: Sequence[int], heads: Sequence[int]) -> str:
    """For programs: keys are stable, `schema` counts their changes; layers and heads (those of the
    maps, counted from 0 here) count from 1 there."""
    content = {
        "schema": 1,
        "kind": "attention",
        "preset": study.preset,
        "trained_digits": study.trained_digits,
        "evaluation": study.evaluation,
        "runs": [_run(run) for run in study.runs],
        "maps": _maps(study, layers, heads),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _run(run: StudiedAttention) -> dict[str, Any]:
    layer, head = run.best
    return {
        "run": run.run,
        "encoding": run.encoding,
        "seed": run.seed,
        "leading_bos": run.leading_bos,
        "best": {"layer": layer + 1, "head": head + 1},
        "regions": {
            region: {**_patterns(found), "best_head": run.best_score(region)}
            for region, found in run.regions.items()
        },
    }


def _patterns(found: Patterns) -> dict[str, Any]:
    plain = {key: value for key, value in vars(found).items() if not hasattr(value, "tolist")}
    arrays = {key: value.tolist() for key, value in vars(found).items() if key not in plain}
    return plain | arrays


def _maps(study: Study, layers: Sequence[int], heads: Sequence[int]) -> dict[str, Any] | None:
    if study.example is None:
        return None
    return {
        "problem": study.example.written,
        "tokens": study.example.tokens[:-1],
        "equal_places": study.example.equal_places,
        "layers": [layer + 1 for layer in layers],
        "heads": [head + 1 for head in heads],
        "weights": {
            run.run: [[run.maps[layer, head].tolist() for head in heads] for layer in layers]
            for run in study.runs
            if run.maps is not None
        },
    }
