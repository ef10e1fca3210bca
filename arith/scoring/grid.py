"""The grid of exact match over operand lengths: counts of each cell, their means, their file.

N is the longest operand scored. Cell (i, j) holds the problems whose first operand has i digits and
whose second has j; it is `array[i - 1, j - 1]` everywhere.
"""

import json
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tape_arith.arith.data.bucket import EVALUATION, MOST_PER_CELL
from tape_arith.arith.files import (
    Count,
    NonNegative,
    Part,
    Positive,
    Sha256,
    Share,
    Text,
    read_document,
    with_checksum,
    write_text,
)
from tape_arith.arith.scoring.evaluation_set import EvaluationSet

if TYPE_CHECKING:
    import pandas as pd

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Region = Literal["in_distribution", "out_of_distribution", "one_longer", "both_longer", "all_cells"]

REGIONS: tuple[Region, ...] = get_args(Region)
REGION_WORDS: dict[Region, str] = {region: region.replace("_", " ") for region in REGIONS}
"""Names of the regions for people."""
CONVERGED = 0.99
"""In-distribution mean at or above which a run counts as converged."""
# Each share of right tokens is rounded to a multiple of this before it is added, so that sums are
# exact and do not depend on the order or the size of the chunks. The rounding is below 5e-10.
_SHARE_UNIT = 2.0**-30
# Tolerance for the last bit of a mean that equals its threshold.
SLACK = 1e-12


def region_mask(region: Region, max_digits: int, trained_digits: int) -> Bools:
    """Return the cells of `region`: bool[N, N].

    >>> region_mask("one_longer", 2, 1).astype(int).tolist()
    [[0, 1], [1, 0]]
    """
    longer = np.arange(1, max_digits + 1) > trained_digits
    number_longer = longer[:, None].astype(int) + longer
    masks: dict[Region, Bools] = {
        "in_distribution": number_longer == 0,
        "out_of_distribution": number_longer > 0,
        "one_longer": number_longer == 1,
        "both_longer": number_longer == 2,
        "all_cells": number_longer >= 0,
    }
    return masks[region]


@dataclass(eq=False, kw_only=True, repr=False)
class Grid:
    """The score of one trained run: counts per pair of operand lengths."""

    encoding: str
    """Canonical name with its options, without the extrapolation."""
    extrapolation: str | None = None
    preset: str
    settings: dict[str, int | float | str] = field(default_factory=dict)
    """Settings that replace the preset's, for people: comparisons use their hash in `budget`."""
    seed: int
    trained_digits: int
    budget: dict[str, Any]
    """The cost of training (steps, batch size, ...): grids in a comparison must agree in it."""
    evaluation: dict[str, Any]
    """The evaluation set: task, version, seed, max_digits (N), problems_per_cell, sha256; also its
    split unless that is EVALUATION."""
    scoring: dict[str, Any] = field(default_factory=dict)
    """Facts of the scoring (dtype, threshold, ...): stored, but never compared."""
    blocks_done: int = 0
    """Number of leading blocks of the evaluation set that are counted; scoring resumes after them.
    A block holds one problem of every cell."""
    exact: Ints
    """int64[N, N]: problems answered exactly."""
    total: Ints
    """int64[N, N]: problems scored; in a saved grid, `blocks_done` in every cell."""
    right_sum: Floats
    """float64[N, N]: sum over problems of the share of right answer tokens."""
    first_wrong_sum: Ints
    """int64[N, N]: sum over wrong answers of the first wrong index; 0 is least significant."""
    usual: "Grid | None" = None
    """For a grid of another split, the run's grid on the split EVALUATION; None if not known."""

    @classmethod
    def empty(cls, encoding: str, **facts: Any) -> Self:
        """Return a grid without blocks; N is `evaluation["max_digits"]`."""
        size = facts["evaluation"]["max_digits"]
        exact, total, first_wrong_sum = np.zeros((3, size, size), np.int64)
        return cls(
            encoding=encoding,
            **facts,
            exact=exact,
            total=total,
            right_sum=np.zeros((size, size)),
            first_wrong_sum=first_wrong_sum,
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a grid. Raises Failure, naming the file; Corrupt if it is damaged."""
        document = read_document(path, _GridDocument)
        facts = document.model_dump(exclude=set(_CELLS), exclude_none=True)
        exact, total = np.array(document.exact), np.array(document.total)
        right_share = np.nan_to_num(np.array(document.right_share, np.float64))
        first_wrong = np.nan_to_num(np.array(document.first_wrong, np.float64))
        return cls(
            **facts,
            exact=exact,
            total=total,
            # Sums are multiples of a known unit, so that rounding restores them exactly.
            right_sum=np.rint(right_share * total / _SHARE_UNIT) * _SHARE_UNIT,
            first_wrong_sum=np.rint(first_wrong * (total - exact)).astype(np.int64),
        )

    def save(self, path: Path) -> None:
        """Write the grid, one row of cells per line. Raises Failure if writing fails."""
        entries = []
        for key, value in with_checksum(self.content(), _GridDocument.kind).items():
            entry = json.dumps(value)
            if key in _CELLS:
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
        facts = [key for key in _GridDocument.model_fields if key not in _CELLS]
        if not self.settings:
            facts.remove("settings")
        return {key: getattr(self, key) for key in facts} | cells

    @property
    def name(self) -> str:
        """Name as on the command line: "tape", "tape+yarn"."""
        return self.encoding + (f"+{self.extrapolation}" if self.extrapolation else "")

    @property
    def split(self) -> str:
        """Split of the problems, one of `data.bucket.SPLITS`."""
        return str(self.evaluation.get("split", EVALUATION))

    @property
    def max_digits(self) -> int:
        """N, the longest operand."""
        return len(self.total)

    @property
    def complete(self) -> bool:
        """True if every problem of the evaluation set is counted."""
        return bool(self.blocks_done == self.evaluation["problems_per_cell"])

    @property
    def accuracy(self) -> Floats:
        """float64[N, N]: exact match per cell, 0..1, if a block is counted."""
        return self.exact / self.total

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per cell: its run, the digits of both operands, and its score.

        exact_match, right_share   right problems and right answer tokens, 0..1; nan before scoring
        in_distribution            whether both lengths were trained
        """
        import pandas as pd

        lengths = np.indices(self.total.shape) + 1
        with np.errstate(invalid="ignore"):
            exact_match, right_share = self.accuracy, self.right_sum / self.total
        cells: dict[str, NDArray[Any]] = {
            "digits_a": lengths[0],
            "digits_b": lengths[1],
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
        """Return the cells of `region`: bool[N, N]."""
        return region_mask(region, self.max_digits, self.trained_digits)

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

        On another split than EVALUATION, `usual` decides; None if that is not known.
        """
        grid = self if self.split == EVALUATION else self.usual
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
        if self.trained_digits == self.max_digits:
            digits = f"trained and tested to {self.max_digits} digits"
            longer = f"nothing is out of distribution ({digits})"
        run = f"{self.name} seed {self.seed}{evaluation_set or EvaluationSet(self.split)}"
        if not self.complete:
            run += f", {self.blocks_done} of {self.evaluation['problems_per_cell']} problems a cell"
        return (
            f"{run}: {longer}, in distribution {percent('in_distribution')}, "
            f"all {percent('all_cells')}"
        )

    def add(
        self, operand_lengths: Ints, num_correct: Ints, answer_tokens: Ints, first_wrong: Ints
    ) -> None:
        """Count a chunk of n scored problems: one array int[n, 2] and three arrays int[n].

        `num_correct` of `answer_tokens` are right; `first_wrong` is the index of the first wrong
        one, -1 for an exact answer. The order and the size of chunks do not change the sums, not
        even in the last bit. The caller must raise `blocks_done`.
        """
        size = self.max_digits
        cells = np.ravel_multi_index(tuple((operand_lengths - 1).T), (size, size))

        def summed(values: NDArray[Any] | None = None) -> NDArray[Any]:
            return np.bincount(cells, values, size * size).reshape(size, size)

        share = np.rint(num_correct / answer_tokens / _SHARE_UNIT) * _SHARE_UNIT
        self.total += summed()
        self.exact += summed(num_correct == answer_tokens).astype(np.int64)
        self.right_sum += summed(share)
        self.first_wrong_sum += summed(np.maximum(first_wrong, 0)).astype(np.int64)
        assert self.total.max() <= self.evaluation["problems_per_cell"], "a chunk counted twice"


def _nullable(sums: NDArray[Any], counts: Ints) -> list[list[float | None]]:
    """Return means, None where nothing is counted."""
    return [
        [total / count if count else None for total, count in zip(*row, strict=True)]
        for row in zip(sums.tolist(), counts.tolist(), strict=True)
    ]


_CELLS = ("exact", "total", "right_share", "first_wrong")
_Scalar = int | float | Text


class _Evaluation(Part):
    task: Text
    version: Count
    split: Text | None = None
    seed: Count
    max_digits: Positive
    problems_per_cell: Annotated[int, Field(ge=1, le=MOST_PER_CELL)]
    sha256: Sha256


class _GridDocument(Part):
    kind: ClassVar[str] = "grid"
    remedy: ClassVar[str] = "put back an intact copy, or score the run again with --fresh"

    encoding: Text
    extrapolation: Text | None
    # The preset names a folder.
    preset: Annotated[Text, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+=@-]*$")]
    settings: dict[Text, _Scalar] = Field(default={})
    """In the file only if settings replace those of the preset."""
    seed: Count
    trained_digits: Positive
    budget: dict[Text, _Scalar]
    evaluation: _Evaluation
    scoring: dict[Text, NonNegative | Text]
    blocks_done: Count
    exact: list[list[Count]]
    total: list[list[Count]]
    right_share: list[list[Share | None]]
    first_wrong: list[list[Annotated[float, Field(ge=0, le=MOST_PER_CELL)] | None]]

    @model_validator(mode="after")
    def _check_cells(self) -> Self:
        size = self.evaluation.max_digits
        for name in _CELLS:
            rows = getattr(self, name)
            if len(rows) != size or any(len(row) != size for row in rows):
                raise ValueError(f"'{name}' must be {size} rows of {size}")
        exact, total = np.array(self.exact), np.array(self.total)
        # A block holds a problem of every cell.
        if (
            self.trained_digits > size
            or self.blocks_done > self.evaluation.problems_per_cell
            or (total != self.blocks_done).any()
            or (exact > total).any()
        ):
            raise ValueError("'exact', 'total' and 'blocks_done' contradict each other")
        return self
