# mypy: ignore-errors
# The body of a kernel is Triton's language: no types.
"""Attention of short sequences.

One program computes one head of one sequence, with all tokens in one tile, so that the softmax
takes one pass and the backward needs nothing but the inputs. __init__.py lists the symbols.
"""

from tape_arith.models.kernels.tiles import (
    causal_scores,
    clear,
    inline,
    kernel,
    place,
    product,
    read,
    row_max,
    row_sum,
    tl,
    write,
)


# fmt: off
@inline
def softmax(q, k, scale, bias, head, side, length, S: tl.constexpr):
    """Compute the causal weights, [S, S], and log2 of each softmax sum, [S].

    Rows beyond the sequence's end are meaningless but finite; they are multiplied by zeros or never
    written.
    """
    tokens = tl.arange(0, S)
    scores = causal_scores(q, k, scale, bias, head, tokens, tokens, side, length)
    most = row_max(scores)
    powers = tl.exp2(scores - most[:, None])
    total = row_sum(powers)
    return powers / total[:, None], most + tl.log2(total)


@kernel
def forward_kernel(
    q, k, v1, v2, v3, o1, o2, o3, bias, side, starts, n, tokens, heads, shortest, scale,
    q_t, q_h, k_t, k_h, v1_t, v1_h, v2_t, v2_h, v3_t, v3_h,
    N: tl.constexpr, K: tl.constexpr, K2: tl.constexpr, V: tl.constexpr, V2: tl.constexpr,
    S: tl.constexpr, CLEAR: tl.constexpr,
):
    """Compute the outputs o* of the sequences of `shortest` to S tokens."""
    v, v_t, v_h, o = (v1, v2, v3), (v1_t, v2_t, v3_t), (v1_h, v2_h, v3_h), (o1, o2, o3)
    sequence = tl.program_id(0) // heads
    head = tl.program_id(0) % heads
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    rows = tl.arange(0, S)
    # Empty sequences fill up a pack.
    if (length >= shortest) & (length <= S) & (length > 0):
        q_tile = read(q, first, head, q_t, q_h, rows, length, K, K2)
        k_tile = read(k, first, head, k_t, k_h, rows, length, K, K2)
        weights, _ = softmax(q_tile, k_tile, scale, bias, head, side, length, S)
        weights = weights.to(q_tile.dtype)
        for i in tl.static_range(N):
            v_tile = read(v[i], first, head, v_t[i], v_h[i], rows, length, V, V2)
            mixed = product(weights, v_tile.to(weights.dtype))
            write(o[i], first, head, heads, rows, length, mixed, V, V2)
    if CLEAR:
        for i in tl.static_range(N):
            clear(o[i], tl.load(starts + n), tokens, sequence, n, head, heads, S, V, V2)


@kernel
def backward_kernel(
    q, k, v1, v2, v3, g1, g2, g3, d_q, d_k, d_v1, d_v2, d_v3, log_sums, mean_gradients,
    bias, side, starts, n, tokens, heads, shortest, scale,
    q_t, q_h, k_t, k_h, v1_t, v1_h, v2_t, v2_h, v3_t, v3_h, g1_t, g1_h, g2_t, g2_h, g3_t, g3_h,
    N: tl.constexpr, WANTED: tl.constexpr, K: tl.constexpr, K2: tl.constexpr, V: tl.constexpr,
    V2: tl.constexpr, S: tl.constexpr, CLEAR: tl.constexpr,
):
    """Compute gradients d_* from those of the outputs, g*; d_v* for the first WANTED values.

    Also, unless they are None, log_sums and mean_gradients [H, T], as the kernels of long sequences
    have them.
    """
    v, v_t, v_h, d_v = (v1, v2, v3), (v1_t, v2_t, v3_t), (v1_h, v2_h, v3_h), (d_v1, d_v2, d_v3)
    g, g_t, g_h = (g1, g2, g3), (g1_t, g2_t, g3_t), (g1_h, g2_h, g3_h)
    sequence = tl.program_id(0) // heads
    head = tl.program_id(0) % heads
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    rows = tl.arange(0, S)
    if (length >= shortest) & (length <= S) & (length > 0):
        q_tile = read(q, first, head, q_t, q_h, rows, length, K, K2)
        k_tile = read(k, first, head, k_t, k_h, rows, length, K, K2)
        weights, log_sum = softmax(q_tile, k_tile, scale, bias, head, side, length, S)
        for i in tl.static_range(WANTED):
            g_tile = read(g[i], first, head, g_t[i], g_h[i], rows, length, V, V2)
            g_tile = g_tile.to(q_tile.dtype)
            total = product(tl.trans(weights.to(q_tile.dtype)), g_tile)
            write(d_v[i], first, head, heads, rows, length, total, V, V2)
        d_weights = tl.full((S, S), 0.0, tl.float32)
        for i in tl.static_range(N):
            g_tile = read(g[i], first, head, g_t[i], g_h[i], rows, length, V, V2)
            g_tile = g_tile.to(q_tile.dtype)
            v_tile = read(v[i], first, head, v_t[i], v_h[i], rows, length, V, V2)
            v_tile = tl.trans(v_tile.to(q_tile.dtype))
            d_weights = product(g_tile, v_tile, d_weights)
        mean = row_sum(weights * d_weights)
        if log_sums is not None:
            at = place(log_sums, first, head, 1, tokens) + rows
            tl.store(at, log_sum, mask=rows < length)
            at = place(mean_gradients, first, head, 1, tokens) + rows
            tl.store(at, mean, mask=rows < length)
        d_scores = (weights * (d_weights - mean[:, None]) * scale).to(q_tile.dtype)
        total = product(d_scores, k_tile)
        write(d_q, first, head, heads, rows, length, total, K, K2)
        total = product(tl.trans(d_scores), q_tile)
        write(d_k, first, head, heads, rows, length, total, K, K2)
    if CLEAR:
        tail = tl.load(starts + n)
        clear(d_q, tail, tokens, sequence, n, head, heads, S, K, K2)
        clear(d_k, tail, tokens, sequence, n, head, heads, S, K, K2)
        for i in tl.static_range(WANTED):
            clear(d_v[i], tail, tokens, sequence, n, head, heads, S, V, V2)
# fmt: on
