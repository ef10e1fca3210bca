"""Attention patterns: weight by distance, on digits of equal places, and maps of one problem.

Rows of the study, by `measure`:

    distance  layer, distance          mean weight on the key so many tokens back, over heads,
                                       problems and queries with such a key; 0 is the diagonal
    place     layer, head              place-addressing score: the weight that the query which
                                       predicts the answer's digit of place r (the token before it)
                                       puts on the digits of place r of both operands, or of the one
                                       that is long enough; a mean over the answer's digits, without
                                       those of a place that neither operand has (a last carry)
    map       layer, head, query, key  weight in one problem, without its end token

`uniform` is the same number for a query that attends equally to all keys it sees. Legend: B batch,
T tokens, H heads, N layers, m pairs of a query and a key.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from tape_arith.arith.data.rows import Rows
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.style import styled
from tape_arith.arith.grids.axes import REGION_WORDS, Ints
from tape_arith.arith.grids.grid import Floats
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.studies.attention_figures import (
    PLACES,
    draw_distances,
    draw_maps,
    draw_places,
)
from tape_arith.arith.studies.inputs import Sample, StudiedRuns, watched
from tape_arith.arith.studies.study import INSIDE, SPREAD, Study, is_one_number, markdown, mean_cell
from tape_arith.arith.tasks.families.two_operands import TwoOperands
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, Task
from tape_arith.models.decoder import Decoder
from tape_arith.models.runner import Runner

_COUNTS = ("layer", "head", "distance", "query", "key")


def measure(
    runs: StudiedRuns, count: int, problem: str | None = None, layer: int | None = None
) -> Study:
    """Study `runs` on `count` problems in distribution and as many out of distribution.

    problem  a problem to map, as in "123+45"; None: no maps
    layer    the layer of the maps, from 1; None: the last

    Raises UsageError if `problem` is no problem of their task or there is no such layer; Failure
    for a corrupt file or weights that are not finite.
    """
    runs.look_inside("attention")
    config, task = runs.record.config, load_task(runs.record.config.task)
    has_places = _has_equal_places(task)
    applied_layers = config.num_layers * config.loops
    layer = applied_layers if layer is None else layer
    if not 1 <= layer <= applied_layers:
        raise UsageError(f"there is no layer {layer}: they are 1 to {applied_layers}")
    mapped = None if problem is None else task.parse(problem)
    regions = {region: indices[:count] for region, indices in runs.regions().items()}
    samples = {region: runs.sample(indices) for region, indices in regions.items()}

    def measured(runner: Runner) -> pd.DataFrame:
        device = runner.hardware.device
        parts = [
            patterns(runner.decoder, sample, device, has_places).assign(region=region)
            for region, sample in samples.items()
        ]
        if mapped is not None:
            weights = maps(runner.decoder, mapped, device)
            entries = _rows(weights, "layer", "head", "query", "key")
            shown = (entries["layer"] == layer) & (entries["key"] <= entries["query"])
            parts.append(entries[shown].assign(measure="map"))
        rows = pd.concat(parts)
        return rows.astype({name: "Int64" for name in _COUNTS if name in rows})

    example = mapped and _example(mapped, task, layer)
    return runs.measure("attention", regions, measured, example=example)


def _has_equal_places(task: Task[Any]) -> bool:
    """Tell whether `_equal_places` takes the problems of `task`.

    They have two operands, whose lengths are the axes, and an answer of digits alone, the least
    significant first.
    """
    if not isinstance(task, TwoOperands) or len(task.axes) < 2 or not is_one_number(task):
        return False
    lengths = np.array([[2, 3]])
    alone = task.answer_bound(lengths) == task.answer_digits(lengths)
    return bool(alone[0]) and not (task.format.pad or task.format.spaces)


def _example(problem: Problems, task: Task[Any], layer: int) -> dict[str, object]:
    """Return the tokens, the length of the prompt and the equal places of the mapped problem."""
    prompts, names = problem.prompt_lengths, task.vocabulary.names
    pairs = [np.zeros(0, np.int64)] * 3
    if _has_equal_places(task):
        pairs = [*_equal_places(problem.axis_lengths, prompts, problem.lengths - prompts - 1)]
    return {
        "tokens": [names[token] for token in problem.tokens],
        "prompt": int(prompts[0]),
        "equal_places": np.stack(pairs[1:], axis=1).tolist(),
        "layer": layer,
    }


def patterns(
    decoder: Decoder, sample: Sample, device: str, has_places: bool = True
) -> pd.DataFrame:
    """Return the rows `distance` and, if problems have equal places, `place`.

    `sample` has at least one problem. Raises as `watched` does.
    """
    config = decoder.config
    longest = int(sample.problems.lengths.max()) - 1  # the end token is no input
    shape = (config.applied_layers, config.num_heads)
    back = torch.zeros(*shape, longest, dtype=torch.float64)
    place = torch.zeros(*shape, dtype=torch.float64)
    queries, uniform = np.zeros(longest), np.zeros(longest)
    chance = positions = 0.0

    def pairs(rows: Rows) -> tuple[Ints, Ints, Ints]:
        operands = sample.problems.axis_lengths[rows.source_index]
        return _equal_places(operands, rows.prompt_lengths, rows.answer_tokens - 1)

    def sums(rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Return the sums of the weights by distance [N, H, T], and of those on places [N, H]."""
        layers, _ = watched(decoder, sequences(rows, device))
        by_distance = torch.stack(list(map(_by_distance, layers))).cpu()
        if not has_places:
            return by_distance, None
        row, query, key = (torch.from_numpy(index).to(device) for index in pairs(rows))
        on_places = [w[row, :, query, key].sum(0, dtype=torch.float64) for w in layers]
        return by_distance, torch.stack(on_places).cpu()

    for rows, (by_distance, on_places) in sample.batches(decoder, sums):
        count, tokens = rows.inputs.shape
        back[..., :tokens] += by_distance
        index = np.arange(tokens)
        queries[:tokens] += count * (tokens - index)
        # A uniform query at index t puts 1 / (t + 1) on each key: for each distance, sum this over
        # the queries that have a key there.
        uniform[:tokens] += count * np.cumsum(1 / (index[::-1] + 1))[::-1]
        if on_places is not None:
            place += on_places
            row, query, _ = pairs(rows)
            chance += float((1 / (query + 1)).sum())
            positions += len(np.unique(row * tokens + query))
    back /= torch.from_numpy(queries)
    distances = _rows(back.mean(1).numpy(), "layer", "distance")
    distances["uniform"] = np.tile(uniform / queries, config.applied_layers)
    distances["measure"] = "distance"
    if not has_places:
        return distances
    places = _rows((place / positions).numpy(), "layer", "head").assign(uniform=chance / positions)
    return pd.concat([distances, places.assign(measure="place")])


def _rows(weights: Floats, *axes: str) -> pd.DataFrame:
    """Return one row per entry of `weights`, with its indices (of layers and heads: from 1)."""
    first = [int(axis in ("layer", "head")) for axis in axes]
    ranges = [range(start, start + n) for start, n in zip(first, weights.shape, strict=True)]
    index = pd.MultiIndex.from_product(ranges, names=axes)
    return pd.Series(weights.ravel(), index, name="weight").reset_index()


def _by_distance(weights: Tensor) -> Tensor:
    """Sum weights [B, H, T, T] over rows and queries for each distance of the key: [H, T]."""
    tokens = weights.shape[-1]
    index = torch.arange(tokens, device=weights.device)
    # Future keys, which have no weight, are counted with the diagonal.
    distance = (index[:, None] - index).clamp_min(0).flatten()
    summed = weights.sum(0, dtype=torch.float64).flatten(-2)
    return summed.new_zeros(len(summed), tokens).index_add_(1, distance, summed)


def _equal_places(
    axis_lengths: Ints, prompt_lengths: Ints, answer_digits: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return row, query and key of all pairs of an answer's and an operand's digit of equal place.

    Each is int64 [m]. Numbers have the least significant digit first; the first operand starts at
    0, the second after the operator. A query predicts the token after it.

    >>> row, query, key = _equal_places(*map(np.array, ([[3, 2]], [7], [3])))  # 321+54=861
    >>> list(zip(query.tolist(), key.tolist()))
    [(6, 0), (6, 4), (7, 1), (7, 5), (8, 2)]
    """
    place = np.arange(answer_digits.max())[:, None]
    inside = (place < axis_lengths[:, None]) & (place < answer_digits[:, None, None])
    row, places, operand = np.nonzero(inside)
    second_start = axis_lengths[row, 0] + 1
    return row, prompt_lengths[row] - 1 + places, operand * second_start + places


def maps(decoder: Decoder, problem: Problems, device: str) -> Floats:
    """Return the weights of one problem without its end token, [N, H, T, T]: query, key.

    Its key for random choices is 0.
    """
    sample = Sample(problem, np.zeros(1, np.int64))
    ((_, (layers, _)),) = sample.batches(
        decoder, lambda rows: watched(decoder, sequences(rows, device))
    )
    return torch.cat(layers).to(torch.float64).cpu().numpy()


# ---- tables ------------------------------------------------------------------------------------


def _measured(study: Study, measure: str) -> pd.DataFrame:
    """Return the labelled rows of one measure: distance, place or map."""
    rows = study.labelled
    return rows[rows.measure == measure]


def _best_heads(study: Study) -> pd.DataFrame:
    """Return the rows `place` of each run's best head in distribution, for every region."""
    heads = _measured(study, "place")
    inside = heads[heads.region == INSIDE]
    best = inside.loc[inside.groupby("run", sort=False).weight.idxmax(), ["run", "layer", "head"]]
    return best.merge(heads)


def to_markdown(study: Study) -> str:
    """Format tables of place addressing, if places are equal, and of the weight on the diagonal."""
    if _measured(study, "place").empty:
        return f"{markdown(_diagonal_table(study), 2)}\n{SPREAD} {study.source}\n"
    tables = markdown(_places_table(study), 3), markdown(_diagonal_table(study), 2)
    return "\n".join([*tables, f"Place addressing: {PLACES} {SPREAD} {study.source}\n"])


def _places_table(study: Study) -> pd.DataFrame:
    """Return one row per run, and one for all runs of an encoding."""
    body = []
    for label, runs in _best_heads(study).groupby("label", sort=False):
        heads = runs.groupby(["seed", "layer", "head"], sort=False)
        lines = [(f"{seed}", f"layer {n}, head {m}", rows) for (seed, n, m), rows in heads]
        if len(lines) > 1:
            lines.append((f"all {len(lines)}", "", runs))
        for seed, head, rows in lines:
            cells = {"encoding": label, "seed": seed, "best head": head}
            for region in study.regions:
                scores = rows[rows.region == region]
                cells[f"place, {REGION_WORDS[region]}"] = mean_cell(scores.weight)
                cells[f"chance {REGION_WORDS[region]}"] = f"{scores.uniform.iloc[0]:.3f}"
            body.append(cells)
    return pd.DataFrame(body)


def _diagonal_table(study: Study) -> pd.DataFrame:
    rows = _measured(study, "distance").query("distance == 0")
    tables = {}
    for region in study.regions:
        inside = rows[rows.region == region]
        table = inside.groupby(["label", "layer"], sort=False).weight.agg(mean_cell).unstack()
        table.loc["uniform"] = inside.groupby("layer").uniform.first().map("{:.3f}".format)
        tables[REGION_WORDS[region]] = table.rename(columns="layer {}".format)
    return pd.concat(tables, names=["weight on the diagonal", "encoding"]).reset_index()


@styled()
def figures(study: Study) -> dict[str, Figure]:
    """Draw weight by distance, weight on equal places if there are any, and maps of an example."""
    heads, example = _measured(study, "place"), study.facts["example"]
    drawn = {"-distance": draw_distances(study, _measured(study, "distance"))}
    if not heads.empty:
        drawn["-places"] = draw_places(study, heads, _best_heads(study))
    return drawn | ({"-maps": draw_maps(_measured(study, "map"), example)} if example else {})
