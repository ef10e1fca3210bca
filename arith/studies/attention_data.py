"""Attention patterns of runs: numbers and tables. Never imports torch: `attention.py` measures.

Shapes: N layers, H heads, T tokens, D tokens of the longest input.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.tables import pipe_table
from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.scoring.statistics import student_t

INSIDE, OUTSIDE = "in distribution", "out of distribution"


@dataclass(frozen=True)
class Patterns:
    """Means over a sample of problems.

    by_distance  float64 [N, D]  weight on the key d tokens back, over all heads and all queries
                                 that have one; entry 0 is the diagonal
    diagonal     float64 [N, H]  weight of a token on itself
    place        float64 [N, H]  place-addressing score: the weight of the query that predicts the
                                 answer's digit of place r (0 the least significant; the query is
                                 the token before it, '=' for r = 0) on the digits of place r of
                                 both operands, or of the one that is long enough. Digits that
                                 neither operand has (a last carry) and the end token do not count
    uniform, chance              `by_distance` (float64 [D]) and `place` of uniform attention
    problems, positions          the numbers of problems and of answer positions; each position
                                 weighs the same
    """

    by_distance: Floats
    diagonal: Floats
    place: Floats
    uniform: Floats
    chance: float
    problems: int
    positions: int

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head of the highest place-addressing score, counted from 0."""
        layer, head = np.unravel_index(int(self.place.argmax()), self.place.shape)
        return int(layer), int(head)


@dataclass(frozen=True)
class Example:
    """The problem whose maps are shown: as people write it, its tokens with the end token, the
    length of its prompt, and (query, key) of each pair of `attention.equal_places`."""

    written: str
    tokens: tuple[str, ...]
    prompt: int
    equal_places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class RunAttention:
    """The patterns of one run by region (a region without problems has no key), and its maps of
    the example, [N, H, T, T], without the end token."""

    run: str
    encoding: str
    seed: int
    leading_bos: int
    regions: dict[str, Patterns]
    maps: Floats | None

    @property
    def label(self) -> str:
        """The encoding, with the [BOS] of its training."""
        return self.encoding + (f", 0 to {self.leading_bos} [BOS]" if self.leading_bos else "")

    @property
    def title(self) -> str:
        return f"{self.label}, seed {self.seed}"

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head that address places best in distribution, counted from 0."""
        return self.regions[INSIDE].best

    def best_score(self, region: str) -> float:
        """Return the score in `region` of the head that is best in distribution."""
        return float(self.regions[region].place[self.best])


@dataclass(frozen=True)
class AttentionStudy:
    """The attention of some runs, all on the same problems. `evaluation` has task, version, seed
    and max_digits."""

    runs: tuple[RunAttention, ...]
    preset: str
    trained_digits: int
    evaluation: dict[str, Any]
    example: Example | None

    @property
    def by_label(self) -> dict[str, list[RunAttention]]:
        """The runs of each encoding."""
        labels = dict.fromkeys(run.label for run in self.runs)
        return {label: [run for run in self.runs if run.label == label] for label in labels}

    @property
    def regions(self) -> dict[str, Patterns]:
        """The regions that have problems, with the patterns of the first run."""
        return self.runs[0].regions

    @property
    def source(self) -> str:
        """A sentence that describes the problems."""
        facts = self.evaluation
        counts = " and ".join(f"{p.problems} {region}" for region, p in self.regions.items())
        return (
            f"{counts}: the first such problems of the evaluation set (task {facts['task']}, "
            f"to {facts['max_digits']} digits, seed {facts['seed']}); trained to "
            f"{self.trained_digits} digits, preset {self.preset}."
        )


def select_maps(
    num_layers: int,
    num_heads: int,
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
    *,
    all_layers: bool = False,
) -> tuple[list[int], list[int]]:
    """Convert layers and heads counted from 1 to indices, and check that they exist.

    None is all heads, and the last layer as in the paper's figure, or all layers. Raises UsageError
    for a layer or head that does not exist.
    """
    layers = layers or range(1 if all_layers else num_layers, num_layers + 1)
    heads = heads or range(1, num_heads + 1)
    for kind, numbers, count in (("layer", layers, num_layers), ("head", heads, num_heads)):
        for number in numbers:
            if not 1 <= number <= count:
                raise UsageError(f"there is no {kind} {number}: they are 1 to {count}")
    return [layer - 1 for layer in layers], [head - 1 for head in heads]


def to_markdown(study: AttentionStudy) -> str:
    """Format a table of place addressing and one of the weight on the diagonal, with means."""
    several = len(study.by_label) < len(study.runs)
    spread = " ± is the 95 % interval over seeds (Student t)." if several else ""
    note = (
        "Place addressing: the weight that the query which predicts the answer's digit of place r "
        "puts on the operands' digits of place r, of the head that is best in distribution, which "
        "is chosen and measured on the same problems. Chance: a query that attends to all it sees "
        f"alike.{spread} {study.source}"
    )
    return f"{_places(study)}\n{_diagonal(study)}\n{note}\n"


def _places(study: AttentionStudy) -> str:
    head = ["encoding", "trained with", "seed", "best head"]
    head += [column for region in study.regions for column in (f"place, {region}", "chance")]
    body = []
    for runs in study.by_label.values():
        for run in runs:
            best = f"layer {run.best[0] + 1}, head {run.best[1] + 1}"
            body.append([*_facts(run), str(run.seed), best, *_scores([run], study)])
        if len(runs) > 1:
            body.append([*_facts(runs[0]), f"all {len(runs)}", "", *_scores(runs, study)])
    return pipe_table(head, "llrl" + "rr" * len(study.regions), body)


def _scores(runs: Sequence[RunAttention], study: AttentionStudy) -> list[str]:
    """Return the mean score and chance of each region."""
    return [
        cell
        for region in study.regions
        for cell in (
            _mean([run.best_score(region) for run in runs]),
            f"{runs[0].regions[region].chance:.3f}",
        )
    ]


def _diagonal(study: AttentionStudy) -> str:
    layers = len(study.regions[INSIDE].diagonal)
    head = ["encoding", "trained with", "seeds", "weight on the diagonal"]
    head += [f"layer {layer + 1}" for layer in range(layers)]
    body = []
    for region, patterns in study.regions.items():
        for runs in study.by_label.values():
            means = np.array([run.regions[region].diagonal.mean(axis=1) for run in runs])
            seeds = ", ".join(str(run.seed) for run in runs)
            body.append([*_facts(runs[0]), seeds, region, *map(_mean, means.T.tolist())])
        uniform = f"{patterns.uniform[0]:.3f}"
        body.append(["(all that is seen alike)", "", "", region, *[uniform] * layers])
    return pipe_table(head, "llll" + "r" * layers, body)


def _facts(run: RunAttention) -> list[str]:
    return [run.encoding, f"0 to {run.leading_bos} [BOS]" if run.leading_bos else "no [BOS]"]


def _mean(values: Sequence[float]) -> str:
    interval = student_t(values)
    if interval is None:
        return f"{values[0]:.3f}"
    return f"{interval.mean:.3f} ± {interval.half_width:.3f}"


def to_json(study: AttentionStudy, layers: Sequence[int], heads: Sequence[int]) -> str:
    """Format all patterns, and the maps of `layers` and `heads`, indices that become counts."""
    maps = study.example and {
        "problem": study.example.written,
        "tokens": study.example.tokens[:-1],
        "equal_places": study.example.equal_places,
        "layers": [layer + 1 for layer in layers],
        "heads": [head + 1 for head in heads],
        "weights": {
            run.run: run.maps[np.ix_(layers, heads)] for run in study.runs if run.maps is not None
        },
    }
    content = {
        "schema": 1,
        "kind": "attention",
        "preset": study.preset,
        "trained_digits": study.trained_digits,
        "evaluation": study.evaluation,
        "runs": [
            {
                "run": run.run,
                "encoding": run.encoding,
                "seed": run.seed,
                "leading_bos": run.leading_bos,
                "best": {"layer": run.best[0] + 1, "head": run.best[1] + 1},
                "regions": {
                    region: vars(patterns) | {"best_head": run.best_score(region)}
                    for region, patterns in run.regions.items()
                },
            }
            for run in study.runs
        ],
        "maps": maps,
    }
    return json.dumps(content, indent=1, allow_nan=False, default=np.ndarray.tolist) + "\n"
