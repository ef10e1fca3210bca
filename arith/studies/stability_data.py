"""Stability under positional shifts: what moving the start, or leading tokens, change in attention.

After Table 8 of the TAPE paper (arXiv 2501.00712), whose text leaves the formula open. For each
layer D = mean |A - A'| / mean |A|, A the attention weights before and A' after the change, means
over problems, heads and the causal triangle (a key for each token up to the query); and the same
for P(t, i) = sum_f tr(e_t e_i^T), the inner products of the positional state that the layer's
attention uses. Every entry weighs the same, so that long problems weigh more.

Legend: B batch, T tokens, H heads.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.studies.watch import Integers, Watched, batches, watched
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.tasks.vocabulary import BOS
from tape_arith.models.decoder import Decoder
from tape_arith.models.sequences import Sequences


@dataclass(frozen=True)
class Change:
    """Indices that start at `start`, or `leading` [BOS] tokens before the others."""

    name: str
    start: int = 0
    leading: int = 0

    def of(self, seqs: Sequences) -> Sequences:
        """The changed sequences. A bound on the length grows with the tokens that are added; keys
        stay, but what an encoding draws may depend on that bound."""
        first = seqs.tokens.new_full((len(seqs.tokens), self.leading), BOS)
        return replace(
            seqs,
            tokens=torch.cat((first, seqs.tokens), 1),
            final_length=seqs.final_length + self.leading,
            offset=self.start,
        )


CHANGES = (Change("start 3", start=3), Change("start 1000", start=1000), Change("BOS", leading=3))
"""The paper's two, and a shift that no trained index reaches."""


@dataclass(frozen=True)
class Deviation:
    """D of every layer, the first one first, for a change (a name of CHANGES) and a measure:

    - "attention": weights;
    - "attention, renormalised": without the columns of the leading tokens each row is made to sum
      to 1 again (where the leading tokens took all of it, it stays zero);
    - "inner products": of positional states.

    `values` is None where there are none, and `why` says why.
    """

    change: str
    measure: str
    values: tuple[float, ...] | None
    why: str | None = None


def deviations(
    decoder: Decoder, problems: Problems, keys: Integers, among: Integers, device: str
) -> list[Deviation]:
    """Of `decoder`, in the type of its parameters, over the problems at the places `among`.

    Tokens are those that scoring feeds: the whole problem but its end token. Errors: UsageError
    and Failure as `watched`; but an index that an encoding does not have is told in `why`.
    """
    return [
        deviation
        for change in CHANGES
        for deviation in _of_change(decoder, problems, keys, among, device, change)
    ]


def _of_change(
    decoder: Decoder,
    problems: Problems,
    keys: Integers,
    among: Integers,
    device: str,
    change: Change,
) -> Iterator[Deviation]:
    measures = ["attention", "inner products"]
    if change.leading:
        measures.insert(1, "attention, renormalised")
    layers = decoder.config.num_layers
    # Of each measure and layer: the sum of |x - x'| and that of |x|.
    sums = {measure: torch.zeros(layers, 2, dtype=torch.float64) for measure in measures}
    positional = True
    for rows in batches(decoder, problems, keys, among):
        seqs = sequences(rows, device)
        before = watched(decoder, seqs)
        try:
            after = watched(decoder, change.of(seqs))
        except UsageError as error:
            yield from (Deviation(change.name, measure, None, str(error)) for measure in measures)
            return
        for layer in range(layers):
            for measure, pair in _pairs(before, after, layer, change).items():
                sums[measure][layer] += _sums(*pair)
        positional = all(products is not None for products in before.products)
    for measure, (over, under) in ((m, s.unbind(1)) for m, s in sums.items()):
        if measure == "inner products" and not positional:
            yield Deviation(change.name, measure, None, "no positional state")
        else:
            yield Deviation(change.name, measure, tuple((over / under).tolist()))


def _pairs(
    before: Watched, after: Watched, layer: int, change: Change
) -> dict[str, tuple[Tensor, Tensor]]:
    """What is compared in a layer, each [B, H or 1, T, T]: by measure, before and after."""
    kept = slice(change.leading, None)
    weights, changed = before.weights[layer], after.weights[layer][..., kept, kept]
    pairs = {"attention": (weights, changed)}
    if change.leading:
        renormalised = (changed / changed.sum(-1, keepdim=True)).nan_to_num(nan=0.0)  # 0 / 0
        pairs["attention, renormalised"] = (weights, renormalised)
    products, moved = before.products[layer], after.products[layer]
    if products is not None and moved is not None:
        # One for all rows where it depends on nothing but indices: it counts once for each.
        shape = (len(weights), -1, -1, -1)
        pairs["inner products"] = (products.expand(shape), moved[..., kept, kept].expand(shape))
    return pairs


def _sums(before: Tensor, after: Tensor) -> Tensor:
    """The sums of |x - x'| and |x| over the causal triangle: float64 [2]."""
    over, under = ((x.abs().tril().sum(dtype=torch.float64)) for x in (before - after, before))
    return torch.stack((over, under)).cpu()
