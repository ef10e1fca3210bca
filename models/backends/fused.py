"""A kernel of our own, in Triton: packed sequences, one softmax for up to three values, no bias."""

import os

import torch
from torch import Tensor

from tape_arith.models.attention import Backend, Needs, Values
from tape_arith.models.hardware import Hardware
from tape_arith.models.kernels import WIDEST
from tape_arith.models.sequences import Sequences


class Fused(Backend):
    """Gathers up to three values by one attention map; pads nothing."""

    name = "fused"
    packs = True

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        if needs.bias != "none":
            return "adds no bias"
        if needs.values > 3:
            return "gathers three values at most"
        if needs.query * needs.width > WIDEST:
            return f"takes queries of {WIDEST} numbers at most"
        if hardware.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
            return "needs a CUDA GPU (TRITON_INTERPRET=1 runs it on a CPU, slowly)"
        on_gpu = hardware.device == "cuda" and torch.cuda.is_available()
        if on_gpu and torch.cuda.get_device_capability() < (8, 0):
            return "needs a GPU of compute capability 8.0 or higher"
        # Not imported before: Triton takes a second.
        try:
            from tape_arith.models.kernels.tiles import INTERPRETED
        except ImportError:
            return "needs Triton, which is not installed"
        if hardware.device == "cpu" and not INTERPRETED:
            return "needs TRITON_INTERPRET=1 before its kernels are imported"
        return None

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        values: Values,
        seqs: Sequences,
        scale: float,
        bias: Tensor | None,
    ) -> Values:
        from tape_arith.models.kernels.multi_value import multi_value_attention

        assert bias is None
        batch, tokens, heads = q.shape[:3]
        # Broadcast here, so that autograd sums the gradient of a value that all heads share.
        flat = [v.expand(batch, -1, -1, -1).flatten(0, 1).expand(-1, heads, -1) for v in values]
        q, k, sequences = q.flatten(0, 1), k.flatten(0, 1), seqs.cumulative
        mixed = multi_value_attention(q, k, flat, *sequences, scale)
        return tuple(heads.unflatten(0, (batch, tokens)) for heads in mixed)
