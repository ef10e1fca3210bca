"""torch's FlexAttention, compiled, with a mask of blocks: CUDA, no bias."""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from tape_arith.models.attention import Backend, Needs, Values
from tape_arith.models.compile import raise_graph_limit
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences


@cache
def _compiled() -> Any:
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

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        values: Values,
        seqs: Sequences,
        scale: float,
        bias: Tensor | None,
    ) -> Values:
        assert bias is None
        wide = torch.cat([v.to(q.dtype).expand(*q.shape[:3], -1) for v in values], -1)
        attend = _compiled() if q.is_cuda else flex_attention
        q, k, wide = (x.transpose(1, 2) for x in (q, k, wide))
        mixed = attend(q, k, wide, block_mask=self._mask(seqs), scale=scale).transpose(1, 2)
        return tuple(mixed.split([v.shape[-1] for v in values], -1))

    def _mask(self, seqs: Sequences) -> BlockMask:
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
