"""Stability under positional shifts: measures how attention changes if indices start elsewhere or
[BOS] tokens come first.

After Table 8 of the TAPE paper (arXiv 2501.00712), whose text leaves the formula open. For each
layer D = mean |A - A'| / mean |A|, A the attention weights before and A' after the change, means
over problems, heads and the causal triangle (a key for each token up to the query); and the same
for P(t, i) = sum_f tr(e_t e_i^T), the inner products of the positional state that the layer's
attention uses. Every entry weighs the same, so that long problems weigh more.

Legend: B batch, T tokens, H heads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.studies.inputs import (
    Sample,
    Watched,
    comparable_runs,
    describe_problems,
    evaluation_bucket,
    first_problems,
    watched,
)
from tape_arith.arith.studies.stability_report import (
    ATTENTION,
    NO_STATE,
    PRODUCTS,
    RENORMALISED,
    Precision,
    Series,
    StabilityStudy,
)
from tape_arith.arith.tasks.vocabulary import BOS
from tape_arith.arith.terminal import bar
from tape_arith.models.decoder import Decoder
from tape_arith.models.sequences import Sequences

SHIFTS = {"start 3": (3, 0), "start 1000": (1000, 0), "BOS": (0, 3)}
"""The index of the first token and the number of [BOS] in front, for each change."""


class Deviation(NamedTuple):
    """D of every layer for a change and a measure; None, with the reason, if it does not exist."""

    change: str
    measure: str
    values: tuple[float, ...] | None
    why: str | None = None


def stability_study(
    paths: Sequence[Path], count: int, precisions: Sequence[Precision]
) -> StabilityStudy:
    """Measure the runs at `paths` on the first `count` problems of their evaluation set.

    Raises UsageError if runs cannot be compared or have fewer problems; Failure for a corrupt file
    or weights that are not finite.
    """
    runs = comparable_runs(paths)
    bucket, sample = evaluation_bucket(runs[0]), first_problems(runs[0], count)
    series: list[Series] = []
    with bar("watch", len(runs)) as update:
        for number, run in enumerate(runs, start=1):
            decoder, hardware = run.decoder()
            facts = str(run.path), run.record.encoding, run.record.seed, run.leading_bos
            for precision in precisions:
                decoder.to(getattr(torch, precision))
                measured = deviations(decoder, sample, hardware.device)
                series += [Series(*facts, precision, *deviation) for deviation in measured]
            update(number, str(run.path))
    return StabilityStudy(
        series=tuple(series),
        preset=runs[0].record.preset,
        evaluation=describe_problems(bucket, count),
    )


def deviations(decoder: Decoder, sample: Sample, device: str) -> list[Deviation]:
    """Measure `decoder`, in the precision of its parameters, for each of SHIFTS.

    Its inputs are those of scoring: whole problems without the end token. Raises as `watched`,
    except for an index that an encoding does not have: its deviations have no values.
    """
    return [
        deviation for change in SHIFTS for deviation in _deviations(decoder, sample, device, change)
    ]


def _deviations(decoder: Decoder, sample: Sample, device: str, change: str) -> Iterator[Deviation]:
    _, leading = SHIFTS[change]
    measures = [ATTENTION, *([RENORMALISED] if leading else []), PRODUCTS]
    layers = decoder.config.num_layers
    # The sums of |x - x'| and |x| of each measure and layer.
    sums = {measure: torch.zeros(layers, 2, dtype=torch.float64) for measure in measures}
    positional = True
    for rows in sample.batches(decoder):
        seqs = sequences(rows, device)
        before = watched(decoder, seqs)
        try:
            after = watched(decoder, _shifted(seqs, change))
        except UsageError as error:
            yield from (Deviation(change, measure, None, str(error)) for measure in measures)
            return
        for layer in range(layers):
            for measure, pair in _pairs(before, after, layer, leading).items():
                sums[measure][layer] += _sums(*pair)
        positional = all(products is not None for products in before.products)
    for measure, both in sums.items():
        if measure == PRODUCTS and not positional:
            yield Deviation(change, measure, None, NO_STATE)
        else:
            yield Deviation(change, measure, tuple((both[:, 0] / both[:, 1]).tolist()))


def _shifted(seqs: Sequences, change: str) -> Sequences:
    """Return the changed sequences, with the same keys.

    The bound on the length grows with the tokens added; random positions may depend on it.
    """
    start, leading = SHIFTS[change]
    first = seqs.tokens.new_full((len(seqs.tokens), leading), BOS)
    return replace(
        seqs,
        tokens=torch.cat((first, seqs.tokens), 1),
        final_length=seqs.final_length + leading,
        offset=start,
    )


def _pairs(
    before: Watched, after: Watched, layer: int, leading: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return each measure before and after the change, both [B, H or 1, T, T]."""
    kept = slice(leading, None)
    weights, changed = before.weights[layer], after.weights[layer][..., kept, kept]
    pairs = {ATTENTION: (weights, changed)}
    if leading:
        renormalised = (changed / changed.sum(-1, keepdim=True)).nan_to_num(nan=0.0)  # 0 / 0
        pairs[RENORMALISED] = (weights, renormalised)
    products, moved = before.products[layer], after.products[layer]
    if products is not None and moved is not None:
        # A product that depends on indices alone has one row for the batch: it counts for each.
        shape = (len(weights), -1, -1, -1)
        pairs[PRODUCTS] = (products.expand(shape), moved[..., kept, kept].expand(shape))
    return pairs


def _sums(before: Tensor, after: Tensor) -> Tensor:
    """Sum |x - x'| and |x| over the causal triangle: float64 [2]."""
    sums = [x.abs().tril().sum(dtype=torch.float64) for x in (before - after, before)]
    return torch.stack(sums).cpu()
