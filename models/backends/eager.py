"""Attention as plain products: the reference of every backend, and the fastest one on a CPU."""

from torch import Tensor

from tape_arith.models.attention import attention_weights, gather_values
from tape_arith.models.backends.backend import Backend, Needs
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences, pack, unpack


class Eager(Backend):
    """Meets all needs; pads packed sequences. The only backend that shows attention weights."""

    name = "eager"
    shows = True

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
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
        if seqs.starts is not None:
            q, k = unpack(q, seqs), unpack(k, seqs)
            values = tuple(unpack(v, seqs) for v in values)
        weights = attention_weights(q, k, scale=scale, bias=bias)
        seqs.show("weights", weights)
        mixed = tuple(gather_values(weights, v) for v in values)
        return mixed if seqs.starts is None else tuple(pack(heads, seqs) for heads in mixed)
