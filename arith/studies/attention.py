"""Attention patterns: measures weight by distance and on digits of equal places.

Legend: B batch, T tokens, H heads, N layers, m pairs of a query and a key.
"""

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.studies.attention_data import (
    AttentionStudy,
    Example,
    Patterns,
    RunAttention,
)
from tape_arith.arith.studies.inputs import (
    Integers,
    Sample,
    StudiedRun,
    describe_evaluation,
    evaluation_bucket,
    problems_by_region,
    watched,
)
from tape_arith.arith.tasks.task import Digits, Problems, Task, load_task
from tape_arith.arith.tasks.vocabulary import decode
from tape_arith.arith.terminal import bar
from tape_arith.models.decoder import Decoder


def attention_study(runs: Sequence[StudiedRun], count: int, written: str | None) -> AttentionStudy:
    """Study comparable runs on `count` problems of their evaluation set in distribution and as many
    out of it, and on the problem `written` as people do, "123+45".

    Raises UsageError if `written` is no problem of their task; Failure for a corrupt file or
    weights that are not finite.
    """
    record = runs[0].record
    problem = None if written is None else _read_problem(load_task(record.config.task), written)
    studied: list[RunAttention] = []
    with bar("watch", len(runs)) as update:
        for number, run in enumerate(runs, start=1):
            decoder, hardware = run.decoder()
            regions = {
                region: patterns(decoder, sample, hardware.device)
                for region, sample in problems_by_region(run, count).items()
            }
            weights = None if problem is None else maps(decoder, problem, hardware.device)
            facts = str(run.path), run.record.encoding, run.record.seed, run.leading_bos
            studied.append(RunAttention(*facts, regions, weights))
            update(number, str(run.path))
    return AttentionStudy(
        runs=tuple(studied),
        preset=record.preset,
        trained_digits=record.config.trained_digits,
        evaluation=describe_evaluation(evaluation_bucket(runs[0])),
        example=None if problem is None or written is None else _example(problem, written),
    )


def _read_problem(task: Task, written: str) -> Problems:
    """Parse one problem, its operands written the most significant digit first."""
    operand = "([1-9][0-9]*)"
    match = re.fullmatch(f" *{operand} *{re.escape(task.symbol)} *{operand} *", written)
    if match is None:
        raise UsageError(
            f"'{written}' is no problem of {task.name}: two numbers with '{task.symbol}' between "
            f"them and without leading zeros, as in 123{task.symbol}45"
        )
    width = max(map(len, match.groups()))
    a, b = (
        Digits(
            np.array([[*map(int, reversed(text.zfill(width)))]], dtype=np.uint8),
            np.array([len(text)]),
        )
        for text in match.groups()
    )
    return task.problems(a, b, width)


def _example(problem: Problems, written: str) -> Example:
    _, query, key = equal_places(
        problem.operand_lengths,
        problem.prompt_lengths,
        problem.lengths - problem.prompt_lengths - 1,
    )
    return Example(
        written=written.replace(" ", ""),
        tokens=tuple(decode([token]) for token in problem.tokens),
        prompt=int(problem.prompt_lengths[0]),
        equal_places=tuple(zip(query.tolist(), key.tolist(), strict=True)),
    )


def patterns(decoder: Decoder, sample: Sample, device: str) -> Patterns:
    """Measure the patterns on at least one problem. Raises as `watched`."""
    config = decoder.config
    longest = int(sample.problems.lengths[sample.indices].max()) - 1  # the end token is no input
    shape = (config.num_layers, config.num_heads)
    back = torch.zeros(*shape, longest, dtype=torch.float64)
    place = torch.zeros(*shape, dtype=torch.float64)
    queries, uniform = np.zeros(longest), np.zeros(longest)
    chance = positions = 0.0
    for rows in sample.batches(decoder):
        count, tokens = rows.inputs.shape
        seen = watched(decoder, sequences(rows, device))
        row, query, key = equal_places(
            sample.problems.operand_lengths[rows.source_index],
            rows.prompt_lengths,
            rows.answer_tokens - 1,
        )
        pairs = tuple(torch.from_numpy(index).to(device) for index in (row, query, key))
        for layer, weights in enumerate(seen.weights):
            back[layer, :, :tokens] += _by_distance(weights).cpu()
            on_places = weights[pairs[0], :, pairs[1], pairs[2]]
            place[layer] += on_places.sum(0, dtype=torch.float64).cpu()
        index = np.arange(tokens)
        queries[:tokens] += count * (tokens - index)
        # A uniform query at index t puts 1 / (t + 1) on each key: the sum over queries that have a
        # key at each distance.
        uniform[:tokens] += count * np.cumsum(1 / (index[::-1] + 1))[::-1]
        chance += float((1 / (query + 1)).sum())
        positions += len(np.unique(row * tokens + query))
    back /= torch.from_numpy(queries)
    return Patterns(
        by_distance=back.mean(1).numpy(),
        diagonal=back[..., 0].numpy(),
        place=(place / positions).numpy(),
        uniform=uniform / queries,
        chance=chance / positions,
        problems=len(sample.indices),
        positions=int(positions),
    )


def _by_distance(weights: Tensor) -> Tensor:
    """Sum weights [B, H, T, T] over rows and queries by the distance of the key: [H, T]."""
    tokens = weights.shape[-1]
    index = torch.arange(tokens, device=weights.device)
    # Future keys, which have no weight, are counted with the diagonal.
    distance = (index[:, None] - index).clamp_min(0).flatten()
    summed = weights.sum(0, dtype=torch.float64).flatten(-2)
    return summed.new_zeros(len(summed), tokens).index_add_(1, distance, summed)


def equal_places(
    operand_lengths: Integers, prompt_lengths: Integers, answer_digits: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return row, query and key, int64 [m] each, of each pair of an answer position and an
    operand's digit of the same place.

    Numbers stand least significant digit first, the first operand at 0, the second behind the
    operator; a query predicts the token after it.

    >>> row, query, key = equal_places(*map(np.array, ([[3, 2]], [7], [3])))  # 321+54=861
    >>> list(zip(query.tolist(), key.tolist()))
    [(6, 0), (6, 4), (7, 1), (7, 5), (8, 2)]
    """
    columns = operand_lengths.tolist(), prompt_lengths.tolist(), answer_digits.tolist()
    pairs = [
        (row, prompt - 1 + place, start + place)
        for row, ((first, second), prompt, digits) in enumerate(zip(*columns, strict=True))
        for place in range(digits)
        for start, length in ((0, first), (first + 1, second))
        if place < length
    ]
    row, query, key = np.array(pairs, dtype=np.int64).T
    return row, query, key


def maps(decoder: Decoder, problem: Problems, device: str) -> Floats:
    """Return the weights of one problem without its end token, [N, H, T, T]: query, key.

    Its key for random choices is 0.
    """
    zero = np.zeros(1, np.int64)
    rows = next(Sample(problem, zero, zero).batches(decoder))
    seen = watched(decoder, sequences(rows, device))
    return torch.cat(seen.weights).to(torch.float64).cpu().numpy()
