"""Compute backward passes by hand on CPUs, where memory is slow.

Each function computes the same as the plain formula in its caller, but stores little except its
inputs, in their own types, and sums in place. On a GPU a compiled block fuses the plain formula, so
callers ask `use_custom_backward` first.

Legend: B batch, T tokens, H heads, D hidden, F frequencies.
"""

from typing import Any, TypeVar

import torch
from torch import Tensor

State = TypeVar("State", bound=tuple[Tensor, ...])


def use_custom_backward(x: Tensor) -> bool:
    """Tell whether operations on `x` should use the functions of this module."""
    # Not `is_compiling`, which is true in all threads while one thread compiles.
    return x.device.type == "cpu" and not torch.compiler.is_dynamo_compiling()


def swap_halves(x: Tensor) -> Tensor:
    """Exchange the two halves of the last axis, [..., 2F]."""
    return x.roll(x.shape[-1] // 2, -1)


def repeat_for_heads(state: State, num_heads: int) -> State:
    """Copy each part [B or 1, T, 1, ...] for every head if on a CPU; else return `state` itself.

    On a CPU a product that broadcasts an inner axis of 32 numbers takes three times as long as one
    of equal shapes.
    """
    if not use_custom_backward(state[0]):
        return state
    return type(state)(*(part.repeat(1, 1, num_heads, 1) for part in state))


def rms_norm_on_cpu(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Compute x / sqrt(mean(x^2) + eps) * weight over the last axis, in `dtype`.

    torch's own takes six times as long on a CPU, because its gradient is a chain of small
    operations.
    """
    normed: Tensor = _RMSNorm.apply(x, weight, eps, dtype)  # type: ignore[no-untyped-call]
    return normed


def rotate_on_cpu(x: Tensor, diagonal: Tensor, cross: Tensor) -> Tensor:
    """Compute x * diagonal + swap_halves(x) * cross in the type of `diagonal`; return x's type.

    x [B, T, H, 2F]; diagonal, cross [B or 1, T, H or 1, 2F].
    """
    rotated: Tensor = _Rotate.apply(x, diagonal, cross)  # type: ignore[no-untyped-call]
    return rotated


def add_mixed_rows_on_cpu(
    e: tuple[Tensor, Tensor], g: tuple[Tensor, Tensor], mixed: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Compute e + G mixed for 2x2 matrices, in the type of `e`.

    e, mixed   (diagonal, cross) of `TapeState`, each [B or 1, T, H or 1, 2F]
    g          (G_11, G_22) and (G_12, G_21), each laid out like a part of the state
    """
    diagonal, cross = _AddMixedRows.apply(*e, *g, *mixed)  # type: ignore[no-untyped-call]
    return diagonal, cross


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        ctx.type, x = x.dtype, x.to(torch.promote_types(x.dtype, torch.float32))
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1]
        inverse = (mean_square + eps).rsqrt()
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        # RMSNorm is layer norm with a mean of zero, so one kernel does nearly all the work. Layer
        # norm also subtracts the gradient through its mean, which is added back here.
        x, weight, inverse = ctx.saved_tensors
        gradient, wide = gradient.to(x.dtype).contiguous(), weight.to(x.dtype)
        d_x, d_weight, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, x, wide.shape, torch.zeros_like(inverse), inverse, wide, wide,
            [True, True, False],
        )  # fmt: skip
        shift = (gradient @ wide)[..., None] * (inverse / x.shape[-1])
        return d_x.add_(shift).to(ctx.type), d_weight.to(weight.dtype), None, None


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, diagonal: Tensor, cross: Tensor) -> Tensor:
        ctx.save_for_backward(x, diagonal, cross)
        # Cast first, because products of mixed types are several times slower.
        wide = x.to(diagonal.dtype)
        return (wide * diagonal).addcmul_(swap_halves(wide), cross).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        x, diagonal, cross = ctx.saved_tensors
        gradient = gradient.to(diagonal.dtype)
        # x_2 entered y_1 by the swap, so its gradient returns by the swap.
        d_x = swap_halves(gradient * cross).addcmul_(gradient, diagonal).to(x.dtype)
        if not ctx.needs_input_grad[1]:
            return d_x, None, None
        wide = x.to(diagonal.dtype)
        return (
            d_x,
            (gradient * wide).sum_to_size(diagonal.shape),
            (gradient * swap_halves(wide)).sum_to_size(cross.shape),
        )


class _AddMixedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        e_diagonal, e_cross, *factors = inputs
        ctx.save_for_backward(*factors)
        ctx.shape = e_diagonal.shape
        keep, carry, diagonal, cross = (x.to(e_diagonal.dtype) for x in factors)
        return (
            torch.addcmul(e_diagonal, keep, diagonal).addcmul_(carry, cross),
            torch.addcmul(e_cross, swap_halves(carry), diagonal).addcmul_(swap_halves(keep), cross),
        )

    @staticmethod
    def backward(ctx: Any, d_diagonal: Tensor, d_cross: Tensor) -> tuple[Tensor, ...]:
        types = [x.dtype for x in ctx.saved_tensors]
        keep, carry, diagonal, cross = (x.to(d_diagonal.dtype) for x in ctx.saved_tensors)
        gradients = (
            (d_diagonal * diagonal).add_(swap_halves(d_cross * cross)),
            (d_diagonal * cross).add_(swap_halves(d_cross * diagonal)),
            (d_diagonal * keep).addcmul_(d_cross, swap_halves(carry)),
            (d_diagonal * carry).addcmul_(d_cross, swap_halves(keep)),
        )
        return (
            d_diagonal.sum_to_size(ctx.shape),
            d_cross.sum_to_size(ctx.shape),
            *(x.to(dtype) for x, dtype in zip(gradients, types, strict=True)),
        )
