"""The flash-attn library (version 2), an extra: CUDA, half precision, no bias.

Legend: B batch, T tokens, H heads, K head dim.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from tape_arith.models.backends.backend import Backend, Needs
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
        varlen = kernel()
        assert varlen is not None and bias is None
        batch, tokens, heads, width = q.shape
        starts, longest = seqs.cumulative
        flat = (batch * tokens, heads, width)
        return tuple(
            varlen(
                q.reshape(flat),
                k.reshape(flat),
                value.to(q.dtype).expand(batch, tokens, heads, width).reshape(flat),
                starts,
                starts,
                longest,
                longest,
                softmax_scale=scale,
                causal=True,
            )
            .view(batch, tokens, heads, width)
            .to(value.dtype)
            for value in values
        )
