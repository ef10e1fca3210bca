"""Compute random words as a pure function of a key and an index.

Word j of index i needs no words before it, so any slice of the data can be generated alone.
The generator is Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
Only numpy's raw words are used, because its Generator methods may change between versions.
"""

import hashlib
import json

import numpy as np
import numpy.typing as npt

_WORDS_PER_COUNTER = 4  # of Philox4x64
_MASK = 2**64 - 1


def words(
    key: tuple[str | int, ...], start: int, count: int, words_each: int
) -> npt.NDArray[np.uint64]:
    """Return random words uint64[count, words_each] of the indices start .. start + count - 1.

    Different keys give independent streams. Always use a key with the same `words_each`, because
    index i has the counters from i * ceil(words_each / 4) on.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    counters_each = -(-words_each // _WORDS_PER_COUNTER)
    first = start * counters_each
    generator = np.random.Philox(
        key=np.frombuffer(digest, dtype="<u8", count=2).astype(np.uint64),
        counter=np.array([first & _MASK, first >> 64, 0, 0], dtype=np.uint64),
    )
    row = counters_each * _WORDS_PER_COUNTER
    raw: npt.NDArray[np.uint64] = generator.random_raw(count * row).reshape(count, row)
    return raw[:, :words_each]


def half_words(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Return the 32-bit halves of words [n, m], the lower half first: uint32[n, 2 m]."""
    # "<" gives the same halves in the same order on a big-endian machine.
    return np.ascontiguousarray(raw, dtype="<u8").view("<u4")


def below(
    bound: int | npt.NDArray[np.int64], halves: npt.NDArray[np.uint32]
) -> npt.NDArray[np.int64]:
    """Return integers 0 .. bound - 1 from 32-bit words, with one bound for all or one per word.

    Multiplying and shifting rejects no word, so each index needs a fixed number of words. The price
    is a relative error of probabilities of up to bound / 2**32 (10**4: 2.4e-6).
    """
    product = np.multiply(halves, np.asarray(bound, np.uint64), dtype=np.uint64)
    return (product >> np.uint64(32)).view(np.int64)  # below 2**32: the view is exact
