"""Tell which problems a training has seen: short ones recur, because there are few of them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.tasks.task import Problems

Bools = NDArray[np.bool_]
SOON_MADE = 2_000_000
"""Number of problems that are generated within seconds; more are worth a message."""


class SeenProblems:
    """The problems that a training has seen, known by their fingerprints.

    Two different problems share a fingerprint of 64 bits with a chance below 2^-59.
    """

    def __init__(
        self, training: Bucket, count: int, before_piece: Callable[[], None] = lambda: None
    ) -> None:
        """Generate the first `count` problems of `training`."""
        # A fixed random odd multiplier for each place of a problem.
        words = np.random.Generator(np.random.Philox(0))
        self._multipliers = words.integers(0, 2**64, training.longest, np.uint64) | np.uint64(1)
        self.most = np.array(training.most)
        parts = [np.zeros(0, np.uint64)]
        for piece in training.pieces(0, count):
            before_piece()
            parts.append(np.unique(self._fingerprints(piece)))
        self._known = np.unique(np.concatenate(parts))

    def __call__(self, problems: Problems) -> Bools:
        """Return which of n problems training has seen: bool[n].

        Two problems are the same if all their tokens are, blanks and index hints included.
        """
        trained = (problems.axis_lengths <= self.most).all(axis=1)
        # Problems of trained lengths have a multiplier for each token; others were never seen.
        return trained & np.isin(self._fingerprints(problems), self._known)

    def _fingerprints(self, problems: Problems) -> NDArray[np.uint64]:
        starts, places = problems.starts, np.arange(len(problems.tokens))
        places = (places - np.repeat(starts, problems.lengths)) % len(self._multipliers)
        products = (problems.tokens.astype(np.uint64) + np.uint64(1)) * self._multipliers[places]
        if not len(starts):
            return np.zeros(0, np.uint64)
        return np.add.reduceat(products, starts, dtype=np.uint64)


def seen_share(seen: SeenProblems, tested: Bucket, per_cell: int) -> float:
    """Return the share of the tested problems of trained lengths that training has seen."""
    known = trained = 0
    for problems in tested.pieces(0, per_cell * tested.num_cells):
        trained += int((problems.axis_lengths <= seen.most).all(axis=1).sum())
        known += int(seen(problems).sum())
    return known / trained
