"""Attention patterns: measures weight by distance and on digits of equal places.

Rows of the study, by `measure`:

    distance  layer, distance          weight on the key so many tokens back, a mean over heads,
                                       problems and the queries that have one; 0 is the diagonal
    place     layer, head              place-addressing score: the weight of the query that predicts
                                       the answer's digit of place r (the token before it) on the
                                       digits of place r of both operands, or of the one that is
                                       long enough; every answer position weighs the same. Digits
                                       that neither operand has (a last carry) do not count
    map       layer, head, query, key  weight in one problem, without its end token

`uniform` is the weight of a query that attends to all it sees alike. Legend: B batch, T tokens,
H heads, N layers, D tokens of the longest input, m pairs of a query and a key.
"""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.studies.inputs import Integers, Sample, StudiedRuns, watched
from tape_arith.arith.studies.study import Study
from tape_arith.arith.tasks.task import Problems, decode, load_task
from tape_arith.models.decoder import Decoder

_COUNTS = ("layer", "head", "distance", "query", "key")


def measure(
    runs: StudiedRuns, count: int, written: str | None = None, layer: int | None = None
) -> Study:
    """Study `runs` on `count` problems in distribution and as many out of it, and on the problem
    `written` as people do, "123+45", in one layer (counted from 1; None: the last).

    Raises UsageError if `written` is no problem of their task or there is no such layer; Failure
    for a corrupt file or weights that are not finite.
    """
    config = runs.record.config
    layer = config.num_layers if layer is None else layer
    if not 1 <= layer <= config.num_layers:
        raise UsageError(f"there is no layer {layer}: they are 1 to {config.num_layers}")
    problem = None if written is None else load_task(config.task).parse(written)
    regions = {region: indices[:count] for region, indices in runs.regions().items()}
    facts = runs.facts(regions) | {"example": problem and _example(problem, layer)}
    samples = {region: runs.sample(indices) for region, indices in regions.items()}
    frames = []
    for run, decoder, hardware in runs.watchable():
        parts = [
            patterns(decoder, sample, hardware.device).assign(region=region)
            for region, sample in samples.items()
        ]
        if problem is not None:
            axes = ("layer", "head", "query", "key")
            weights = _rows(maps(decoder, problem, hardware.device), *axes).assign(measure="map")
            shown = (weights["layer"] == layer) & (weights["key"] <= weights["query"])
            parts.append(weights[shown])
        frames.append(run.rows(pd.concat(parts)))
    rows = pd.concat(frames, ignore_index=True)
    counts = [name for name in _COUNTS if name in rows]
    return Study("attention", facts, rows.astype(dict.fromkeys(counts, "Int64")))


def _example(problem: Problems, layer: int) -> dict[str, object]:
    """Describe the problem of the maps: its tokens with the end token, the length of its prompt,
    and (query, key) of each pair of `_equal_places`."""
    prompts = problem.prompt_lengths
    pairs = _equal_places(problem.operand_lengths, prompts, problem.lengths - prompts - 1)
    return {
        "tokens": [decode([token]) for token in problem.tokens],
        "prompt": int(prompts[0]),
        "equal_places": np.stack(pairs[1:], axis=1).tolist(),
        "layer": layer,
    }


def patterns(decoder: Decoder, sample: Sample, device: str) -> pd.DataFrame:
    """Measure the rows `distance` and `place` of at least one problem. Raises as `watched`."""
    config = decoder.config
    longest = int(sample.problems.lengths.max()) - 1  # the end token is no input
    shape = (config.num_layers, config.num_heads)
    back = torch.zeros(*shape, longest, dtype=torch.float64)
    place = torch.zeros(*shape, dtype=torch.float64)
    queries, uniform = np.zeros(longest), np.zeros(longest)
    chance = positions = 0.0
    for rows in sample.batches(decoder):
        count, tokens = rows.inputs.shape
        seen = watched(decoder, sequences(rows, device))
        operands = sample.problems.operand_lengths[rows.source_index]
        row, query, key = _equal_places(operands, rows.prompt_lengths, rows.answer_tokens - 1)
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
    distances = _rows(back.mean(1).numpy(), "layer", "distance")
    distances["uniform"] = np.tile(uniform / queries, config.num_layers)
    places = _rows((place / positions).numpy(), "layer", "head").assign(uniform=chance / positions)
    return pd.concat([distances.assign(measure="distance"), places.assign(measure="place")])


def _rows(weights: Floats, *axes: str) -> pd.DataFrame:
    """Return a row an entry of `weights`, with its indices in columns `axes`; layers and heads are
    counted from 1."""
    first = [int(axis in ("layer", "head")) for axis in axes]
    ranges = [range(start, start + n) for start, n in zip(first, weights.shape, strict=True)]
    index = pd.MultiIndex.from_product(ranges, names=axes)
    return pd.Series(weights.ravel(), index, name="weight").reset_index()


def _by_distance(weights: Tensor) -> Tensor:
    """Sum weights [B, H, T, T] over rows and queries by the distance of the key: [H, T]."""
    tokens = weights.shape[-1]
    index = torch.arange(tokens, device=weights.device)
    # Future keys, which have no weight, are counted with the diagonal.
    distance = (index[:, None] - index).clamp_min(0).flatten()
    summed = weights.sum(0, dtype=torch.float64).flatten(-2)
    return summed.new_zeros(len(summed), tokens).index_add_(1, distance, summed)


def _equal_places(
    operand_lengths: Integers, prompt_lengths: Integers, answer_digits: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return row, query and key, int64 [m] each, of each pair of an answer position and an
    operand's digit of the same place.

    Numbers stand least significant digit first, the first operand at 0, the second behind the
    operator; a query predicts the token after it.

    >>> row, query, key = _equal_places(*map(np.array, ([[3, 2]], [7], [3])))  # 321+54=861
    >>> list(zip(query.tolist(), key.tolist()))
    [(6, 0), (6, 4), (7, 1), (7, 5), (8, 2)]
    """
    place = np.arange(answer_digits.max())[:, None]
    inside = (place < operand_lengths[:, None]) & (place < answer_digits[:, None, None])
    row, places, operand = np.nonzero(inside)
    second_start = operand_lengths[row, 0] + 1
    return row, prompt_lengths[row] - 1 + places, operand * second_start + places


def maps(decoder: Decoder, problem: Problems, device: str) -> Floats:
    """Return the weights of one problem without its end token, [N, H, T, T]: query, key.

    Its key for random choices is 0.
    """
    rows = next(Sample(problem, np.zeros(1, np.int64)).batches(decoder))
    seen = watched(decoder, sequences(rows, device))
    return torch.cat(seen.weights).to(torch.float64).cpu().numpy()
