"""Slicing, keys, hashes that hold the stream still, and the stream against Philox's paper."""

import hashlib
import json
import random
from itertools import pairwise

import numpy as np
import pytest

from tape_arith.arith.data import bucket as bucket_module
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.tasks.families.random_words import words
from tape_arith.arith.tasks.families.tokens import Vocabulary
from tape_arith.arith.tasks.task import Problems, concatenate, take

# How hashes of the first 10,000 problems begin. Where one changes, raise the task's version and
# say so in the changelog under "Changes numbers": results before and after do not compare.
GOLDEN = {
    Bucket("addition", 8, 0, "train"): "9b13b81ceeb5775c56314c0ae3467e10",
    Bucket("addition", 40, 0, "train"): "7ba0a01cfad2251a006ff5ccb1a86464",
    Bucket("addition", 80, 0, "evaluation"): "3e608c3cf4195dbe70252cc9c707020b",
    Bucket("addition", 8, 0, "carry"): "65c29ede723f2019d4fcef5ceac7205a",
    Bucket("addition", 80, 3, "carry"): "58d778f38e725e83558a2c48112412ff",
    Bucket("subtraction", 40, 1, "carry"): "26acfa8a0940c81b574e62f1a0b024e1",
    Bucket("sum", 4, 0, "carry", 6): "b30b989efacdcaf9c17ac3ef5a62c983",
    Bucket("sum", 20, 1, "carry", 10): "5e7f2187e9139837532defa18194e96e",
    Bucket("multiplication", 4, 0, "carry"): "523994a3938fecdff8a5c95ca3cf3153",
}


def same(left: Problems, right: Problems) -> bool:
    pairs = zip(map(np.asarray, left), map(np.asarray, right), strict=True)
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)


@pytest.mark.parametrize("bucket", GOLDEN, ids=str)
def test_golden_hashes(bucket: Bucket) -> None:
    assert bucket.sha256(10_000).startswith(GOLDEN[bucket])


@pytest.mark.parametrize("max_digits", [1, 200])
def test_any_slicing_gives_the_same(max_digits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket("addition", max_digits, 1, "train")
    start, stop = 16_000, 17_000  # crosses blocks, and the span whose order is drawn at once
    expected = bucket.problems(start, stop)
    cuts = [start, start + 1, 16_383, 16_384, 16_400, 16_400, stop]
    parts = [bucket.problems(a, b) for a, b in pairwise(cuts)]
    assert same(expected, concatenate(parts))
    assert np.array_equal(expected.axis_lengths, bucket.axis_lengths(start, stop))
    monkeypatch.setattr(bucket_module, "_PIECE_TOKENS", 5000)
    assert same(expected, bucket.problems(start, stop))
    assert same(expected, concatenate(list(bucket.pieces(start, stop))))
    picked = [bucket.problems(*span) for span in ((16_300, 16_400), (start, start + 1))]
    assert same(take(expected, np.array([*range(300, 400), 0])), concatenate(picked))


def test_no_problems_and_no_such_problems() -> None:
    bucket = Bucket("addition", 8, 0, "train")
    empty = bucket.problems(70, 70)
    assert [len(array) for array in empty] == [0, 0, 0, 0, 0]
    assert empty.axis_lengths.shape == (0, 2) and empty.tokens.dtype == np.uint8
    assert len(bucket.keys(5, 5)) == 0 and list(bucket.pieces(5, 5)) == []
    with pytest.raises(UsageError, match="not 0"):
        Bucket("addition", 0, 0, "train")


def test_streams_and_keys_differ_in_every_field() -> None:
    base = Bucket("addition", 8, 0, "train")
    different = [
        Bucket("addition", 8, 1, "train"),
        Bucket("addition", 8, 0, "evaluation"),
        Bucket("addition", 8, 0, "carry"),
        Bucket("addition", 9, 0, "train"),
        Bucket("addition:pad=true", 8, 0, "train"),
        Bucket("sum", 8, 0, "train", 4),
        Bucket("sum", 8, 0, "train", 3),
    ]
    assert len({bucket.sha256(100) for bucket in [base, *different]}) == 8
    keys = base.keys(0, 2000)
    assert keys.dtype == np.int64 and keys.min() >= 0
    assert keys.max() > 2**62  # all 63 bits are in use
    assert np.array_equal(keys[500:700], base.keys(500, 700))
    drawn = [keys, base.keys(0, 2000, draw=1), *(bucket.keys(0, 2000) for bucket in different)]
    assert len(np.unique(np.concatenate(drawn))) == 18_000


# The stream once more, a word at a time, from the paper's definition of Philox4x64-10.


def philox(key: tuple[int, int], counter: int) -> list[int]:
    mask, (k0, k1) = 2**64 - 1, key
    c = [counter >> 64 * place & mask for place in range(4)]
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [right >> 64 ^ c[1] ^ k0, right & mask, left >> 64 ^ c[3] ^ k1, left & mask]
        k0, k1 = k0 + 0x9E3779B97F4A7C15 & mask, k1 + 0xBB67AE8584CAA73B & mask
    return c


def plain_words(key: tuple[str | int, ...], index: int, count: int) -> list[int]:
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    halves = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
    counters = (count + 3) // 4
    # numpy counts up before it draws: its first words are those of counter + 1.
    drawn = [philox(halves, index * counters + step + 1) for step in range(counters)]
    return [word for four in drawn for word in four][:count]


def plain_problem(max_digits: int, seed: int, index: int) -> str:
    key = ("addition", 1, seed, "train", max_digits)
    pairs = max_digits**2
    block, place = divmod(index, pairs)
    low = 2 ** (pairs - 1).bit_length() - 1
    order = plain_words((*key, "order"), block, pairs)
    pair = sorted(range(pairs), key=lambda number: (order[number] & ~low, number))[place]
    quads = (max_digits + 3) // 4
    drawn = plain_words((*key, "digits"), index, 1 + quads)
    halves = [half for word in drawn for half in (word & 0xFFFFFFFF, word >> 32)]
    operands = []
    for side, length in enumerate(divmod(pair, max_digits)):
        own = halves[2 + side * quads : 2 + (side + 1) * quads]
        digits = "".join(f"{half * 10**4 >> 32:04d}"[::-1] for half in own)
        operands.append(digits[:length] + str((halves[side] * 9 >> 32) + 1))
    answer = int(operands[0][::-1]) + int(operands[1][::-1])
    return f"{operands[0]}+{operands[1]}={str(answer)[::-1]}"


@pytest.mark.parametrize("max_digits", [1, 5, 40])
def test_the_stream_is_as_documented(max_digits: int) -> None:
    bucket = Bucket("addition", max_digits, 7, "train")
    indices = [0, 1, *random.Random(0).sample(range(200_000), 6), 2**40]
    for index in indices:
        (line,) = Vocabulary().lines(bucket.problems(index, index + 1).tokens).splitlines()
        assert line == plain_problem(max_digits, 7, index)


def test_words_beyond_two_to_the_64th_counter() -> None:
    start = 2**63  # times two counters each
    drawn = words(("far",), start, 2, 5)
    assert drawn.tolist() == [plain_words(("far",), start + step, 5) for step in (0, 1)]
