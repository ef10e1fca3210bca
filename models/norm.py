"""RMSNorm, with a custom backward for CPUs.

Legend: D hidden.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.hardware import use_custom_backward


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019, 1910.07467).

    Returns the type of autocast if that is on, so that the next product casts nothing; the mean is
    taken in float32 or wider. On a CPU torch's own takes six times as long, since it derives its
    gradient from a chain of small operations; on a GPU a compiled block fuses it.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        device = x.device.type
        # Autocast leaves float64 alone.
        casts = torch.is_autocast_enabled(device) and x.dtype != torch.float64
        dtype = torch.get_autocast_dtype(device) if casts else x.dtype
        if not use_custom_backward(x):
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps).to(dtype)
        normed: Tensor = _Function.apply(x, self.weight, self.eps, dtype)  # type: ignore[no-untyped-call]
        return normed


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        ctx.type, x = x.dtype, x.to(torch.promote_types(x.dtype, torch.float32))
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1]
        inverse = (mean_square + eps).rsqrt()
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        # RMSNorm is layer norm with the mean held at zero, so one kernel does nearly all of it.
        # Layer norm also subtracts the gradient through its mean, which is added back here.
        x, weight, inverse = ctx.saved_tensors
        gradient, wide = gradient.to(x.dtype).contiguous(), weight.to(x.dtype)
        moved, by_weight, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, x, wide.shape, torch.zeros_like(inverse), inverse, wide, wide,
            [True, True, False],
        )  # fmt: skip
        shift = (gradient @ wide)[..., None] * (inverse / x.shape[-1])
        return moved.add_(shift).to(ctx.type), by_weight.to(weight.dtype), None, None
