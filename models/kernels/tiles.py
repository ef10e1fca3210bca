# mypy: ignore-errors
# The body of a kernel is Triton's language: no types.
"""Building blocks of the kernels: places in packed tensors, tiles, the causal mask. Needs Triton.

A kernel becomes a program of the GPU, or one of Triton's interpreter, at its decorator: set
TRITON_INTERPRET=1 for the interpreter before this module is imported.

    @kernel    launched from Python
    @inline    called by kernels

Legend: T tokens, H heads, W the width of a row (head dim or value width), W2 that rounded up to a
power of two. A place is the address of one head's row at one token.
"""

from functools import partial

import triton
import triton.language as tl
from triton import jit


def _plain(function, **options):
    return function


INTERPRETED = not isinstance(jit(_plain), triton.JITFunction)
# Counts that differ from batch to batch: not worth a program of their own for multiples of 16.
kernel = partial(jit, do_not_specialize=["n", "blocks", "tokens"])
# Within an interpreted kernel a plain function does the same, in half the time.
inline = _plain if INTERPRETED else jit

LOG2_E = tl.constexpr(1.4426950408889634)


if INTERPRETED:
    # What Triton's interpreter does not do (seen from 3.6 to 3.9).

    def bound(x):
        """Return the end of a loop: numpy 2.4 takes no array of one number there (3.6)."""
        return x.handle.data.item()

    def product(a, b, total=None):
        """The interpreter multiplies the bits of bfloat16 as if they were integers."""
        return tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")

    def row_sum(x):
        """`tl.sum` is for the GPU for good where Triton was imported before the interpreter was
        asked for."""
        return tl.reduce(x, 1, tl.standard._sum_combine)

    def row_max(x):
        return tl.reduce(x, 1, tl.standard._elementwise_max)

else:

    @inline
    def bound(x):
        return x

    @inline
    def product(a, b, total=None):
        """a b + total, summed in float32; float32 is not rounded to TF32."""
        return tl.dot(a, b, total, input_precision="ieee")

    @inline
    def row_sum(x):
        return tl.sum(x, 1)

    @inline
    def row_max(x):
        return tl.max(x, 1)


@inline
def place(pointer, token, head, token_stride, head_stride):
    """Return an address in 64 bits: 38,912 tokens x 16 heads x 64 are 2^25 numbers, and a fused
    q, k, v of some twenty times as many tokens is beyond 32 bits."""
    return pointer + token.to(tl.int64) * token_stride + head.to(tl.int64) * head_stride


@inline
def inside(rows, count, W: tl.constexpr, W2: tl.constexpr):
    """Mask the numbers of a tile that lie in the tensor."""
    mask = (rows < count)[:, None]
    if W < W2:
        mask = mask & (tl.arange(0, W2) < W)[None, :]
    return mask


@inline
def read(at, rows, stride, count, W: tl.constexpr, W2: tl.constexpr):
    """The tile [rows, W2] after the place `at`; 0 from row `count` on."""
    tile = at + rows[:, None] * stride + tl.arange(0, W2)[None, :]
    return tl.load(tile, mask=inside(rows, count, W, W2), other=0.0)


@inline
def write(at, rows, stride, count, tile, W: tl.constexpr, W2: tl.constexpr):
    """A tile in the type of what `at` points to; nothing from row `count` on."""
    to = at + rows[:, None] * stride + tl.arange(0, W2)[None, :]
    tl.store(to, tile.to(at.dtype.element_ty), mask=inside(rows, count, W, W2))


@inline
def clear(
    out, tail, tokens, share, shares, head, heads,
    S: tl.constexpr, W: tl.constexpr, W2: tl.constexpr,
):  # fmt: skip
    """Zeros in one of `shares` shares of the tokens from `tail` on, which no sequence holds. The
    programs share them out, so that nobody has to fill a whole tensor with zeros first."""
    size = (tokens - tail + shares - 1) // shares
    first = tail + share * size
    count = tl.minimum(first + size, tokens) - first
    rows = tl.arange(0, S)
    for row in range(0, bound(count), S):
        at = place(out, first + row, head, heads * W, W)
        write(at, rows, heads * W, count - row, tl.full((S, W2), 0.0, tl.float32), W, W2)


@inline
def causal(scores, queries, keys):
    """Scores in which no query sees a later key. Keys beyond a sequence's end need no mask of
    their own: they are later than its queries."""
    return tl.where(queries[:, None] >= keys[None, :], scores, float("-inf"))
