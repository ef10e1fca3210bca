"""Greedy decoding, token by token, and the share of right final answers after a scratchpad.

Grids need no decoding: one pass scores a problem (score.py). But with a scratchpad, a grid counts
an answer as exact only if every step is. Only decoding tells whether the final answer is right
although a step is wrong.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import pad
from tape_arith.arith.decoders.failures import fitting
from tape_arith.arith.grids.axes import Axes, number_longer
from tape_arith.arith.scoring.score import to_device, tokens_a_group
from tape_arith.arith.tasks.families.tokens import EOS, PAD
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, concatenate, take
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences

FINAL_ANSWERS = 200
"""Problems of each region whose final answers are decoded."""


def greedy_answers(
    runner: Runner, problems: Problems, keys: NDArray[np.int64], start: int = 0
) -> Iterator[list[list[int]]]:
    """Yield the greedy answers to the prompts from `start` on, in float32, batch by batch.

    An answer ends with the end token, or when its problem's `final_length` is reached.
    """
    runner.decoder.eval()
    exact = runner.on(runner.hardware.in_float32())

    def rows() -> NDArray[np.int64]:
        count = max(1, tokens_a_group(runner) // int(problems.final_lengths.max()))
        return np.arange(start, min(start + count, len(keys)))

    def attempt() -> list[list[int]]:
        return _answers(exact, take(problems, rows()), keys[rows()])

    while start < len(keys):
        answers = fitting(attempt, runner, lambda: len(rows()), work="decoding")
        start += len(answers)
        yield answers


def _answers(runner: Runner, problems: Problems, keys: NDArray[np.int64]) -> list[list[int]]:
    """Return the answers of one batch. Each step runs the unfinished rows whole, with no cache."""
    prompts, bounds = problems.prompt_lengths, problems.final_lengths
    width = int(bounds.max())
    inputs = pad(problems, keys, np.arange(len(keys)), width).inputs
    tokens = np.where(np.arange(width) < prompts[:, None], inputs, PAD)
    lengths = prompts.copy()
    unfinished = np.arange(len(keys))
    tensor = partial(to_device, device=runner.hardware.device)

    while len(unfinished):
        ends = lengths[unfinished]
        columns = int(ends.max())
        seqs = Sequences(
            tensor(tokens[unfinished, :columns]),
            tensor(bounds[unfinished]),
            tensor(keys[unfinished]),
            bound=width,
        )
        last = np.arange(len(unfinished)) * columns + ends - 1
        with torch.no_grad():
            next_tokens = runner(seqs, tensor(last)).argmax(-1).cpu().numpy()
        tokens[unfinished, ends] = next_tokens
        lengths[unfinished] += 1
        unfinished = unfinished[(next_tokens != EOS) & (ends + 1 < bounds[unfinished])]
    return [
        row[prompt:end].tolist() for row, prompt, end in zip(tokens, prompts, lengths, strict=True)
    ]


def add_final_answers(
    facts: dict[str, Any], runner: Runner, bucket: Bucket, axes: Axes, count: int
) -> Iterator[None]:
    """Set, for each region, the share of right final answers and how many are decoded, batch by
    batch; what `facts` have of an earlier call is kept.

    Decodes the first FINAL_ANSWERS of each region among the first `count` problems of `bucket`.
    A region without problems is left out.
    """
    task = load_task(bucket.task)
    outside = number_longer(axes, bucket.axis_lengths(0, count)) > 0
    for region, members in (("in", ~outside), ("out_of", outside)):
        share = f"final_answers_{region}_distribution"
        indices = np.flatnonzero(members)[:FINAL_ANSWERS].tolist()
        if not indices:
            continue
        problems = concatenate([bucket.problems(index, index + 1) for index in indices])
        keys = np.concatenate([bucket.keys(index, index + 1) for index in indices])
        firsts = problems.starts + problems.prompt_lengths
        ends = problems.starts + problems.lengths
        done = int(facts.get(f"{share}_of", 0))
        right = round(facts.get(share, 0.0) * done)
        for answers in greedy_answers(runner, problems, keys, done):
            for answer in answers:
                expected = problems.tokens[firsts[done] : ends[done]].tolist()
                right += task.final_answer(answer) == task.final_answer(expected)
                done += 1
            facts |= {share: right / done, f"{share}_of": float(done)}
            yield
