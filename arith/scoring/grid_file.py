"""The file of a grid: a document that says means instead of sums, a row of cells a line."""

import json
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from tape_arith.arith.documents import (
    Count,
    NonNegative,
    Part,
    Positive,
    Sha256,
    Share,
    Text,
    read_document,
    with_checksum,
)
from tape_arith.arith.files import write_text
from tape_arith.arith.scoring.grid import SHARE_UNIT, Floats, Grid, Ints
from tape_arith.arith.scoring.limits import MOST_PER_CELL

_CELLS = ("exact", "total", "right_share", "first_wrong")
REMEDY = "put back a copy that is whole, or score the run again with --fresh"
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
    remedy: ClassVar[str] = REMEDY

    encoding: Text
    extrapolation: Text | None
    # It names a folder.
    preset: Annotated[Text, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+=@-]*$")]
    settings: dict[Text, _Scalar] = Field(default={})
    """Only in the file if the preset was changed."""
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
        if self.trained_digits > size:
            raise ValueError("'trained_digits' must be at most 'evaluation.max_digits'")
        for name in _CELLS:
            rows = getattr(self, name)
            if len(rows) != size or any(len(row) != size for row in rows):
                raise ValueError(f"'{name}' must be {size} rows of {size}")
        exact, total = np.array(self.exact), np.array(self.total)
        if total.max() > self.evaluation.problems_per_cell:
            raise ValueError("more problems in a cell than 'evaluation.problems_per_cell'")
        if total.min() < self.blocks_done:  # a block holds a problem of every cell
            raise ValueError("'total' disagrees with 'blocks_done'")
        if (exact > total).any():
            raise ValueError("more exact answers than problems in a cell")
        for name, counts in (("right_share", total), ("first_wrong", total - exact)):
            if not np.array_equal(np.isnan(_array(getattr(self, name))), counts == 0):
                raise ValueError(f"'{name}' must be null where nothing was counted, and only there")
        right_sum = _right_sum(self.right_share, total)
        if (right_sum < exact).any() or (right_sum > total).any():
            raise ValueError("'right_share' disagrees with 'exact'")
        return self


def save(grid: Grid, path: Path) -> None:
    """Write `grid`. Raises Failure if the disk refuses."""
    entries = []
    for key, value in with_checksum(grid.content(), _GridDocument.kind).items():
        entry = json.dumps(value)
        if key in _CELLS:
            entry = "[\n  " + ",\n  ".join(json.dumps(row) for row in value) + "\n ]"
        entries.append(f'"{key}": {entry}')
    write_text(path, "{\n " + ",\n ".join(entries) + "\n}\n")


def load(path: Path) -> Grid:
    """Read a grid. Raises Failure, naming the file; Corrupt if it is damaged."""
    document = read_document(path, _GridDocument)
    exact, total = np.array(document.exact), np.array(document.total)
    first_wrong = np.nan_to_num(_array(document.first_wrong))
    return Grid(
        document.encoding,
        document.extrapolation,
        document.preset,
        document.seed,
        document.trained_digits,
        document.budget,
        document.evaluation.model_dump(exclude_none=True),
        exact=exact,
        total=total,
        right_sum=_right_sum(document.right_share, total),
        first_wrong_sum=np.rint(first_wrong * (total - exact)).astype(np.int64),
        blocks_done=document.blocks_done,
        scoring=document.scoring,
        settings=document.settings,
    )


def _array(means: list[list[float | None]]) -> Floats:
    """Return means as float64, nan for None."""
    return np.array(means, dtype=np.float64)


def _right_sum(means: list[list[float | None]], total: Ints) -> Floats:
    # Sums are multiples of a known unit, so that means give them back to the last bit.
    return np.rint(np.nan_to_num(_array(means)) * total / SHARE_UNIT) * SHARE_UNIT
