"""What is drawn of attention: the runs, the problems, and one of them as an example.

Shapes: N layers, H heads, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.studies.attention_patterns import Patterns

INSIDE, OUTSIDE = "in distribution", "out of distribution"
REGIONS = (INSIDE, OUTSIDE)


@dataclass(frozen=True)
class Example:
    """The problem whose maps are shown: as people write it, its tokens with the end token, how many
    of them the prompt has, and the (query, key) of each answer digit and an operand's digit of the
    same place."""

    written: str
    tokens: tuple[str, ...]
    prompt: int
    equal_places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class StudiedAttention:
    """One run: its patterns by region (of REGIONS; without a key where there are no problems), and
    its maps of the example, [N, H, T, T], without the end token."""

    run: str
    encoding: str
    seed: int
    leading_bos: int
    regions: dict[str, Patterns]
    maps: Floats | None

    @property
    def label(self) -> str:
        return self.encoding + (f", 0 to {self.leading_bos} [BOS]" if self.leading_bos else "")

    @property
    def title(self) -> str:
        return f"{self.label}, seed {self.seed}"

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head that address places best in distribution, counted from 0."""
        return self.regions[INSIDE].best

    def best_score(self, region: str) -> float:
        """Of the head that is best in distribution, in `region`, which must be there."""
        return float(self.regions[region].place[self.best])


@dataclass(frozen=True)
class Study:
    """All runs, and of which problems."""

    runs: tuple[StudiedAttention, ...]
    preset: str
    trained_digits: int
    evaluation: dict[str, Any]
    """task, version, seed, max_digits"""
    example: Example | None


def sample_line(study: Study) -> str:
    """Which problems, of which evaluation set."""
    of = study.evaluation
    counts = " and ".join(f"{p.problems} {region}" for region, p in study.runs[0].regions.items())
    return (
        f"{counts}: the first such problems of the evaluation set (task {of['task']}, to "
        f"{of['max_digits']} digits, seed {of['seed']}); trained to {study.trained_digits} digits, "
        f"preset {study.preset}."
    )


def chosen(
    num_layers: int,
    num_heads: int,
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
    *,
    every: bool = False,
) -> tuple[list[int], list[int]]:
    """Layers and heads, counted from 0, of those asked for, counted from 1. None is all heads, and
    the last layer, as in the paper's figure, or with `every` all of them.

    Errors: UsageError where one is not there.
    """
    if layers is None:
        layers = range(1 if every else num_layers, num_layers + 1)
    asked = {"layer": (layers, num_layers), "head": (heads or range(1, num_heads + 1), num_heads)}
    for what, (numbers, there) in asked.items():
        for number in numbers:
            if not 1 <= number <= there:
                raise UsageError(f"there is no {what} {number}: they are 1 to {there}")
    first, second = ([number - 1 for number in numbers] for numbers, _ in asked.values())
    return first, second
