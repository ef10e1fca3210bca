"""Stability under positional shifts: measures how attention changes if indices start elsewhere or
[BOS] tokens come first.

After Table 8 of the TAPE paper (arXiv 2501.00712), whose text leaves the formula open. For each
layer D = mean |A - A'| / mean |A|, A the attention weights before and A' after the change, means
over problems, heads and the causal triangle (a key for each token up to the query); and the same
for P(t, i) = sum_f tr(e_t e_i^T), the inner products of the positional state that the layer's
attention uses. Every entry weighs the same, so that long problems weigh more.

Rows of the study: D as `value` for each precision, change, measure and layer; a measure that does
not exist has one row without a value, with the reason in `why`. Legend: B batch, T tokens, H heads.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.studies.inputs import Sample, StudiedRuns, Watched, watched
from tape_arith.arith.studies.stability_report import ATTENTION, PRODUCTS, RENORMALISED, ROUNDING
from tape_arith.arith.studies.study import Study
from tape_arith.arith.tasks.task import BOS
from tape_arith.models.decoder import Decoder
from tape_arith.models.sequences import Sequences

SHIFTS = {"start 3": (3, 0), "start 1000": (1000, 0), "BOS": (0, 3)}
"""The index of the first token and the number of [BOS] in front, for each change."""


def measure(runs: StudiedRuns, count: int, *, double: bool = False) -> Study:
    """Measure `runs` on the first `count` problems of their evaluation set, in float32 and, with
    `double`, in float64.

    Raises UsageError for too many problems; Failure for a corrupt file or weights that are not
    finite.
    """
    regions = runs.regions(count)
    sample, frames = runs.sample(np.arange(count)), []
    for run, decoder, hardware in runs.watchable():
        for precision in ("float32", "float64") if double else ("float32",):
            decoder.to(getattr(torch, precision))
            measured = deviations(decoder, sample, hardware.device)
            measured.insert(0, "precision", precision)
            frames.append(run.rows(measured))
    rows = pd.concat(frames, ignore_index=True)
    small = (rows["value"] <= rows["precision"].map(ROUNDING)).astype("boolean")
    rows["at_rounding_level"] = small.mask(rows["value"].isna())
    return Study("stability", runs.facts(regions), rows)


def deviations(decoder: Decoder, sample: Sample, device: str) -> pd.DataFrame:
    """Measure `decoder`, in the precision of its parameters, for each of SHIFTS.

    Its inputs are those of scoring: whole problems without the end token. Raises as `watched`,
    except for an index that an encoding does not have: its deviations have no values.
    """
    rows = [
        (change, *row) for change in SHIFTS for row in _deviations(decoder, sample, device, change)
    ]
    frame = pd.DataFrame(rows, columns=["change", "measure", "why", "layer", "value"])
    return frame.astype({"layer": "Int64", "value": "float64"})


def _deviations(
    decoder: Decoder, sample: Sample, device: str, change: str
) -> list[tuple[str, str | None, int | None, float | None]]:
    """Return measure, why, layer and value of each row of a change."""
    _, leading = SHIFTS[change]
    measures = [ATTENTION, RENORMALISED, PRODUCTS] if leading else [ATTENTION, PRODUCTS]
    layers = decoder.config.num_layers
    # The sums of |x - x'| and |x| of each measure and layer.
    sums: dict[str, Tensor] = {}
    for rows in sample.batches(decoder):
        seqs = sequences(rows, device)
        before = watched(decoder, seqs)
        try:
            after = watched(decoder, _shifted(seqs, change))
        except UsageError as error:
            return [(measure, str(error), None, None) for measure in measures]
        for layer in range(layers):
            for measure, pair in _pairs(before, after, layer, leading).items():
                zeros = torch.zeros(layers, 2, dtype=torch.float64)
                sums.setdefault(measure, zeros)[layer] += _sums(*pair)
    result: list[tuple[str, str | None, int | None, float | None]] = []
    for measure in measures:
        if measure in sums:
            ratios = (sums[measure][:, 0] / sums[measure][:, 1]).tolist()
            result += [(measure, None, layer, value) for layer, value in enumerate(ratios, start=1)]
        else:
            result.append((measure, "no positional state", None, None))
    return result


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
    original = slice(leading, None)
    weights, changed = before.weights[layer], after.weights[layer][..., original, original]
    pairs = {ATTENTION: (weights, changed)}
    if leading:
        renormalised = (changed / changed.sum(-1, keepdim=True)).nan_to_num(nan=0.0)  # 0 / 0
        pairs[RENORMALISED] = (weights, renormalised)
    products, moved = before.products[layer], after.products[layer]
    if products is not None and moved is not None:
        # A product that depends on indices alone has one row for the batch: it counts for each.
        shape = (len(weights), -1, -1, -1)
        pairs[PRODUCTS] = (products.expand(shape), moved[..., original, original].expand(shape))
    return pairs


def _sums(before: Tensor, after: Tensor) -> Tensor:
    """Sum |x - x'| and |x| over the causal triangle: float64 [2]."""
    sums = [x.abs().tril().sum(dtype=torch.float64) for x in (before - after, before)]
    return torch.stack(sums).cpu()
