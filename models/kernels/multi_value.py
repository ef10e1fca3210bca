"""Causal attention of packed sequences, one softmax for up to three values, as operators of torch.

Legend: T tokens of all sequences, n sequences, H heads, K head dim, V value width.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.models.kernels import WIDEST, launch

TYPES = (torch.float32, torch.bfloat16, torch.float16)


def reference(
    q: Tensor, k: Tensor, values: Sequence[Tensor], starts: Tensor, scale: float
) -> tuple[Tensor, ...]:
    """Compute `multi_value_attention` in any type, one sequence after another."""
    outputs = [torch.zeros_like(v, memory_format=torch.contiguous_format) for v in values]
    for first, last in pairwise(starts.tolist()):
        scores = torch.einsum("thk,shk->hts", q[first:last], k[first:last]) * scale
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        for output, v in zip(outputs, values, strict=True):
            mixed = torch.einsum("hts,shv->thv", weights.to(v.dtype), v[first:last])
            output[first:last] = mixed
    return tuple(outputs)


def multi_value_attention(
    q: Tensor, k: Tensor, values: Sequence[Tensor], starts: Tensor, longest: int, scale: float
) -> tuple[Tensor, ...]:
    """Compute softmax(scale q k^T) over the keys up to each query, times each of `values`.

    q, k [T, H, K] of one type, float32 or a half one; one to three values [T, H, V] of any of
    these types, views with broadcast axes as well; starts int32 [n + 1], cumulative lengths from
    0; no sequence is longer than `longest`. Returns one [T, H, V] for each value, in its type;
    products are of q's type, summed in float32. What lies beyond starts[n] belongs to no sequence:
    outputs and gradients are 0 there. Deterministic. K and V are 128 at most.

    Errors: ValueError.
    """
    if not 1 <= len(values) <= 3:
        raise ValueError(f"one to three values, not {len(values)}")
    if q.dtype != k.dtype or any(x.dtype not in TYPES for x in (q, *values)):
        raise ValueError("q and k must be of one type, and all float32, bfloat16 or float16")
    widths = [v.shape[-1] for v in values]
    widest = max(widths)
    if max(q.shape[-1], widest) > WIDEST:
        raise ValueError(f"heads and values are at most {WIDEST} wide")
    padded = [v if v.shape[-1] == widest else F.pad(v, (0, widest - v.shape[-1])) for v in values]
    results = attend(q, k, padded, starts, longest, scale)
    outputs = zip(results, widths, strict=False)
    return tuple(x if width == widest else x[..., :width] for x, width in outputs)


@torch.library.custom_op("tape_arith::multi_value_attention", mutates_args=())
def attend(
    q: Tensor, k: Tensor, values: list[Tensor], starts: Tensor, longest: int, scale: float
) -> list[Tensor]:
    """Return the outputs, then what the backward needs beside the inputs."""
    return launch.forward(q, k, values, starts, longest, scale)


@torch.library.custom_op("tape_arith::multi_value_attention_backward", mutates_args=())
def attend_backward(
    gradients: list[Tensor],
    q: Tensor,
    k: Tensor,
    values: list[Tensor],
    results: list[Tensor],
    starts: Tensor,
    longest: int,
    scale: float,
    wanted: int,
) -> list[Tensor]:
    """Return the gradients of q, k and the first `wanted` values."""
    return launch.backward(gradients, q, k, values, results, starts, longest, scale, wanted)


@attend.register_fake
def _(
    q: Tensor, k: Tensor, values: list[Tensor], starts: Tensor, longest: int, scale: float
) -> list[Tensor]:
    outputs = [v.new_empty(v.shape) for v in values]
    if launch.is_short(q, values, longest):
        return outputs
    return [*outputs, q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)]


@attend_backward.register_fake
def _(
    gradients: list[Tensor],
    q: Tensor,
    k: Tensor,
    values: list[Tensor],
    results: list[Tensor],
    starts: Tensor,
    longest: int,
    scale: float,
    wanted: int,
) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (q, k, *values[:wanted])]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    q, k, values, starts, ctx.longest, ctx.scale = inputs
    ctx.num_values = len(values)
    results = output if len(output) > len(values) else []
    ctx.save_for_backward(q, k, *values, starts, *results)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Any, ...]:
    q, k, *rest = ctx.saved_tensors
    values, starts = rest[: ctx.num_values], rest[ctx.num_values]
    results = rest[ctx.num_values + 1 :]
    needed = ctx.needs_input_grad[2]
    wanted = max((i + 1 for i, needs in enumerate(needed) if needs), default=0)
    given = [
        torch.zeros_like(v) if g is None else g for g, v in zip(gradients, values, strict=False)
    ]
    d_q, d_k, *d_values = attend_backward(
        given, q, k, values, results, starts, ctx.longest, ctx.scale, wanted
    )
    return d_q, d_k, [*d_values, *[None] * (len(values) - wanted)], None, None, None


attend.register_autograd(_backward, setup_context=_save)
