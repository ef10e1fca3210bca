"""Which cells of a grid a mean is taken over.

Shapes: N the longest operand scored; cell (i, j) is `[i - 1, j - 1]`, as in a grid.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.errors import UsageError

Bools = NDArray[np.bool_]
Region = Literal["in_distribution", "out_of_distribution", "one_longer", "both_longer", "all_cells"]

REGIONS: tuple[Region, ...] = get_args(Region)
REGION_WORDS: dict[Region, str] = {region: region.replace("_", " ") for region in REGIONS}
"""What people read in place of the names that programs read."""


def mask(region: Region, max_digits: int, trained_digits: int) -> Bools:
    """Which cells belong to `region`: bool[N, N].

    >>> mask("one_longer", 2, 1).astype(int).tolist()
    [[0, 1], [1, 0]]
    """
    if region not in REGIONS:
        raise UsageError(f"unknown region '{region}'. Known: {', '.join(REGIONS)}")
    longer = np.arange(1, max_digits + 1) > trained_digits
    first, second = longer[:, None], longer[None, :]
    if region == "in_distribution":
        return ~(first | second)
    if region == "one_longer":
        return first ^ second
    if region == "both_longer":
        return first & second
    if region == "out_of_distribution":
        return first | second
    return np.ones((max_digits, max_digits), dtype=np.bool_)
