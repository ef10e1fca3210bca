"""Causal attention of packed sequences, one softmax for up to three values, as operators of torch.

This module chooses a kernel and its tile sizes, and launches it. The sizes follow the compiler's
report for sm_90: no register is spilled, bfloat16 uses Hopper's wide products (wgmma), and, where
that costs nothing, shared memory also suffices on smaller GPUs.

Legend: T tokens of all sequences, n sequences, H heads, K head dim, V value width.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.models.kernels import WIDEST, bias_gradient, long, short

BIAS_PROGRAMS = 512
"""About how many programs sum the gradient of a bias; the same on every GPU, as results must be."""
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def multi_value_attention(
    q: Tensor,
    k: Tensor,
    values: Sequence[Tensor],
    starts: Tensor,
    longest: int,
    scale: float,
    bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Compute softmax(scale q k^T + bias) over the keys up to each query, times each of `values`.

    q and k [T, H, K] have one type, float32 or a 16-bit one. The one to three values [T, H, V] have
    any of these types and may be views with broadcast axes. starts int32 [n + 1] are cumulative
    lengths from 0; no sequence is longer than `longest`. All sequences share the bias [H, S, S],
    for a query and a key at two places of a sequence, S `longest` or more; it may be -inf, but not
    for a token's own key. Returns one [T, H, V] for each value, in its type. Products have q's
    type, summed in float32. Tokens from starts[n] on are in no sequence: outputs and gradients are
    0 there. Results are deterministic. K and V are 128 at most.

    Raises ValueError for other inputs.
    """
    if not 1 <= len(values) <= 3:
        raise ValueError(f"one to three values, not {len(values)}")
    if q.dtype != k.dtype or any(x.dtype not in TYPES for x in (q, *values)):
        raise ValueError("q and k must be of one type, and all float32, bfloat16 or float16")
    if len({x.shape[:2] for x in (q, k, *values)}) > 1:
        raise ValueError("q, k and the values must have the same tokens and heads")
    widths = [v.shape[-1] for v in values]
    widest = max(widths)
    if max(q.shape[-1], widest) > WIDEST:
        raise ValueError(f"heads and values are at most {WIDEST} wide")
    if bias is not None:
        heads, side = q.shape[1], bias.shape[-1]
        if bias.shape != (heads, side, side) or side < longest:
            raise ValueError(f"the bias is [{heads}, S, S] with S >= {longest}, for each head")
        padding = -side % 16  # see `pairs` of tiles.py
        bias = F.pad(bias, (0, padding, 0, padding)).contiguous()
    padded = [v if v.shape[-1] == widest else F.pad(v, (0, widest - v.shape[-1])) for v in values]
    results = attend(q, k, padded, starts, longest, scale, bias)
    outputs = zip(results, widths, strict=False)
    return tuple(x if width == widest else x[..., :width] for x, width in outputs)


class Tile(NamedTuple):
    """A launch for sequences of `shortest` to `size` tokens, each in one tile of `size`."""

    shortest: int
    size: int
    warps: int


class Blocks(NamedTuple):
    """The tile (queries, keys) of each kernel: of long sequences, and of the bias's gradient."""

    forward: tuple[int, int]
    queries: tuple[int, int]
    keys: tuple[int, int]
    bias: tuple[int, int]
    warps: int


def is_short(q: Tensor, values: Sequence[Tensor], longest: int) -> bool:
    """Tell whether one tile can hold the longest sequence."""
    if q.dtype == torch.float32:
        return longest <= 32  # no tensor cores, so products take many registers
    return longest <= (128 if max(q.shape[-1], values[0].shape[-1]) <= 64 else 64)


def short_tiles(longest: int) -> list[Tile]:
    """Plan one launch, or two if sequences may have more than 64 tokens.

    With two, shorter sequences do not wait for a processor with room for a tile of 128. A program
    ends at once if its sequence belongs to the other launch.
    """
    if longest <= 64:
        return [Tile(0, _power_of_two(longest), 4)]
    return [Tile(0, 64, 4), Tile(65, 128, 8)]


def long_blocks(q: Tensor, values: Sequence[Tensor]) -> Blocks:
    if q.dtype == torch.float32:
        return Blocks((32, 32), (32, 32), (32, 32), (32, 32), 8)
    if max(q.shape[-1], values[0].shape[-1]) <= 64:
        return Blocks((64, 64), (64, 32), (32, 64), (64, 64), 4)
    return Blocks((64, 32), (64, 32), (32, 64), (64, 64), 8)


def _power_of_two(size: int) -> int:
    """Round `size` up to a power of two, 16 at least, as tiles need."""
    return max(16, 1 << (size - 1).bit_length())


def _three(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Fill up with the first tensor, because a kernel takes three and reads only the real ones."""
    return [*tensors, *[tensors[0]] * (3 - len(tensors))]


def _strides(*tensors: Tensor) -> list[int]:
    """List the strides of tokens and heads."""
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _square(bias: Tensor | None) -> tuple[Tensor | None, int]:
    """Return the bias, and the length of its side."""
    return bias, 0 if bias is None else bias.shape[-1]


def _dense_rows(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy the tensors whose last axis is not contiguous."""
    return [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors]


def _sizes(q: Tensor, values: Sequence[Tensor]) -> dict[str, int]:
    k, v = q.shape[-1], values[0].shape[-1]
    return {"N": len(values), "K": k, "K2": _power_of_two(k), "V": v, "V2": _power_of_two(v)}


@torch.library.custom_op("tape_arith::multi_value_attention", mutates_args=())
def attend(
    q: Tensor,
    k: Tensor,
    values: list[Tensor],
    starts: Tensor,
    longest: int,
    scale: float,
    bias: Tensor | None,
) -> list[Tensor]:
    """Compute the outputs [T, H, V]; for long sequences also log2 of the softmax's sums, [H, T]."""
    tokens, heads = q.shape[:2]
    n = len(starts) - 1
    outputs = [v.new_empty(v.shape) for v in values]
    one_tile = is_short(q, values, longest)
    log_sums = [] if one_tile else [q.new_zeros((heads, tokens), dtype=torch.float32)]
    if n == 0:
        return [*(output.zero_() for output in outputs), *log_sums]
    q, k, *values = _dense_rows([q, k, *values])
    tensors, sizes = (q, k, *_three(values), *_three(outputs)), _sizes(q, values)
    steps, square = _strides(q, k, *_three(values)), _square(bias)
    with torch.cuda.device_of(q):
        if one_tile:
            for shortest, size, warps in short_tiles(longest):
                counts = (starts, n, tokens, heads, shortest)
                arguments = (*tensors, *square, *counts, scale, *steps)
                short.forward_kernel[(n * heads,)](
                    *arguments, **sizes, S=size, CLEAR=shortest == 0, num_warps=warps
                )
        else:
            (rows, columns), *_, warps = long_blocks(q, values)
            blocks = -(-longest // rows)
            counts = (starts, n, blocks, tokens, heads)
            arguments = (*tensors, *log_sums, *square, *counts, scale, *steps)
            long.forward_kernel[(n * blocks * heads,)](
                *arguments, **sizes, R=rows, C=columns, num_warps=warps, num_stages=2
            )
    return [*outputs, *log_sums]


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
    bias: Tensor | None,
    wanted: int,
    bias_wanted: bool,
) -> list[Tensor]:
    """Compute the gradients of q, k, the first `wanted` values and, if wanted, the bias.

    `gradients` are those of the outputs; `results` is the return value of `attend`, or empty for
    short sequences.
    """
    tokens, heads = q.shape[:2]
    n = len(starts) - 1
    wide = [q, k, *values[:wanted]]
    if n == 0:
        biases = [] if bias is None or not bias_wanted else [bias]
        return [x.new_zeros(x.shape) for x in (*wide, *biases)]
    d_q, d_k, *d_values = everything = [x.new_empty(x.shape) for x in wide]
    q, k, *values = _dense_rows([q, k, *values])
    inputs, g_three = (q, k, *_three(values)), _three(_dense_rows(gradients))
    d_three, sizes = _three(d_values or [d_q]), _sizes(q, values)
    steps, square = _strides(*inputs, *g_three), _square(bias)
    blocking = long_blocks(q, values)
    options = {"num_warps": blocking.warps, "num_stages": 2}
    one_tile = is_short(q, values, longest)
    log_sums = mean_gradients = None
    if bias_wanted or not one_tile:
        mean_gradients = q.new_empty((heads, tokens), dtype=torch.float32)
        log_sums = torch.empty_like(mean_gradients) if one_tile else results[-1]
    with torch.cuda.device_of(q):
        if one_tile:
            for shortest, size, warps in short_tiles(longest):
                short.backward_kernel[(n * heads,)](
                    *(*inputs, *g_three, d_q, d_k, *d_three, log_sums, mean_gradients, *square),
                    *(starts, n, tokens, heads, shortest, scale, *steps),
                    **(sizes | {"WANTED": wanted, "S": size, "CLEAR": shortest == 0}),
                    num_warps=warps,
                )
        else:
            rows, columns = blocking.queries
            blocks = -(-longest // rows)
            long.backward_queries_kernel[(n * blocks * heads,)](
                *(*inputs, *_three(results[:-1]), *g_three, d_q, log_sums, mean_gradients, *square),
                *(starts, n, blocks, tokens, heads, scale, *steps),
                **(sizes | {"R": rows, "C": columns} | options),
            )
            rows, columns = blocking.keys
            blocks = -(-longest // columns)
            long.backward_keys_kernel[(n * blocks * heads,)](
                *(*inputs, *g_three, d_k, *d_three, log_sums, mean_gradients, *square),
                *(starts, n, blocks, tokens, heads, scale, *steps),
                **(sizes | {"WANTED": wanted, "R": rows, "C": columns} | options),
            )
        if bias is not None and bias_wanted:
            rows, columns = blocking.bias
            _, side = square
            tiles = -(-side // rows), -(-side // columns)
            programs = min(n, max(1, BIAS_PROGRAMS // (heads * tiles[0] * tiles[1])))
            sums = bias.new_empty((programs, *bias.shape), dtype=torch.float32)
            bias_gradient.backward_bias_kernel[(programs * heads, *tiles)](
                *(*inputs, *g_three, sums, log_sums, mean_gradients, *square),
                *(starts, n, tokens, heads, scale, *steps),
                **(sizes | {"R": rows, "C": columns} | options),
            )
            everything.append(sums.sum(0).to(bias.dtype))
    return everything


@attend.register_fake
def _(
    q: Tensor, k: Tensor, values: list[Tensor], starts: Tensor, longest: int, *rest: Any
) -> list[Tensor]:
    outputs = [v.new_empty(v.shape) for v in values]
    if is_short(q, values, longest):
        return outputs
    return [*outputs, q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)]


@attend_backward.register_fake
def _(
    gradients: list[Tensor], q: Tensor, k: Tensor, values: list[Tensor], *rest: Any
) -> list[Tensor]:
    *_, bias, wanted, bias_wanted = rest
    inputs = [q, k, *values[:wanted], *([bias] if bias_wanted else [])]
    return [x.new_empty(x.shape) for x in inputs]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    q, k, values, starts, ctx.longest, ctx.scale, bias = inputs
    ctx.num_values = len(values)
    results = output if len(output) > len(values) else []
    ctx.save_for_backward(q, k, bias, starts, *values, *results)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Any, ...]:
    q, k, bias, starts, *rest = ctx.saved_tensors
    values, results = rest[: ctx.num_values], rest[ctx.num_values :]
    *_, needed, _, _, _, bias_wanted = ctx.needs_input_grad
    wanted = max((i + 1 for i, needs in enumerate(needed) if needs), default=0)
    filled = [
        torch.zeros_like(v) if g is None else g for g, v in zip(gradients, values, strict=False)
    ]
    d_q, d_k, *d_rest = attend_backward(
        filled, q, k, values, results, starts, ctx.longest, ctx.scale, bias, wanted, bias_wanted
    )
    d_values = [*d_rest[:wanted], *[None] * (len(values) - wanted)]
    return d_q, d_k, d_values, None, None, None, d_rest[-1] if bias_wanted else None


attend.register_autograd(_backward, setup_context=_save)
