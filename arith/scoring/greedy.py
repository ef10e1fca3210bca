"""Greedy decoding, token by token, and the share of right final answers after a scratchpad.

Grids need no decoding: one pass scores a problem (score.py). But with a scratchpad, a grid counts
an answer as exact only if every step is. Only decoding tells whether the final answer is right
although a step is wrong.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.grids.axes import Axes, number_longer
from tape_arith.arith.scoring.score import TOKENS_A_BATCH
from tape_arith.arith.tasks.families.tokens import EOS, PAD
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, concatenate, take
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences

FINAL_ANSWERS = 200
"""Problems of each region whose final answers are decoded."""


def greedy_answers(runner: Runner, problems: Problems, keys: NDArray[np.int64]) -> list[list[int]]:
    """Return the greedy answer to each prompt, in float32.

    An answer ends with the end token, or when its problem's `final_length` is reached.
    """
    runner.decoder.eval()
    exact = runner.on(runner.hardware.in_float32())
    tokens = TOKENS_A_BATCH[exact.hardware.device]
    rows_a_batch = max(1, tokens // int(problems.final_lengths.max()))
    answers: list[list[int]] = []
    for start in range(0, len(keys), rows_a_batch):
        rows = np.arange(start, min(start + rows_a_batch, len(keys)))
        answers += _answers(exact, take(problems, rows), keys[rows])
    return answers


def _answers(runner: Runner, problems: Problems, keys: NDArray[np.int64]) -> list[list[int]]:
    """Return the answers of one batch. Each step runs the unfinished rows whole, with no cache."""
    prompts, bounds = problems.prompt_lengths, problems.final_lengths
    width = int(bounds.max())
    inside = np.arange(width) < prompts[:, None]
    source = np.minimum(problems.starts[:, None] + np.arange(width), len(problems.tokens) - 1)
    tokens = np.where(inside, problems.tokens[source], PAD).astype(np.int64)
    lengths = prompts.copy()
    unfinished = np.arange(len(keys))

    def tensor(array: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(array).to(runner.hardware.device)

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


def final_answer_shares(runner: Runner, bucket: Bucket, axes: Axes, count: int) -> dict[str, float]:
    """Return, for each region, the share of right final answers, and the number decoded.

    Decodes the first FINAL_ANSWERS of each region among the first `count` problems of `bucket`.
    A region without problems is left out.
    """
    task = load_task(bucket.task)
    outside = number_longer(axes, bucket.axis_lengths(0, count)) > 0
    shares: dict[str, float] = {}
    for region, members in (("in", ~outside), ("out_of", outside)):
        indices = np.flatnonzero(members)[:FINAL_ANSWERS].tolist()
        if not indices:
            continue
        problems = concatenate([bucket.problems(index, index + 1) for index in indices])
        keys = np.concatenate([bucket.keys(index, index + 1) for index in indices])
        decoded = greedy_answers(runner, problems, keys)
        firsts = problems.starts + problems.prompt_lengths
        ends = problems.starts + problems.lengths
        right = [
            task.final_answer(answer) == task.final_answer(problems.tokens[first:end].tolist())
            for answer, first, end in zip(decoded, firsts, ends, strict=True)
        ]
        shares[f"final_answers_{region}_distribution"] = float(np.mean(right))
        shares[f"final_answers_{region}_distribution_of"] = float(len(right))
    return shares
