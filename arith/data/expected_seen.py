"""Which share of the evaluation problems of each cell can occur in training."""

import math

import numpy as np

from arith.data.bucket import Bucket


def expected_seen(bucket: Bucket, count: int) -> list[list[float]]:
    """Row i - 1, column j - 1: the expected share for operands of i and j digits.

    Evaluation problems are drawn from another stream, uniformly from the N ordered pairs of such
    operands. With n of the first `count` training problems in that cell, each of the N is among
    them with probability 1 - (1 - 1/N)**n. With 12,500 drawn: all 81 of (1, 1), 1.5 % of (3, 3),
    one in 600,000 of (5, 5). N of 300 and 300 digits is past every float: it stays an integer.
    """
    numbers = [9 * 10 ** (digits - 1) for digits in range(1, bucket.max_digits + 1)]
    drawn = _problems_in_cells(bucket, count)
    return [
        [_share(first * second, n) for second, n in zip(numbers, row, strict=True)]
        for first, row in zip(numbers, drawn, strict=True)
    ]


def _share(pairs: int, drawn: int) -> float:
    # 1 / pairs of two integers is rounded rightly, to 0.0 where it is past every float.
    return -math.expm1(drawn * math.log1p(-1 / pairs))


def _problems_in_cells(bucket: Bucket, count: int) -> list[list[int]]:
    blocks, rest = divmod(count, bucket.num_pairs)
    drawn = np.full((bucket.max_digits, bucket.max_digits), blocks)
    lengths = bucket.operand_lengths(count - rest, count)
    np.add.at(drawn, (lengths[:, 0] - 1, lengths[:, 1] - 1), 1)
    cells: list[list[int]] = drawn.tolist()
    return cells
