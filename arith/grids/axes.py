"""The axes of a grid, and the regions of its cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.documents import Positive, Strict, Text
from tape_arith.arith.tasks.load import load_task

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Region = Literal["in_distribution", "out_of_distribution", "one_longer", "both_longer", "all_cells"]

REGIONS: tuple[Region, ...] = get_args(Region)
REGION_WORDS: dict[Region, str] = {region: region.replace("_", " ") for region in REGIONS}
"""Names of the regions for people."""
Numbers = Literal["none", "out", "all"]
"""The numbers next to a name in a figure: none, the mean out of distribution, or all means and the
seeds."""


@dataclass(frozen=True)
class ScoredAxis(Strict):
    """An axis of a grid: its task's name and column, its shortest, trained and tested length.

    An axis of places is trained and tested up to its last place.
    """

    name: Text
    column: Annotated[Text, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    counts: Literal["digits", "operands", "places"]
    shortest: Positive
    trained: Positive
    tested: Positive

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.shortest <= self.trained <= self.tested:
            raise ValueError("an axis has 'shortest' <= 'trained' <= 'tested'")
        if self.is_place and self.trained < self.tested:
            raise ValueError("all of the places of an axis are trained")
        return self

    @property
    def lengths(self) -> Ints:
        """int64: the lengths along the axis."""
        return np.arange(self.shortest, self.tested + 1)

    @property
    def is_place(self) -> bool:
        """Tell whether it counts places, along which no problem is longer than another."""
        return self.counts == "places"


Axes = tuple[ScoredAxis, ...]


def length_axes(axes: Axes) -> Axes:
    """Return the axes along which problems become longer."""
    return tuple(axis for axis in axes if not axis.is_place)


def digit_pairs(trained: int, tested: int) -> Axes:
    """Return the axes of two numbers.

    >>> [axis.column for axis in digit_pairs(8, 16)]
    ['digits_a', 'digits_b']
    """
    return tuple(
        ScoredAxis(f"digits of {side}", f"digits_{side}", "digits", 1, trained, tested)
        for side in "ab"
    )


def scored_axes(trained: Bucket, tested: Bucket) -> Axes:
    """Return the axes of a grid over the cells of `tested`, after training on `trained`."""
    axes = load_task(tested.task).axes
    return tuple(
        ScoredAxis(axis.name, axis.column, axis.counts, axis.shortest, *most)
        for axis, *most in zip(axes, trained.most, tested.most, strict=True)
    )


def shape(axes: Axes) -> tuple[int, ...]:
    """Return the number of lengths on each axis."""
    return tuple(len(axis.lengths) for axis in axes)


def number_longer(axes: Axes, lengths: NDArray[Any]) -> NDArray[Any]:
    """Return on how many axes each problem is longer than trained: [..., axes] to [...]."""
    trained = np.array([axis.trained for axis in axes])
    return np.count_nonzero(lengths > trained, axis=-1)


def cell_lengths(axes: Axes) -> Ints:
    """Return the length of each cell on each axis: int64[*shape, axes]."""
    return np.stack(np.meshgrid(*(axis.lengths for axis in axes), indexing="ij"), axis=-1)


@cache
def region_mask(region: Region, axes: Axes) -> Bools:
    """Return the cells of `region`: bool[*shape].

    >>> region_mask("one_longer", digit_pairs(1, 2)).astype(int).tolist()
    [[0, 1], [1, 0]]
    """
    longer = number_longer(axes, cell_lengths(axes))
    masks: dict[Region, Bools] = {
        "in_distribution": longer == 0,
        "out_of_distribution": longer > 0,
        "one_longer": longer == 1,
        "both_longer": longer == 2,
        "all_cells": longer >= 0,
    }
    return masks[region]


def regions(axes: Axes) -> tuple[Region, ...]:
    """Return the regions of a grid; only one of two lengths has "one longer" and "both longer".

    >>> regions(digit_pairs(4, 8)[:1])
    ('in_distribution', 'out_of_distribution', 'all_cells')
    """
    pairs = ("one_longer", "both_longer")
    has_pairs = len(length_axes(axes)) == 2
    return tuple(region for region in REGIONS if has_pairs or region not in pairs)


def longest_digits(axes: Axes, lengths: NDArray[Any]) -> Ints:
    """Return the greatest length of each problem on the axes that count digits.

    >>> longest_digits(digit_pairs(4, 8), np.array([[3, 5]])).tolist()
    [5]
    """
    columns: Sequence[int] = [k for k, axis in enumerate(axes) if axis.counts == "digits"]
    longest: Ints = lengths[..., columns].max(axis=-1)
    return longest
