"""torch's FlexAttention, compiled, with a mask of blocks: CUDA, no bias.

Legend: B batch, T tokens, H heads, V value width.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from tape_arith.models.backends.backend import Backend, Needs
from tape_arith.models.compile import raise_graph_limit
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences


@cache
def compiled() -> Any:
    return torch.compile(flex_attention)


class Flex(Backend):
    """Takes packed sequences and wider values; skips blocks that no query may see."""

    name = "flex"
    packs = True

    def __init__(self) -> None:
        raise_graph_limit()  # a graph for each width of values, length and way of packing
        self.masked: tuple[Sequences, BlockMask] | None = None

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        if hardware.device != "cuda":
            return "has no backward on a CPU"
        # Its gradient of a captured bias is summed by atomics, and is NaN at lengths that are no
        # multiple of 128 (pytorch issue 153799).
        return "gives a bias no gradient to rely on" if needs.bias != "none" else None

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        values: tuple[Tensor, ...],
        seqs: Sequences,
        *,
        scale: float | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        assert bias is None
        batch, tokens, heads = q.shape[:3]
        wide = [v.to(q.dtype).expand(batch, tokens, heads, -1) for v in values]
        attend = compiled() if q.is_cuda else flex_attention
        mixed = attend(
            q.transpose(1, 2),
            k.transpose(1, 2),
            torch.cat(wide, -1).transpose(1, 2),
            block_mask=self.mask(seqs),
            scale=scale,
        ).transpose(1, 2)
        return tuple(mixed.split([v.shape[-1] for v in values], -1))

    def mask(self, seqs: Sequences) -> BlockMask:
        """Allow keys of the same sequence up to each query; one mask for all layers."""
        if self.masked is None or self.masked[0] is not seqs:
            row = None if seqs.starts is None else seqs.row[0]

            def allowed(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
                causal = query >= key
                return causal if row is None else causal & (row[query] == row[key])

            tokens, device = seqs.tokens.shape[1], str(seqs.tokens.device)
            mask = create_block_mask(allowed, None, None, tokens, tokens, device=device)
            self.masked = (seqs, mask)
        return self.masked[1]
