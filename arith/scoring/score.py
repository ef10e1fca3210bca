"""Exact match by one teacher-forced pass.

For a deterministic causal model the greedy answer is exact if and only if the model, given the
right answer as input, has the right argmax at every answer position, including the end token. So
one forward pass scores a problem, without a generation loop or a KV cache.

Legend: n rows, T tokens, V vocabulary, m scored tokens of all rows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows, groups_of_tokens
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.tasks.families.tokens import PAD
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences

# Tokens per forward: enough to fill the device, few enough to stay in its caches or memory.
TOKENS_A_BATCH = {"cpu": 8_192, "cuda": 131_072}
# The number of scored tokens is padded to a multiple of this: oneDNN compiles a kernel for each new
# shape, which takes about a millisecond.
ANSWERS = 64
# Problems scored between two saves of a grid.
ROWS_A_CHUNK = 16_384
# Problems on which the error of low precision is measured.
_PROBE_ROWS = 1_000

Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome:
    """The results of n problems, one entry each. An answer includes the end token.

    `exact` is that of float32 in any precision, where `score` is given its threshold. The other
    results are those of the pass: rounding may decide which token of a wrong answer is wrong.

    num_correct    number of right answer tokens
    answer_tokens  number of answer tokens
    first_wrong    index in the answer of the first wrong token, 0 for the one that is generated
                   first; -1 if exact
    margin         right logit minus the best wrong one; the minimum over the tokens
    predicted      token predicted at `first_wrong`, PAD if a logit is not finite; -1 if exact
    """

    num_correct: NDArray[np.int64]
    answer_tokens: NDArray[np.int64]
    first_wrong: NDArray[np.int64]
    margin: NDArray[np.float64]
    predicted: NDArray[np.int64]

    @property
    def exact(self) -> NDArray[np.bool_]:
        """bool[n]: whether all tokens of the answer are right."""
        return self.first_wrong == -1


def to_device(array: NDArray[Any], device: str) -> Tensor:
    """Copy `array` to `device`, from pinned memory, so that the CPU need not wait for it."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def sequences(rows: Rows, device: str) -> Sequences:
    """Convert rows to the decoder's input."""
    return Sequences(
        to_device(rows.inputs, device),
        to_device(rows.final_lengths, device),
        to_device(rows.keys, device),
        starts=None if rows.starts is None else to_device(rows.starts, device),
        longest=rows.longest,
        bound=int(rows.final_lengths.max()),
        batch_key=rows.batch_key,
    )


def answer_logits(runner: Runner, rows: Rows) -> Tensor:
    """Return the logits of the scored tokens, row after row: float32 [m, V]."""
    device, answers = runner.hardware.device, rows.answers
    chosen = to_device(np.pad(answers, (0, -len(answers) % ANSWERS)), device)
    return runner(sequences(rows, device), chosen)[: len(answers)]


def score(
    runner: Runner, problems: Problems, keys: NDArray[np.int64], threshold: float = 0.0
) -> Outcome:
    """Score `problems`; those with a |margin| below `threshold` are scored again in float32."""
    n = len(problems.lengths)
    outcome = Outcome(
        num_correct=np.zeros(n, np.int64),
        answer_tokens=problems.lengths - problems.prompt_lengths,
        first_wrong=np.zeros(n, np.int64),
        margin=np.zeros(n, np.float64),
        predicted=np.zeros(n, np.int64),
    )

    def write(rows: Rows, logits: Tensor) -> None:
        targets = to_device(rows.targets[rows.is_answer], logits.device.type)
        predicted = logits.argmax(-1)
        right_logit = logits.gather(-1, targets[:, None])
        best_other = logits.scatter(-1, targets[:, None], float("-inf")).amax(-1)
        margins = right_logit[:, 0] - best_other
        # A token with overflowed logits is wrong, with margin -inf, whatever argmax returns.
        correct = (predicted == targets) & margins.isfinite()
        predicted = predicted.where(margins.isfinite(), PAD)
        margins = margins.nan_to_num(nan=float("-inf"), posinf=float("-inf"))

        # The scored tokens of a row are adjacent: they are one span of the logits.
        count = rows.answer_tokens
        span = np.cumsum(count) - count
        digit = np.arange(count.sum()) - np.repeat(span, count)
        wrong = ~correct.cpu().numpy()
        errors = np.add.reduceat(wrong, span, dtype=np.int64)
        first = np.minimum.reduceat(np.where(wrong, digit, len(digit)), span)
        # An exact answer has no wrong token: its index must only be valid.
        first_predicted = predicted.cpu().numpy()[span + np.minimum(first, count - 1)]
        outcome.num_correct[rows.source_index] = count - errors
        outcome.first_wrong[rows.source_index] = np.where(errors > 0, first, -1)
        outcome.predicted[rows.source_index] = np.where(errors > 0, first_predicted, -1)
        outcome.margin[rows.source_index] = np.minimum.reduceat(margins.cpu().numpy(), span)

    def score_by(runner: Runner, indices: NDArray[np.int64]) -> None:
        tokens = TOKENS_A_BATCH[runner.hardware.device]
        groups = groups_of_tokens(problems, keys, tokens, indices, packed=runner.packs)
        _map_logits(runner, groups, write)

    score_by(runner, np.arange(n))
    close = np.flatnonzero(np.abs(outcome.margin) < threshold)
    if len(close) and runner.hardware.dtype != torch.float32:
        score_by(runner.on(runner.hardware.in_float32()), close)
    return outcome


def low_precision_threshold(runner: Runner, problems: Problems, keys: NDArray[np.int64]) -> float:
    """Return twice the largest difference between logits in low precision and in float32.

    Rounding cannot change the sign of a larger margin. 0 if `runner` computes in float32.
    """
    if runner.hardware.dtype == torch.float32:
        return 0.0
    # Both precisions get the same padded groups, even if a backend would pack.
    groups = list(groups_of_tokens(problems, keys, TOKENS_A_BATCH[runner.hardware.device]))
    low, high = (
        _map_logits(each, groups, lambda rows, logits: logits)
        for each in (runner, runner.on(runner.hardware.in_float32()))
    )
    differences = [(a - b).abs() for a, b in zip(low, high, strict=True)]
    return 2 * max(float(d.where(d.isfinite(), 0.0).max()) for d in differences)


def probed_threshold(runner: Runner, bucket: Bucket, count: int) -> float:
    """Return the threshold for the first `count` problems of `bucket`, from the first 1,000."""
    probe = min(_PROBE_ROWS, count)
    problems, keys = bucket.problems(0, probe), bucket.keys(0, probe)
    return low_precision_threshold(runner, problems, keys)


def score_grid(
    runner: Runner,
    bucket: Bucket,
    grid: Grid,
    save: Callable[[Grid], None],
    progress: Callable[[int], None] = lambda rows: None,
    should_stop: Callable[[], bool] = lambda: False,
    facts: Mapping[str, str | float] | None = None,
    seen: Callable[[Problems], NDArray[np.bool_]] | None = None,
) -> Grid:
    """Fill `grid` from its first missing block on; a block holds one problem of every cell.

    `save` is called after every chunk of blocks, `should_stop` before each. `facts` describe the
    scoring in addition to its precision; a grid that is scored in several calls stores all values.
    `seen` tells which problems training has seen, as `data.seen.SeenProblems` does.
    """
    runner.decoder.eval()
    count, pairs = grid.evaluation.problems_per_cell, bucket.num_cells
    threshold = probed_threshold(runner, bucket, count * pairs)
    now = {"dtype": runner.hardware.dtype_name, "threshold": threshold, **(facts or {})}
    grid.scoring = _joined_facts(grid.scoring, now) if grid.blocks_done else now
    blocks_a_chunk = max(1, ROWS_A_CHUNK // pairs)
    while grid.blocks_done < count and not should_stop():
        last = min(grid.blocks_done + blocks_a_chunk, count)
        start, stop = grid.blocks_done * pairs, last * pairs
        problems = bucket.problems(start, stop)
        scores = score(runner, problems, bucket.keys(start, stop), threshold)
        grid.add(
            problems.axis_lengths,
            scores.num_correct,
            scores.answer_tokens,
            scores.first_wrong,
            None if seen is None else seen(problems),
        )
        grid.blocks_done = last
        save(grid)
        progress(stop - start)
    return grid


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


def _map_logits(
    runner: Runner, groups: Iterable[Rows], function: Callable[[Rows, Tensor], Result]
) -> list[Result]:
    """Return `function(group, logits of its scored tokens)` for each group, without gradients."""

    @torch.no_grad()  # a thread has this setting for itself
    def apply(rows: Rows) -> Result:
        return function(rows, answer_logits(runner, rows))

    return list(runner.map(apply, groups))
