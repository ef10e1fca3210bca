"""The longest lengths that are solved, against counting by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tape_arith.arith.scoring.grid import by_length, solved_to
from tests.helpers.made_grids import filled


def test_by_the_longer_operand() -> None:
    grid = filled([[100, 80, 0], [90, 40, 0], [60, 0, 0]])
    assert by_length([grid]) == pytest.approx([1.0, (0.8 + 0.9 + 0.4) / 3, 0.6 / 5])
    other = filled([[100, 0, 0], [0, 0, 0], [0, 0, 0]])
    assert by_length([grid, other]) == pytest.approx([1.0, 0.35, 0.06])


def test_every_length_up_to_it() -> None:
    square = np.full((5, 5), 100)
    assert solved_to([filled(square)], 0.99) == 5
    square[2, :3] = square[:2, 2] = 0  # three digits are not solved, longer ones are
    assert solved_to([filled(square)], 0.9) == 2
    square[0, 0] = 89
    assert solved_to([filled(square)], 0.9) == 0


def test_the_share_itself_is_enough() -> None:
    for right, share in ((90, 0.9), (99, 0.99)):
        grids = [filled(np.full((6, 6), right), seed=seed) for seed in range(3)]
        assert solved_to(grids, share) == 6
        grids[1].exact[5, 5] -= 1
        assert solved_to(grids, share) == 5


def test_missing_cells() -> None:
    grid = filled([[100, 100, 0], [100, 100, 0], [0, 0, 0]])
    grid.total[2, 2] = 0
    assert by_length([grid])[2] is None
    assert solved_to([grid], 0.9) is None  # three digits may be solved: nobody knows
    grid.exact[1, 1] = 0
    assert solved_to([grid], 0.9) == 1  # whatever lies beyond


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 100), min_size=16, max_size=16))
def test_against_loops(counts: list[int]) -> None:
    rows = [counts[4 * k : 4 * k + 4] for k in range(4)]
    expected = 0
    for length in range(1, 5):
        cells = [rows[i][j] for i in range(4) for j in range(4) if max(i + 1, j + 1) == length]
        if sum(cells) < 90 * len(cells):
            break
        expected = length
    assert solved_to([filled(rows)], 0.9) == expected
