# mypy: ignore-errors
# The body of a kernel is Triton's language: no types.
"""Building blocks of the kernels: places in packed tensors, tiles, the causal mask. Needs Triton.

The decorator compiles a kernel for the GPU, or passes it to Triton's interpreter if
TRITON_INTERPRET=1 was set before this module is imported.

    @kernel    launched from Python
    @inline    called by kernels

Legend: T tokens, H heads, W head dim or value width, W2 is W rounded up to a power of two. A place
is the address of one head's first number at one token.
"""

from functools import partial

import triton
import triton.language as tl
from triton import jit


def _plain(function):  # with keyword arguments it would be no kernel (Triton 3.9)
    return function


INTERPRETED = not isinstance(jit(_plain), triton.JITFunction)
# Triton compiles a variant for integers divisible by 16. These change with every batch, so the
# variants are switched off.
kernel = partial(jit, do_not_specialize=["n", "blocks", "tokens"])
# In an interpreted kernel a plain function does the same in half the time.
inline = _plain if INTERPRETED else jit

LOG2_E = tl.constexpr(1.4426950408889634)
# Less than any score: the first maximum of a softmax. From -inf a block of keys with a bias of -inf
# would subtract -inf from -inf.
LEAST = tl.constexpr(-1e30)


if INTERPRETED:
    # These functions replace what Triton's interpreter lacks (seen in 3.6 to 3.9).

    def bound(x):
        """Return the end of a loop as a number: numpy 2.4 takes no array there (Triton 3.6)."""
        return x.handle.data.item()

    def product(a, b, total=None):
        """Multiply in float32: the interpreter multiplies bfloat16 bits as integers."""
        return tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")

    def row_sum(x):
        """Sum rows without `tl.sum`.

        `tl.sum` stays a GPU function if Triton was imported before TRITON_INTERPRET was set.
        """
        return tl.reduce(x, 1, tl.standard._sum_combine)

    def row_max(x):
        return tl.reduce(x, 1, tl.standard._elementwise_max)

else:

    @inline
    def bound(x):
        return x

    @inline
    def product(a, b, total=None):
        """Compute a b + total, summed in float32; float32 is not rounded to TF32."""
        return tl.dot(a, b, total, input_precision="ieee")

    @inline
    def row_sum(x):
        return tl.sum(x, 1)

    @inline
    def row_max(x):
        return tl.max(x, 1)


@inline
def place(pointer, token, head, token_stride, head_stride):
    """Return an address, computed in 64 bits.

    A fused q, k, v of 800,000 tokens, 16 heads and head dim 64 has more than 2^31 numbers.
    """
    return pointer + token.to(tl.int64) * token_stride + head.to(tl.int64) * head_stride


@inline
def inside(rows, count, W: tl.constexpr, W2: tl.constexpr):
    """Mark the numbers of a tile that are in the tensor."""
    mask = (rows < count)[:, None]
    if W < W2:
        mask = mask & (tl.arange(0, W2) < W)[None, :]
    return mask


@inline
def read(
    tensor, token, head, token_stride, head_stride, rows, count, W: tl.constexpr, W2: tl.constexpr
):  # fmt: skip
    """Load the tile [rows, W2] of a head from `token` on; rows from `count` on are 0."""
    at = place(tensor, token, head, token_stride, head_stride)
    addresses = at + rows[:, None] * token_stride + tl.arange(0, W2)[None, :]
    return tl.load(addresses, mask=inside(rows, count, W, W2), other=0.0)


@inline
def write(out, token, head, heads, rows, count, tile, W: tl.constexpr, W2: tl.constexpr):
    """Store the tile of a head from `token` on in `out` [T, H, W]; skip rows from `count` on."""
    at = place(out, token, head, heads * W, W)
    addresses = at + rows[:, None] * (heads * W) + tl.arange(0, W2)[None, :]
    tl.store(addresses, tile.to(out.dtype.element_ty), mask=inside(rows, count, W, W2))


@inline
def clear(
    out, tail, tokens, program, programs, head, heads,
    S: tl.constexpr, W: tl.constexpr, W2: tl.constexpr,
):  # fmt: skip
    """Write zeros to this program's part of the tokens from `tail` on, which are in no sequence.

    The `programs` of a head share these tokens, so that no whole tensor is filled first.
    """
    size = (tokens - tail + programs - 1) // programs
    first = tail + program * size
    count = tl.minimum(first + size, tokens) - first
    rows = tl.arange(0, S)
    for row in range(0, bound(count), S):
        zeros = tl.full((S, W2), 0.0, tl.float32)
        write(out, first + row, head, heads, rows, count - row, zeros, W, W2)


@inline
def pairs(squares, number, queries, keys, side, count):
    """Return the addresses of pairs in a square of `squares` [..., side, side].

    Also returns a mask of those whose query is below `count`. `queries` and `keys` broadcast to the
    tile. `side` is a multiple of 16, so that the compiler sees that it may take four keys at once.
    """
    at = squares + number.to(tl.int64) * side * side + queries * side + keys
    return at, (queries < count) & (keys < side)


@inline
def biased(scores, bias, head, queries, keys, side, length):
    """Add the bias [H, side, side], unless that is None, to the scores, which are powers of 2.

    It is not added to queries beyond the sequence's `length`, whose powers no sum tames.
    """
    if bias is not None:
        at, inside = pairs(bias, head, queries, keys, side, length)
        scores += tl.load(at, mask=inside, other=0.0).to(tl.float32) * LOG2_E
    return scores


@inline
def causal(scores, queries, keys):
    """Set the scores of keys later than a query to -inf.

    Keys beyond a sequence's end need no mask of their own, because they are later than its queries.
    """
    return tl.where(queries[:, None] >= keys[None, :], scores, float("-inf"))


@inline
def causal_scores(q, k, scale, bias, head, queries, keys, side, length):
    """Compute the scores of a tile of queries and one of keys, bias included, as powers of 2."""
    scores = product(q, tl.trans(k)) * (scale * LOG2_E)
    scores = biased(scores, bias, head, queries[:, None], keys[None, :], side, length)
    return causal(scores, queries, keys)
