"""How large a grid may be."""

from tape_arith.arith.data.bucket import MOST_DIGITS
from tape_arith.arith.errors import UsageError

MOST_PER_CELL = 2**20
"""Most problems a cell may hold: up to here every sum of a grid is exact in float64."""
MOST_PROBLEMS = 2**26
"""Most problems of a grid, 136 a cell to 700 digits: more would be made for hours before the first
is scored."""


def check_size(size: int, per_cell: int, trained_digits: int) -> None:
    """Errors: UsageError where nothing could be scored on a grid to `size` digits."""
    if trained_digits < 1:
        raise UsageError(f"operands have 1 digit or more, not {trained_digits}")
    if size < trained_digits:
        raise UsageError(
            f"a grid to {size} digits does not cover the {trained_digits} trained digits: "
            f"score to {trained_digits} digits or more"
        )
    if size > MOST_DIGITS:
        raise UsageError(f"operands have 1 to {MOST_DIGITS} digits, not {size}")
    if not 1 <= per_cell <= MOST_PER_CELL:
        raise UsageError(f"{per_cell} problems a cell: give 1 to {MOST_PER_CELL:,}")
    if size * size * per_cell > MOST_PROBLEMS:
        raise UsageError(
            f"{per_cell:,} problems a cell to {size} digits are {size * size * per_cell:,}: a grid "
            f"has {MOST_PROBLEMS:,} at most, so {MOST_PROBLEMS // size**2:,} a cell"
        )
