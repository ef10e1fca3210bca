"""Choose a kernel and the sizes of its tiles, and launch it.

The tiles were chosen from what the compiler reports for sm_90: no spilled registers, Hopper's wide
products (wgmma) in bfloat16, and no more shared memory than smaller GPUs have, where that costs
nothing.

Legend: T tokens of all sequences, n sequences, H heads, K head dim, V value width.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tape_arith.models.kernels import long, short


class Tile(NamedTuple):
    """For short sequences: a tile of `size` tokens for those from `shortest` on."""

    shortest: int
    size: int
    warps: int


class Blocks(NamedTuple):
    """For long sequences: queries x keys of a tile, of each kernel."""

    forward: tuple[int, int]
    queries: tuple[int, int]
    keys: tuple[int, int]
    warps: int


def is_short(q: Tensor, values: Sequence[Tensor], longest: int) -> bool:
    """Tell whether one program can hold a sequence."""
    if q.dtype == torch.float32:
        return longest <= 32  # multiplied without tensor cores, which takes many registers
    return longest <= (128 if max(q.shape[-1], values[0].shape[-1]) <= 64 else 64)


def short_tiles(longest: int) -> list[Tile]:
    """Plan two launches if there are sequences of more than 64 tokens.

    Shorter ones need not wait for a processor with room for a tile of 128. A program ends at once
    if its sequence belongs to the other launch.
    """
    if longest <= 64:
        return [Tile(0, power_of_two(longest), 4)]
    return [Tile(0, 64, 4), Tile(65, 128, 8)]


def long_blocks(q: Tensor, values: Sequence[Tensor]) -> Blocks:
    if q.dtype == torch.float32:
        return Blocks((32, 32), (32, 32), (32, 32), 8)
    if max(q.shape[-1], values[0].shape[-1]) <= 64:
        return Blocks((64, 64), (64, 32), (32, 64), 4)
    return Blocks((64, 32), (64, 32), (32, 64), 8)


def power_of_two(size: int) -> int:
    """Round `size` up to what an axis of a tile can be."""
    return max(16, 1 << (size - 1).bit_length())


def pad_to_three(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Repeat the first tensor: a kernel names three and reads as many as there are."""
    return [*tensors, *[tensors[0]] * (3 - len(tensors))]


def strides(*tensors: Tensor) -> list[int]:
    """List the strides of tokens and heads."""
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def dense_rows(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy the tensors whose last axis is not contiguous."""
    return [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors]


def sizes(q: Tensor, values: Sequence[Tensor]) -> dict[str, int]:
    k, v = q.shape[-1], values[0].shape[-1]
    return {"N": len(values), "K": k, "K2": power_of_two(k), "V": v, "V2": power_of_two(v)}


def forward(
    q: Tensor, k: Tensor, values: Sequence[Tensor], starts: Tensor, longest: int, scale: float
) -> list[Tensor]:
    """Compute the outputs [T, H, V]; of long sequences also the sums of their softmax, [H, T]."""
    tokens, heads = q.shape[:2]
    n = len(starts) - 1
    outputs = [v.new_empty(v.shape) for v in values]
    short_ones = is_short(q, values, longest)
    sums = [] if short_ones else [q.new_zeros((heads, tokens), dtype=torch.float32)]
    if n == 0:
        return [*(output.zero_() for output in outputs), *sums]
    q, k, *values = dense_rows([q, k, *values])
    tensors = (q, k, *pad_to_three(values), *pad_to_three(outputs))
    steps = strides(q, k, *pad_to_three(values))
    with torch.cuda.device_of(q):
        if short_ones:
            for tile in short_tiles(longest):
                counts = (n, tokens, heads, tile.shortest)
                short.forward_kernel[(n * heads,)](
                    *(*tensors, starts, *counts, scale, *steps),
                    **sizes(q, values),
                    S=tile.size,
                    CLEAR=tile.shortest == 0,
                    num_warps=tile.warps,
                )
        else:
            (rows, columns), *_, warps = long_blocks(q, values)
            blocks = -(-longest // rows)
            counts = (n, blocks, tokens, heads)
            long.forward_kernel[(n * blocks * heads,)](
                *(*tensors, *sums, starts, *counts, scale, *steps),
                **sizes(q, values),
                R=rows,
                C=columns,
                num_warps=warps,
                num_stages=2,
            )
    return [*outputs, *sums]


def backward(
    gradients: Sequence[Tensor],
    q: Tensor,
    k: Tensor,
    values: Sequence[Tensor],
    results: Sequence[Tensor],
    starts: Tensor,
    longest: int,
    scale: float,
    wanted: int,
) -> list[Tensor]:
    """Compute the gradients of q, k and the first `wanted` values from those of the outputs.

    `results` is what `forward` returned, for long sequences.
    """
    tokens, heads = q.shape[:2]
    n = len(starts) - 1
    d_q, d_k, *d_values = everything = [x.new_empty(x.shape) for x in (q, k, *values[:wanted])]
    if n == 0:
        return [x.zero_() for x in everything]
    q, k, *values = dense_rows([q, k, *values])
    gradients = dense_rows(gradients)
    inputs = (q, k, *pad_to_three(values))
    d_three = pad_to_three(d_values or [d_q])
    steps = strides(*inputs, *pad_to_three(gradients))
    with torch.cuda.device_of(q):
        if is_short(q, values, longest):
            for tile in short_tiles(longest):
                counts = (n, tokens, heads, tile.shortest)
                short.backward_kernel[(n * heads,)](
                    *(*inputs, *pad_to_three(gradients), d_q, d_k, *d_three),
                    *(starts, *counts, scale, *steps),
                    **sizes(q, values),
                    WANTED=wanted,
                    S=tile.size,
                    CLEAR=tile.shortest == 0,
                    num_warps=tile.warps,
                )
            return everything
        *outputs, sums = results
        means = torch.empty_like(sums)
        blocking = long_blocks(q, values)
        rows, columns = blocking.queries
        blocks = -(-longest // rows)
        long.backward_queries_kernel[(n * blocks * heads,)](
            *(*inputs, *pad_to_three(outputs), *pad_to_three(gradients), d_q, sums, means),
            *(starts, n, blocks, tokens, heads, scale, *steps),
            **sizes(q, values),
            R=rows,
            C=columns,
            num_warps=blocking.warps,
            num_stages=2,
        )
        rows, columns = blocking.keys
        blocks = -(-longest // columns)
        long.backward_keys_kernel[(n * blocks * heads,)](
            *(*inputs, *pad_to_three(gradients), d_k, *d_three, sums, means),
            *(starts, n, blocks, tokens, heads, scale, *steps),
            **sizes(q, values),
            WANTED=wanted,
            R=rows,
            C=columns,
            num_warps=blocking.warps,
            num_stages=2,
        )
    return everything
