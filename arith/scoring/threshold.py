"""The error of low precision: margins below a threshold are decided in float32."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows
from tape_arith.arith.scoring.score import map_logits, rounds
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.runner import Runner

# Problems on which the error of low precision is measured.
_PROBE_ROWS = 1_000


def probing(runner: Runner) -> dict[str, float]:
    """Return the facts of a scoring whose threshold is to be measured; none in float32."""
    return {} if runner.hardware.dtype == torch.float32 else {"probed": 0.0}


def low_precision_threshold(runner: Runner, problems: Problems, keys: NDArray[np.int64]) -> float:
    """Return twice the largest difference between logits in low precision and in float32.

    Rounding cannot change the sign of a larger margin. 0 if `runner` computes in float32.
    """
    facts = {"threshold": 0.0, **probing(runner)}
    for _ in probe(runner, problems, keys, facts):
        pass
    return float(facts["threshold"])


def probe(
    runner: Runner,
    problems: Problems,
    keys: NDArray[np.int64],
    facts: dict[str, Any],
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Raise facts["threshold"] round by round, if facts["probed"], which is removed at the end.

    That is the number of problems until then, in the order of their lengths.
    """
    if "probed" not in facts:
        return
    exact, largest = runner.on(runner.hardware.in_float32()), 0.0

    def compare(groups: Sequence[Rows]) -> None:
        nonlocal largest
        low, high = (
            map_logits(each, groups, lambda _, x: x, should_stop) for each in (runner, exact)
        )
        differences = [(a - b).abs() for a, b in zip(low, high, strict=True)]
        largest = max(float(d.where(d.isfinite(), 0.0).max()) for d in differences)

    # Both precisions get the same padded groups, even if a backend would pack.
    for done in rounds(runner, problems, keys, compare, int(facts["probed"])):
        facts["threshold"] = max(facts["threshold"], 2 * largest)
        facts["probed"] = float(done)
        if done == len(keys):
            del facts["probed"]
        yield


def probed_problems(bucket: Bucket, count: int) -> tuple[Problems, NDArray[np.int64]]:
    """Return the problems, with keys, that give the threshold of the first `count` of `bucket`."""
    number = min(_PROBE_ROWS, count)
    return bucket.problems(0, number), bucket.keys(0, number)
