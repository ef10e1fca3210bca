"""torch's scaled_dot_product_attention, on padded rows.

Legend: B batch, T tokens, H heads, V value width.
"""

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tape_arith.models.backends.backend import Backend, Needs
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences


class SDPA(Backend):
    """Takes a bias and wider values; torch chooses among its kernels."""

    name = "sdpa"

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        return "never shows the scores" if needs.bias == "scores" else None

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
        assert seqs.starts is None
        batch, tokens, heads = q.shape[:3]
        # One map gathers all values at once, beside each other in one wider value.
        wide = [v.to(q.dtype).expand(batch, tokens, heads, -1) for v in values]
        value = torch.cat(wide, -1) if len(wide) > 1 else wide[0]
        mask = None
        if bias is not None:
            future = torch.full((tokens, tokens), float("-inf"), dtype=bias.dtype, device=q.device)
            # CUDA's kernels refuse a mask whose last axis is not contiguous.
            mask = (bias + future.triu(1)).to(q.dtype).contiguous()
            mask = mask.expand(batch, heads, tokens, tokens)
        # Only this CUDA kernel takes wider values and gives a bias its gradient; torch's order
        # would put cuDNN's first. Plain products take widths that it refuses (in bfloat16 those
        # that are no multiple of 8).
        pinned = q.is_cuda and (bias is not None or value.shape[-1] != q.shape[-1])
        kernels = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        with sdpa_kernel(kernels) if pinned else nullcontext():
            mixed = scaled_dot_product_attention(
                q.transpose(1, 2),
                k.transpose(1, 2),
                value.transpose(1, 2),
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
            ).transpose(1, 2)
        return tuple(mixed.split([v.shape[-1] for v in values], -1))
