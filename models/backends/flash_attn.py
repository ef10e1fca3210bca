"""The flash-attn library (version 2), an extra: CUDA, half precision, no bias.

Legend: B batch, T tokens, H heads, K head dim.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from tape_arith.models.attention import Backend, Needs, Values
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences


@cache
def kernel() -> Callable[..., Any] | None:
    """Import `flash_attn_varlen_func`; None without the library.

    Imports the symbol, since other packages install a namespace of the same name.
    """
    try:
        from flash_attn import flash_attn_varlen_func
    except ImportError:
        return None
    function: Callable[..., Any] = flash_attn_varlen_func
    return function


class FlashAttn(Backend):
    """Takes only values as wide as the head: one call for v and one for each further value."""

    name = "flash-attn"
    packs = True

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        if kernel() is None:
            return "is not installed (pip install 'tape-arith[flash]', with torch and nvcc there)"
        if hardware.device != "cuda":
            return "needs a CUDA GPU"
        if hardware.dtype_name not in ("bfloat16", "float16"):
            return f"computes in half precision, not in {hardware.dtype_name}"
        if needs.query != 1:
            return "takes queries as wide as the values alone"
        return "adds no bias" if needs.bias != "none" else None

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        values: Values,
        seqs: Sequences,
        scale: float,
        bias: Tensor | None,
    ) -> Values:
        varlen = kernel()
        assert varlen is not None and bias is None
        batch, tokens = q.shape[:2]
        starts, longest = seqs.cumulative
        bounds = (starts, starts, longest, longest)

        def gather(value: Tensor) -> Tensor:
            flat = (x.flatten(0, 1) for x in (q, k, value.to(q.dtype).expand_as(q)))
            heads: Tensor = varlen(*flat, *bounds, softmax_scale=scale, causal=True)
            return heads.unflatten(0, (batch, tokens)).to(value.dtype)

        return tuple(map(gather, values))
