"""Balance, uniformity, slicing, keys, and hashes that hold the stream still."""

from itertools import pairwise

import numpy as np
import pytest

from tape_arith.arith.data import bucket as bucket_module
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.tasks.task import Problems

# The first 10,000 problems. Where one of these changes, the task's version must be raised and the
# changelog must say so under "Changes numbers": results before and after do not compare.
GOLDEN = {
    (8, 0, "train"): "9b13b81ceeb5775c56314c0ae3467e109abab6dca346ecc2df4ecf17eee27832",
    (40, 0, "train"): "7ba0a01cfad2251a006ff5ccb1a864647f21609b8019c727b65b708a24670b11",
    (80, 0, "evaluation"): "3e608c3cf4195dbe70252cc9c707020b261b6e6fcfa0806730cef59f398c208d",
}


def same(left: Problems, right: Problems) -> bool:
    pairs = zip(map(np.asarray, left), map(np.asarray, right), strict=True)
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)


@pytest.mark.parametrize("fields", GOLDEN)
def test_golden_hashes(fields: tuple[int, int, str]) -> None:
    max_digits, seed, split = fields
    assert Bucket("addition", max_digits, seed, split).sha256(10_000) == GOLDEN[fields]


@pytest.mark.parametrize("max_digits", [1, 2, 8, 40])
def test_each_block_holds_every_pair_once_in_an_order_of_its_own(max_digits: int) -> None:
    bucket = Bucket("addition", max_digits, 0, "train")
    pairs, blocks = bucket.num_cells, 12
    lengths = bucket.axis_lengths(0, blocks * pairs).reshape(blocks, pairs, 2)
    numbers = (lengths[:, :, 0] - 1) * max_digits + lengths[:, :, 1] - 1
    assert (np.sort(numbers, axis=1) == np.arange(pairs)).all()
    if max_digits >= 8:
        assert len({tuple(block) for block in numbers.tolist()}) == blocks
        # Mixed: where a pair stands in a block says nothing of its lengths.
        assert abs(np.corrcoef(np.tile(np.arange(pairs), blocks), numbers.ravel())[0, 1]) < 0.1


@pytest.mark.parametrize("max_digits", [1, 2, 8, 40, 300])
def test_any_slicing_gives_the_same(max_digits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket("addition", max_digits, 1, "train")
    start, stop = 16_000, 17_000  # crosses blocks, and the span whose order is drawn at once
    expected = bucket.problems(start, stop)
    cuts = [start, start + 1, 16_383, 16_384, 16_400, 16_400, stop]
    parts = [bucket.problems(a, b) for a, b in pairwise(cuts)]
    joined = Problems(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    assert same(expected, joined)
    assert np.array_equal(expected.axis_lengths, bucket.axis_lengths(start, stop))
    monkeypatch.setattr(bucket_module, "_CACHED_TOKENS", 5000)
    monkeypatch.setattr(bucket_module, "_PIECE_TOKENS", 20_000)
    assert same(expected, bucket.problems(start, stop))
    pieces = Problems(*map(np.concatenate, zip(*bucket.pieces(start, stop), strict=True)))
    assert same(expected, pieces)


def test_no_problems_and_no_such_problems() -> None:
    bucket = Bucket("addition", 8, 0, "train")
    empty = bucket.problems(70, 70)
    assert [len(array) for array in empty] == [0, 0, 0, 0, 0]
    assert empty.axis_lengths.shape == (0, 2) and empty.tokens.dtype == np.uint8
    assert len(bucket.keys(5, 5)) == 0 and list(bucket.pieces(5, 5)) == []
    with pytest.raises(ValueError, match="from 0 on"):
        bucket.problems(-1, 3)
    for max_digits in (0, 701):
        with pytest.raises(UsageError, match=f"1 to 700 digits, not {max_digits}"):
            Bucket("addition", max_digits, 0, "train")


def test_streams_and_keys_differ_in_every_field() -> None:
    base = Bucket("addition", 8, 0, "train")
    different = [
        Bucket("addition", 8, 1, "train"),
        Bucket("addition", 8, 0, "evaluation"),
        Bucket("addition", 9, 0, "train"),
    ]
    assert len({bucket.sha256(100) for bucket in [base, *different]}) == 4
    keys = base.keys(0, 2000)
    assert keys.dtype == np.int64 and keys.min() >= 0
    assert keys.max() > 2**62  # all 63 bits are in use
    assert np.array_equal(keys[500:700], base.keys(500, 700))
    drawn = [keys, base.keys(0, 2000, draw=1), *(bucket.keys(0, 2000) for bucket in different)]
    assert len(np.unique(np.concatenate(drawn))) == 10_000
