"""Packed sequences with what goes into the kernel, and how far its results are from float64.

Legend: T tokens of all sequences, n sequences, H heads, K head dim, V value width, S a bias's side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

HALF = torch.bfloat16
SCALE = 0.3


def exact(x: Tensor) -> Tensor:
    """Return `x` in float64 on the CPU."""
    return x.detach().double().cpu()


def reference(
    q: Tensor,
    k: Tensor,
    values: Sequence[Tensor],
    starts: Tensor,
    scale: float,
    bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Compute `multi_value_attention` in any type, one sequence after another.

    A bias [n, H, S, S] is one of each sequence.
    """
    outputs = [torch.zeros_like(v, memory_format=torch.contiguous_format) for v in values]
    for number, (first, last) in enumerate(pairwise(starts.tolist())):
        scores = torch.einsum("thk,shk->hts", q[first:last], k[first:last]) * scale
        if bias is not None:
            own = bias if bias.ndim == 3 else bias[number]
            scores = scores + own[:, : last - first, : last - first]
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        for output, v in zip(outputs, values, strict=True):
            mixed = torch.einsum("hts,shv->thv", weights.to(v.dtype), v[first:last])
            output[first:last] = mixed
    return tuple(outputs)


@dataclass
class Problem:
    """`inputs` are q, k and the values; `gradients` those of the outputs, from outside.

    The `bias` [H, S, S] needs its gradient if it is `learned`.
    """

    inputs: list[Tensor]
    gradients: list[Tensor]
    starts: Tensor
    longest: int
    bias: Tensor | None = None
    learned: bool = True

    def attend(self, inputs: Sequence[Tensor], bias: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the outputs; of the plain loop for inputs in float64."""
        from tape_arith.models.kernels.multi_value import multi_value_attention  # needs Triton

        q, k, *values = inputs
        if q.dtype == torch.float64:
            return reference(q, k, values, self.starts, SCALE, bias)
        return multi_value_attention(q, k, values, self.starts, self.longest, SCALE, bias)

    def run(self, inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Return the outputs, then the gradients of q, k, the values and a learned bias."""
        leaves = [x.detach().requires_grad_() for x in inputs or self.inputs]
        bias = None
        if self.bias is not None:
            bias = exact(self.bias) if leaves[0].dtype == torch.float64 else self.bias.detach()
            bias = bias.requires_grad_(self.learned)
        outputs = self.attend(leaves, bias)
        leaves += [bias] if bias is not None and self.learned else []
        upstream = [g.to(o) for g, o in zip(self.gradients, outputs, strict=True)]
        return [*(o.detach() for o in outputs), *torch.autograd.grad(outputs, leaves, upstream)]

    def expected(self) -> list[Tensor]:
        """Return the results of the plain loop."""
        return self.run([exact(x) for x in self.inputs])


def problem(
    lengths: Sequence[int],
    *,
    device: str,
    heads: int = 1,
    width: int = 16,
    value_width: int = 16,
    values: int = 3,
    dtype: torch.dtype = torch.float32,
    state: torch.dtype = torch.float32,
    tail: int = 0,
    longest: int | None = None,
    side: int = 0,
) -> Problem:
    """Draw standard normal inputs. Values after the first are of type `state`; `tail` tokens
    belong to no sequence; `side` is that of a bias, in float32, if there is one."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.tensor([0, *lengths]).cumsum(0)
    tokens = int(starts[-1]) + tail

    def noise(size: int, dtype: torch.dtype) -> Tensor:
        normal = torch.randn(tokens, heads, size, generator=generator, dtype=torch.float64)
        return normal.to(dtype).to(device)

    square = torch.randn(heads, side, side, generator=generator).to(device)
    types = [dtype] + [state] * (values - 1)
    return Problem(
        inputs=[noise(width, dtype), noise(width, dtype)]
        + [noise(value_width, kind) for kind in types],
        gradients=[noise(value_width, kind) for kind in types],
        starts=starts.to(torch.int32).to(device),
        longest=max(lengths) if longest is None else longest,
        bias=square if side else None,
    )


def distance(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference in any tensor, relative to its largest number."""
    assert len(actual) == len(expected)
    return max(
        float((exact(x) - exact(y)).abs().max() / exact(y).abs().max().clamp_min(1e-30))
        for x, y in zip(actual, expected, strict=True)
    )
