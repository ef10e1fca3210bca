"""Fill a grid with the scores of its problems, in steps that can be saved."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.scoring.score import ROWS_A_CHUNK, Outcome, by_length, score_rounds
from tape_arith.arith.scoring.threshold import probe, probed_problems, probing
from tape_arith.arith.stopping import Stopped
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.runner import Runner

# Seconds between two saves of a grid.
_BETWEEN_SAVES = 10.0


def score_grid(
    runner: Runner,
    bucket: Bucket,
    grid: Grid,
    save: Callable[[Grid], None],
    progress: Callable[[int], None] = lambda scored: None,
    should_stop: Callable[[], bool] = lambda: False,
    now: Mapping[str, Any] | None = None,
    seen: Callable[[Problems], NDArray[np.bool_]] | None = None,
) -> None:
    """Fill `grid` from where it stopped on; a block holds one problem of every cell.

    `save` is called now and then and at the end, `progress` and `should_stop` after every round of
    about a second, so that each call gets a little further. `now` is what `scoring_now` returned; a
    grid that is scored in several calls stores all values. `seen` tells which problems training has
    seen, as `data.seen.SeenProblems` does. Raises Stopped; the caller saves the grid then.
    """
    runner.decoder.eval()
    _set_threshold(runner, bucket, grid, {**(now or scoring_now(runner))}, should_stop)
    pairs, per_cell = bucket.num_cells, grid.evaluation.problems_per_cell
    saved = time.perf_counter()
    while not grid.complete:
        blocks = grid.chunk_blocks or min(
            max(1, ROWS_A_CHUNK // pairs), per_cell - grid.blocks_done
        )
        start, stop = grid.blocks_done * pairs, (grid.blocks_done + blocks) * pairs
        problems, keys = bucket.problems(start, stop), bucket.keys(start, stop)
        outcome, order, done = Outcome.empty(problems), by_length(problems), grid.chunk_rows
        threshold = grid.scoring["threshold"]
        known = None if seen is None else seen(problems)
        for until in score_rounds(runner, problems, keys, threshold, outcome, done, should_stop):
            rows, done = order[done:until], until
            grid.add(
                problems.axis_lengths[rows],
                outcome.num_correct[rows],
                outcome.answer_tokens[rows],
                outcome.first_wrong[rows],
                None if known is None else known[rows],
            )
            grid.chunk_blocks, grid.chunk_rows = blocks, done
            if done == len(keys):
                grid.chunk_blocks = grid.chunk_rows = 0
                grid.blocks_done += blocks
            if not grid.chunk_rows or time.perf_counter() - saved > _BETWEEN_SAVES:
                save(grid)
                saved = time.perf_counter()
            progress(grid.num_scored)
            if not grid.complete and should_stop():
                raise Stopped


def _set_threshold(
    runner: Runner,
    bucket: Bucket,
    grid: Grid,
    now: dict[str, Any],
    should_stop: Callable[[], bool],
) -> None:
    """Measure what is left of the threshold in `grid.scoring`. Raises Stopped."""
    begin_scoring(grid, now)
    probed = probed_problems(bucket, grid.evaluation.problems_per_cell * bucket.num_cells)
    if not _are_known(now, grid.scoring):  # the rest is scored on another machine: to the end
        for _ in probe(runner, *probed, now, should_stop):
            pass
        grid.scoring = _joined_facts(grid.scoring, now)
    for _ in probe(runner, *probed, grid.scoring, should_stop):
        if should_stop():
            raise Stopped


def scoring_now(runner: Runner, facts: Mapping[str, str | float] | None = None) -> dict[str, Any]:
    """Return what a grid stores of a scoring that begins now, with `facts`."""
    dtype = runner.hardware.dtype_name
    return {"dtype": dtype, "threshold": 0.0, **(facts or {}), **probing(runner)}


def begin_scoring(grid: Grid, now: Mapping[str, Any]) -> None:
    """Let a grid without problems begin as `now`, unless it did in an earlier call."""
    if not (grid.num_scored or _are_known(now, grid.scoring)):
        grid.scoring = {**now}


def _are_known(now: Mapping[str, Any], scoring: Mapping[str, Any]) -> bool:
    """Tell whether a grid was scored like this before; that tells its threshold too."""
    texts = ((key, value) for key, value in now.items() if isinstance(value, str))
    return all(value in str(scoring.get(key, "")).split(", ") for key, value in texts)


def _joined_facts(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a grid was scored in several calls: the larger threshold, all other values.

    >>> earlier = {"dtype": "bfloat16", "threshold": 0.1, "commit": "one, another"}
    >>> _joined_facts(earlier, {"dtype": "float32", "threshold": 0.0})
    {'dtype': 'bfloat16, float32', 'threshold': 0.1, 'commit': 'one, another'}
    """
    joined = {**now, **earlier}
    for key in earlier.keys() & now.keys():
        if key == "threshold":
            joined[key] = max(earlier[key], now[key])
        elif isinstance(now[key], str):
            joined[key] = ", ".join(dict.fromkeys([*earlier[key].split(", "), now[key]]))
    return joined
