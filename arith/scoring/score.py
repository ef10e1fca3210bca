"""Exact match by one teacher-forced pass.

For a deterministic causal model the greedy answer is exact if and only if the model, given the
right answer as input, has the right argmax at every answer position, including the end token. So
one forward pass scores a problem, without a generation loop or a KV cache.

Legend: n rows, T tokens, V vocabulary, m scored tokens of all rows.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.data.rows import Rows, groups_of_tokens
from tape_arith.arith.decoders.failures import fitting
from tape_arith.arith.stopping import Stopped, is_urgent
from tape_arith.arith.tasks.families.tokens import PAD
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences

# Tokens per forward: enough to fill the device, few enough to stay in its caches or memory.
TOKENS_A_BATCH = {"cpu": 8_192, "cuda": 131_072}
# Parameters of the largest decoder for which a CPU gets so many tokens, for a second
# or two; a larger one gets fewer, so that scoring stops soon when it is asked to.
_PARAMETERS = {"cpu": 8_000_000}
# Seconds of a round of groups, after which scoring may stop.
_ROUND = 1.0
# The number of scored tokens is padded to a multiple of this: oneDNN compiles a kernel for each new
# shape, which takes about a millisecond.
ANSWERS = 64
# Problems that are grouped together by their lengths.
ROWS_A_CHUNK = 16_384

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

    @classmethod
    def empty(cls, problems: Problems) -> Self:
        """Return an outcome of `problems` whose entries are still to be set."""
        first_wrong, num_correct, predicted = np.zeros((3, len(problems.lengths)), np.int64)
        return cls(
            num_correct=num_correct,
            answer_tokens=problems.lengths - problems.prompt_lengths,
            first_wrong=first_wrong,
            margin=np.zeros(len(problems.lengths), np.float64),
            predicted=predicted,
        )

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
    runner: Runner,
    problems: Problems,
    keys: NDArray[np.int64],
    threshold: float = 0.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Score `problems`; those with a |margin| below `threshold` are scored again in float32.

    Raises Stopped if `should_stop` is true before all are scored.
    """
    outcome = Outcome.empty(problems)
    for done in score_rounds(runner, problems, keys, threshold, outcome, should_stop=should_stop):
        if done < len(keys) and should_stop():
            raise Stopped
    return outcome


def score_rounds(
    runner: Runner,
    problems: Problems,
    keys: NDArray[np.int64],
    threshold: float,
    outcome: Outcome,
    done: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[int]:
    """Set `outcome` round by round, the shortest problems first, but not that of the first `done`.

    Yields how many are done. What a problem gets depends neither on the rounds nor on `done`, if
    that is a number which an earlier call yielded. Raises Stopped within a round if `should_stop`
    is urgent.
    """
    exact = runner.on(runner.hardware.in_float32())

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

    def score_groups(groups: Sequence[Rows]) -> None:
        map_logits(runner, groups, write, should_stop)
        if runner.hardware.dtype == torch.float32:
            return
        # Each group's own, so that it does not matter which groups are in a round.
        again: list[Rows] = []
        for rows in groups:
            close = rows.source_index[np.abs(outcome.margin[rows.source_index]) < threshold]
            size = tokens_a_group(runner)
            again += groups_of_tokens(problems, keys, size, close, packed=exact.packs)
        map_logits(exact, again, write, should_stop)

    yield from rounds(runner, problems, keys, score_groups, done, packed=runner.packs)


def by_length(problems: Problems) -> NDArray[np.int64]:
    """Return the order in which problems are scored: the shortest first."""
    return np.argsort(problems.lengths, kind="stable")


def tokens_a_group(runner: Runner) -> int:
    """Return the most tokens of a group, padding included."""
    device = runner.hardware.device
    larger = runner.decoder.num_parameters() / _PARAMETERS.get(device, math.inf)
    return max(1, int(TOKENS_A_BATCH[device] / max(1.0, larger)) // runner.finer)


def rounds(
    runner: Runner,
    problems: Problems,
    keys: NDArray[np.int64],
    work: Callable[[Sequence[Rows]], object],
    done: int,
    *,
    packed: bool = False,
) -> Iterator[int]:
    """Give `work` the groups of one round after the other; yield how many problems are done.

    The first round has a group for each thread, later ones as many as take about a second.
    """
    order, count = by_length(problems), runner.hardware.threads

    def groups() -> list[Rows]:
        size = tokens_a_group(runner)
        return list(
            islice(groups_of_tokens(problems, keys, size, order[done:], packed=packed), count)
        )

    def attempt() -> int:
        now = groups()
        work(now)
        return sum(len(rows.source_index) for rows in now)

    def largest() -> int:
        return max(len(rows.source_index) for rows in groups())

    while done < len(order):
        began = time.perf_counter()
        done += fitting(attempt, runner, largest, work="scoring")
        yield done
        seconds = time.perf_counter() - began
        if seconds < _ROUND / 2:
            count *= 2
        elif seconds > 2 * _ROUND:
            count = max(runner.hardware.threads, count // 2)


def map_logits(
    runner: Runner,
    groups: Iterable[Rows],
    function: Callable[[Rows, Tensor], Result],
    should_stop: Callable[[], bool],
) -> list[Result]:
    """Return `function(group, logits of its scored tokens)` for each group, without gradients.

    Raises Stopped before a group if `should_stop` is urgent.
    """

    @torch.no_grad()  # a thread has this setting for itself
    def apply(rows: Rows) -> Result:
        if is_urgent(should_stop):
            raise Stopped
        return function(rows, answer_logits(runner, rows))

    return list(runner.map(apply, groups))
