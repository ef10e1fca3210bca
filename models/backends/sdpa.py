"""torch's scaled_dot_product_attention, on padded rows."""

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tape_arith.models.attention import Backend, Needs, Values, future_mask
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences


class SDPA(Backend):
    """Takes a bias and wider values; torch chooses among its kernels."""

    name = "sdpa"

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        return "never shows the scores" if needs.bias == "scores" else None

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        values: Values,
        seqs: Sequences,
        scale: float,
        bias: Tensor | None,
    ) -> Values:
        assert seqs.starts is None
        batch, tokens, heads = q.shape[:3]
        # One map gathers all values at once, beside each other in one wider value.
        parts = [v.to(q.dtype).expand(batch, tokens, heads, -1) for v in values]
        wide = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
        mask = None
        if bias is not None:
            # CUDA's kernels refuse a mask whose last axis is not contiguous.
            mask = (bias + future_mask(bias)).to(q.dtype).contiguous()
            mask = mask.expand(batch, heads, tokens, tokens)
        # Only this CUDA kernel takes wider values and gives a bias its gradient; torch's order
        # would put cuDNN's first. Plain products take widths that it refuses (in bfloat16 those
        # that are no multiple of 8).
        pinned = q.is_cuda and (bias is not None or wide.shape[-1] != q.shape[-1])
        kernels = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        q, k, wide = (x.transpose(1, 2) for x in (q, k, wide))
        with sdpa_kernel(kernels) if pinned else nullcontext():
            mixed = scaled_dot_product_attention(
                q, k, wide, attn_mask=mask, is_causal=mask is None, scale=scale
            )
        return tuple(mixed.transpose(1, 2).split([v.shape[-1] for v in values], -1))
