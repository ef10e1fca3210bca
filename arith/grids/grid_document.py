"""The file of a grid: its keys, and what must hold between them."""

from typing import Annotated, Any, ClassVar, Self, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from tape_arith.arith.data.bucket import MOST_PER_CELL
from tape_arith.arith.documents import Count, NonNegative, Part, Positive, Share, Text
from tape_arith.arith.grids.axes import Axes, digit_pairs, region_mask, shape
from tape_arith.arith.grids.facts import Budget, Evaluation

CELLS = ("exact", "total", "right_share", "first_wrong")
"""The keys whose values are arrays of the shape of the axes."""
SEEN_CELLS = ("seen", "seen_exact")
"""Further such keys, of a grid that knows which problems training has seen."""
_Scalar = bool | int | float | Text
_Value = TypeVar("_Value")


def _as_rows(cells: Any) -> Any:
    """Return the cells of a grid of one axis as one row; those of two axes as they are."""
    is_one_axis = isinstance(cells, list) and not isinstance(next(iter(cells), []), list)
    return [cells] if is_one_axis else cells


_Cells = Annotated[list[list[_Value]], BeforeValidator(_as_rows)]


class GridDocument(Part):
    """The content of the file: counts and means of each cell, with the facts of the run."""

    kind: ClassVar[str] = "grid"
    remedy: ClassVar[str] = "put back an intact copy, or score the run again with --fresh"

    encoding: Text
    extrapolation: Text | None
    # The preset names a folder, PRESET or PRESET@TASK with the task in any letters (`slug`).
    preset: Annotated[Text, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+=-]*(@.*)?$")]
    settings: dict[Text, _Scalar] = Field(default={})
    """In the file only if settings replace those of the preset."""
    seed: Count
    trained_digits: Positive
    axes: Annotated[Axes, Field(max_length=2)] = ()
    """In the file only if they are not the digits of two numbers."""
    budget: Budget
    evaluation: Evaluation
    scoring: dict[Text, Count | NonNegative | Text]
    blocks_done: Count
    chunk_blocks: Count = 0
    chunk_rows: Count = 0
    """Both are in the file only if blocks after those done are counted in part."""
    exact: _Cells[Count]
    total: _Cells[Count]
    right_share: _Cells[Share | None]
    first_wrong: _Cells[Annotated[float, Field(ge=0, le=MOST_PER_CELL)] | None]
    seen: _Cells[Count] | None = None
    seen_exact: _Cells[Count] | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The keys of arrays that the file has."""
        return CELLS if self.seen is None else (*CELLS, *SEEN_CELLS)

    @property
    def scored_axes(self) -> Axes:
        return self.axes or digit_pairs(self.trained_digits, self.evaluation.max_digits)

    @model_validator(mode="after")
    def _check_cells(self) -> Self:
        digits = [axis for axis in self.scored_axes if axis.counts == "digits"]
        if not digits or any(
            (axis.trained, axis.tested) != (self.trained_digits, self.evaluation.max_digits)
            for axis in digits
        ):
            raise ValueError("'axes', 'trained_digits' and 'max_digits' contradict each other")
        *first, columns = shape(self.scored_axes)
        num_rows = first[0] if first else 1
        if (self.seen is None) != (self.seen_exact is None):
            raise ValueError("'seen' and 'seen_exact' go together")
        for name in self.cells:
            rows = getattr(self, name)
            if len(rows) != num_rows or any(len(row) != columns for row in rows):
                raise ValueError(f"'{name}' must be {num_rows} rows of {columns}")
        exact, total = np.array(self.exact), np.array(self.total)
        # A block holds a problem of every cell.
        blocks_started = self.blocks_done + self.chunk_blocks
        if (
            self.trained_digits > self.evaluation.max_digits
            or blocks_started > self.evaluation.problems_per_cell
            or ((total < self.blocks_done) | (total > blocks_started)).any()
            or total.sum() != self.blocks_done * total.size + self.chunk_rows
            or (self.chunk_rows == 0) != (self.chunk_blocks == 0)
            or (exact > total).any()
        ):
            raise ValueError("'exact', 'total' and 'blocks_done' contradict each other")
        if self.seen is not None:
            seen, seen_exact = np.array(self.seen), np.array(self.seen_exact)
            inside = region_mask("in_distribution", self.scored_axes).reshape(seen.shape)
            # Of each kind of problem, seen or not, no more are exact than there are.
            if (
                (seen_exact > np.minimum(seen, exact)).any()
                or (exact - seen_exact > total - seen).any()
                or seen[~inside].any()
            ):
                raise ValueError("'seen' and 'seen_exact' contradict 'exact', 'total' or 'axes'")
        return self
