"""Exact match by one teacher-forced pass.

For a deterministic causal model the greedy answer is exact if and only if the model, given the
right answer as input, has the right argmax at every answer position, the end token included. So one
forward scores a problem, without a generation loop or a KV cache.

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
from tape_arith.models.build import prepare
from tape_arith.models.compiling import compile_state_changed
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
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
    """Copy `array` to `device`, from pinned memory, so that nothing waits for the work there."""
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


def logits_of_answers(decoder: Decoder, rows: Rows, device: str) -> Tensor:
    """Return the logits of the scored tokens, row after row: float32 [m, V]."""
    answers = rows.answers
    seqs = sequences(rows, device)
    chosen = to_device(np.pad(answers, (0, -len(answers) % ANSWERS)), device)
    if decoder.compiled:
        # Sizes differ between groups: if told so now, torch makes no graph for the first alone.
        for varying in (chosen, seqs.starts):
            if varying is not None:
                torch._dynamo.maybe_mark_dynamic(varying, 0)
    logits: Tensor = decoder(seqs, chosen)
    return logits[: len(answers)]


def answer_logits(decoder: Decoder, rows: Rows, hardware: Hardware) -> Tensor:
    """Return the logits of the scored tokens, without a gradient, in `hardware`'s precision."""
    with torch.no_grad(), hardware.autocast():
        return logits_of_answers(decoder, rows, hardware.device)


def score(
    decoder: Decoder,
    problems: Problems,
    keys: NDArray[np.int64],
    hardware: Hardware,
    threshold: float = 0.0,
) -> Outcome:
    """Score `problems`; then again in float32 those whose |margin| is below `threshold`."""
    n = len(problems.lengths)
    outcome = Outcome(
        num_correct=np.zeros(n, np.int64),
        answer_tokens=problems.lengths - problems.prompt_lengths,
        first_wrong=np.zeros(n, np.int64),
        margin=np.zeros(n, np.float64),
        predicted=np.zeros(n, np.int64),
    )

    def write(rows: Rows, logits: Tensor) -> None:
        targets = to_device(rows.targets[rows.is_answer], hardware.device)
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
        # An exact answer has no wrong token: the index need only be valid.
        first_predicted = predicted.cpu().numpy()[span + np.minimum(first, count - 1)]
        outcome.num_correct[rows.source_index] = count - errors
        outcome.first_wrong[rows.source_index] = np.where(errors > 0, first, -1)
        outcome.predicted[rows.source_index] = np.where(errors > 0, first_predicted, -1)
        outcome.margin[rows.source_index] = np.minimum.reduceat(margins.cpu().numpy(), span)

    def score_at(indices: NDArray[np.int64], hardware: Hardware) -> None:
        groups = groups_of_tokens(
            problems, keys, TOKENS_A_BATCH[hardware.device], indices, packed=decoder.packs
        )
        _map_logits(decoder, groups, hardware, write)

    score_at(np.arange(n), hardware)
    close = np.flatnonzero(np.abs(outcome.margin) < threshold)
    if len(close) and hardware.dtype != torch.float32:
        score_at(close, hardware.in_float32())
    return outcome


def low_precision_threshold(
    decoder: Decoder, problems: Problems, keys: NDArray[np.int64], hardware: Hardware
) -> float:
    """Return twice the largest difference between logits in low precision and in float32.

    Rounding cannot have changed the sign of a larger margin. 0 if `hardware` uses float32.
    """
    if hardware.dtype == torch.float32:
        return 0.0
    # Both precisions get the same padded groups, even if a backend would pack.
    groups = list(groups_of_tokens(problems, keys, TOKENS_A_BATCH[hardware.device]))
    low, high = (
        _map_logits(decoder, groups, each, lambda rows, logits: logits)
        for each in (hardware, hardware.in_float32())
    )
    differences = [(a - b).abs() for a, b in zip(low, high, strict=True)]
    return 2 * max(float(d.where(d.isfinite(), 0.0).max()) for d in differences)


def probed_threshold(decoder: Decoder, bucket: Bucket, count: int, hardware: Hardware) -> float:
    """Return the threshold for the first `count` problems of `bucket`, from the first 1,000."""
    probe = min(_PROBE_ROWS, count)
    problems, keys = bucket.problems(0, probe), bucket.keys(0, probe)
    return low_precision_threshold(decoder, problems, keys, hardware)


def score_grid(
    decoder: Decoder,
    bucket: Bucket,
    grid: Grid,
    hardware: Hardware,
    save: Callable[[Grid], None],
    progress: Callable[[int], None] = lambda rows: None,
    should_stop: Callable[[], bool] = lambda: False,
    facts: Mapping[str, str | float] | None = None,
) -> Grid:
    """Fill `grid` from its first missing block on; a block holds one problem of every cell.

    `save` is called after every chunk of blocks, `should_stop` before. `facts` describe the
    scoring, beside its precision; of a grid scored in several calls, the grid stores every value.
    """
    decoder.eval()
    count, pairs = grid.evaluation.problems_per_cell, bucket.num_cells
    threshold = probed_threshold(decoder, bucket, count * pairs, hardware)
    now = {"dtype": hardware.dtype_name, "threshold": threshold, **(facts or {})}
    grid.scoring = _joined_facts(grid.scoring, now) if grid.blocks_done else now
    blocks_a_chunk = max(1, ROWS_A_CHUNK // pairs)
    while grid.blocks_done < count and not should_stop():
        last = min(grid.blocks_done + blocks_a_chunk, count)
        start, stop = grid.blocks_done * pairs, last * pairs
        problems = bucket.problems(start, stop)
        scores = score(decoder, problems, bucket.keys(start, stop), hardware, threshold)
        grid.add(
            problems.axis_lengths, scores.num_correct, scores.answer_tokens, scores.first_wrong
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
    decoder: Decoder,
    groups: Iterable[Rows],
    hardware: Hardware,
    function: Callable[[Rows, Tensor], Result],
) -> list[Result]:
    """Return `function(group, logits of its scored tokens)` for each group."""
    prepare(decoder, hardware)
    alone = compile_state_changed(decoder, hardware.dtype)
    return list(
        hardware.parallel_map(
            lambda rows: function(rows, answer_logits(decoder, rows, hardware)), groups, alone
        )
    )
