"""The grid of exact match over the lengths of problems: counts of each cell, means.

A grid has a dimension for each axis of its task. For two numbers, cell (i, j) holds the problems
whose first operand has i digits and whose second has j; it is `array[i - 1, j - 1]` everywhere.
"""

import json
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.documents import read_document, with_checksum
from tape_arith.arith.files import write_text
from tape_arith.arith.grids.axes import (
    Axes,
    Bools,
    Ints,
    Region,
    cell_lengths,
    digit_pairs,
    region_mask,
    shape,
)
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.grids.facts import About, Budget, Evaluation
from tape_arith.arith.grids.grid_document import CELLS, GridDocument

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
CONVERGED = 0.99
"""In-distribution mean at or above which a run counts as converged."""
# Each share of right tokens is rounded to a multiple of this before it is added, so that sums are
# exact and do not depend on the order or the size of the chunks. The rounding is below 5e-10.
_SHARE_UNIT = 2.0**-30
# Tolerance for the last bit of a mean that equals its threshold.
SLACK = 1e-12


@dataclass(eq=False, kw_only=True, repr=False)
class Grid:
    """The score of one trained run: counts per cell, arrays of the shape of its axes."""

    encoding: str
    """Canonical name with its options, without the extrapolation."""
    extrapolation: str | None = None
    preset: str
    settings: dict[str, int | float | str] = field(default_factory=dict)
    """Settings that replace the preset's, for people: comparisons use their hash in `budget`."""
    seed: int
    axes: Axes
    budget: Budget
    """The cost of training: grids in a comparison must agree in it."""
    evaluation: Evaluation
    """The evaluation set: grids in a comparison must agree in it too."""
    scoring: dict[str, Any] = field(default_factory=dict)
    """Facts of the scoring (dtype, threshold, ...): stored, but never compared."""
    blocks_done: int = 0
    """Number of leading blocks of the evaluation set that are counted; scoring resumes after them.
    A block holds one problem of every cell."""
    exact: Ints
    """int64: problems answered exactly."""
    total: Ints
    """int64: problems scored; in a saved grid, `blocks_done` in every cell."""
    right_sum: Floats
    """float64: sum over problems of the share of right answer tokens. Of this and the next the last
    digits depend on the precision of the scoring; `exact` does not."""
    first_wrong_sum: Ints
    """int64: sum over wrong answers of `Outcome.first_wrong`."""
    standard: "Grid | None" = None
    """For a grid of another split, the run's grid on the split EVALUATION; None if not known."""
    about: About | None = None
    """What the run recorded of its encoding; None if not known."""

    @classmethod
    def empty(cls, encoding: str, axes: Axes, **facts: Any) -> Self:
        """Return a grid without blocks."""
        exact, total, first_wrong_sum = np.zeros((3, *shape(axes)), np.int64)
        return cls(
            encoding=encoding,
            axes=axes,
            **facts,
            exact=exact,
            total=total,
            right_sum=np.zeros(shape(axes)),
            first_wrong_sum=first_wrong_sum,
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a grid. Raises Failure, naming the file; Corrupt if it is damaged."""
        document = read_document(path, GridDocument)
        excluded = {*CELLS, "axes", "trained_digits", "budget", "evaluation"}
        facts = document.model_dump(exclude=excluded, exclude_none=True)
        cells = {
            name: np.array(getattr(document, name)).reshape(shape(document.scored_axes))
            for name in CELLS
        }
        exact, total = cells["exact"], cells["total"]
        right_share = np.nan_to_num(cells["right_share"].astype(np.float64))
        first_wrong = np.nan_to_num(cells["first_wrong"].astype(np.float64))
        return cls(
            **facts,
            axes=document.scored_axes,
            budget=document.budget,
            evaluation=document.evaluation,
            exact=exact,
            total=total,
            # Sums are multiples of a known unit, so that rounding restores them exactly.
            right_sum=np.rint(right_share * total / _SHARE_UNIT) * _SHARE_UNIT,
            first_wrong_sum=np.rint(first_wrong * (total - exact)).astype(np.int64),
        )

    def save(self, path: Path) -> None:
        """Write the grid, one row of cells per line. Raises Failure if writing fails."""
        entries = []
        for key, value in with_checksum(self.content(), GridDocument.kind).items():
            entry = json.dumps(value)
            if key in CELLS:
                entry = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
            entries.append(f'"{key}": {entry}')
        write_text(path, "{\n " + ",\n ".join(entries) + "\n}\n")

    def content(self) -> dict[str, Any]:
        """Return the file's content in plain Python types: means instead of sums, None for nan."""
        cells = {
            "exact": self.exact.tolist(),
            "total": self.total.tolist(),
            "right_share": _nullable(self.right_sum, self.total),
            "first_wrong": _nullable(self.first_wrong_sum, self.total - self.exact),
        }
        facts = {key: getattr(self, key) for key in GridDocument.model_fields if key not in CELLS}
        facts |= {"budget": self.budget.as_dict(), "evaluation": self.evaluation.as_dict()}
        facts["axes"] = [axis._asdict() for axis in self.axes]
        if not self.settings:
            del facts["settings"]
        if self.axes == digit_pairs(self.trained_digits, self.max_digits):
            del facts["axes"]
        return facts | cells

    @property
    def name(self) -> str:
        """Name as on the command line: "tape", "tape+yarn"."""
        return self.encoding + (f"+{self.extrapolation}" if self.extrapolation else "")

    @property
    def split(self) -> str:
        """Split of the problems, one of `data.bucket.SPLITS`."""
        return self.evaluation.split

    @property
    def trained_digits(self) -> int:
        """Most digits in training."""
        return next(axis.trained for axis in self.axes if axis.counts == "digits")

    @property
    def max_digits(self) -> int:
        """Most digits that are scored."""
        return next(axis.tested for axis in self.axes if axis.counts == "digits")

    @property
    def complete(self) -> bool:
        """True if every problem of the evaluation set is counted."""
        return self.blocks_done == self.evaluation.problems_per_cell

    @property
    def accuracy(self) -> Floats:
        """float64: exact match per cell, 0..1, if a block is counted."""
        return self.exact / self.total

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per cell: its run, its length on each axis, and its score.

        exact_match, right_share   right problems and right answer tokens, 0..1; nan before scoring.
                                   The second depends on the precision of the scoring
        in_distribution            whether all lengths were trained
        """
        import pandas as pd

        lengths = cell_lengths(self.axes)
        with np.errstate(invalid="ignore"):
            exact_match, right_share = self.accuracy, self.right_sum / self.total
        cells: dict[str, NDArray[Any]] = {
            **{axis.column: lengths[..., k] for k, axis in enumerate(self.axes)},
            "in_distribution": self.mask("in_distribution"),
            "exact": self.exact,
            "total": self.total,
            "exact_match": exact_match,
            "right_share": right_share,
        }
        frame = pd.DataFrame({name: values.ravel() for name, values in cells.items()})
        run = {"preset": self.preset, "pe": self.name, "seed": self.seed}
        return pd.concat([pd.DataFrame(run, frame.index), frame], axis=1)

    def mask(self, region: Region) -> Bools:
        """Return the cells of `region`: bool, of the grid's shape."""
        return region_mask(region, self.axes)

    def mean(self, region: Region) -> float | None:
        """Return the mean of exact match over the cells of `region`, each with the same weight.

        Returns None if the region has no cell or no block is counted.
        """
        mask = self.mask(region)
        if not self.blocks_done or not mask.any():
            return None
        return fsum(self.accuracy[mask]) / int(mask.sum())

    @property
    def converged(self) -> bool | None:
        """True if the trained lengths were learned; None while no block is counted.

        On another split than EVALUATION, `standard` decides; None if that is not known.
        """
        grid = self if self.split == EVALUATION else self.standard
        value = None if grid is None else grid.mean("in_distribution")
        return None if value is None else value >= CONVERGED - SLACK

    def __repr__(self) -> str:
        return f"<Grid of {self.summary()}>"

    def summary(self, evaluation_set: EvaluationSet | None = None) -> str:
        """Return one line: the means in percent, and how many problems are scored if not all."""

        def percent(region: Region) -> str:
            mean = self.mean(region)
            return "not scored" if mean is None else f"{mean:.1%}"

        longer = f"out of distribution {percent('out_of_distribution')}"
        if not self.mask("out_of_distribution").any():
            digits = f"trained and tested to {self.max_digits} digits"
            longer = f"nothing is out of distribution ({digits})"
        run = f"{self.name} seed {self.seed}{evaluation_set or EvaluationSet(self.split)}"
        if not self.complete:
            run += f", {self.blocks_done} of {self.evaluation.problems_per_cell} problems a cell"
        return (
            f"{run}: {longer}, in distribution {percent('in_distribution')}, "
            f"all {percent('all_cells')}"
        )

    def add(
        self, axis_lengths: Ints, num_correct: Ints, answer_tokens: Ints, first_wrong: Ints
    ) -> None:
        """Count a chunk of n scored problems: one array int[n, axes] and three arrays int[n].

        `num_correct` of `answer_tokens` are right; `first_wrong` is the index of the first wrong
        one, -1 for an exact answer. The order and the size of chunks do not change the sums, not
        even in the last bit. The caller must raise `blocks_done`.
        """
        shortest = np.array([axis.shortest for axis in self.axes])
        cells = np.ravel_multi_index(tuple((axis_lengths - shortest).T), self.total.shape)

        def summed(values: NDArray[Any] | None = None) -> NDArray[Any]:
            return np.bincount(cells, values, self.total.size).reshape(self.total.shape)

        share = np.rint(num_correct / answer_tokens / _SHARE_UNIT) * _SHARE_UNIT
        self.total += summed()
        self.exact += summed(num_correct == answer_tokens).astype(np.int64)
        self.right_sum += summed(share)
        self.first_wrong_sum += summed(np.maximum(first_wrong, 0)).astype(np.int64)
        assert self.total.max() <= self.evaluation.problems_per_cell, "a chunk counted twice"


def _nullable(sums: NDArray[Any], counts: Ints) -> Any:
    """Return means as nested lists, None where nothing is counted."""
    means = np.full(sums.shape, None, dtype=object)
    counted = counts > 0
    means[counted] = sums[counted] / counts[counted]
    return means.tolist()
