"""Attention as plain products: the reference of every backend, and the fastest one on a CPU."""

from torch import Tensor

from models.attention import attention
from models.backends.backend import Backend, Needs
from models.hardware import Hardware
from models.packing import pack, unpack
from models.sequences import Sequences


class Eager(Backend):
    """Takes whatever there is; packed sequences too, which it pads, so nothing is won by those."""

    name = "eager"

    def lacks(self, needs: Needs, hardware: Hardware) -> str | None:
        return None

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
        if seqs.starts is None:
            return attention(q, k, values, scale=scale, bias=bias)
        q, k = unpack(q, seqs), unpack(k, seqs)
        padded = attention(q, k, tuple(unpack(v, seqs) for v in values), scale=scale, bias=bias)
        return tuple(pack(heads, seqs) for heads in padded)
