# mypy: ignore-errors
# The body of a kernel is Triton's language: no types.
"""The gradient of a bias that all sequences share: a sum over sequences, without atomics.

One program computes one tile of pairs of one head, for every P-th sequence, and adds up in
registers; torch then adds the P sums. It recomputes the weights from the logarithms of the
softmax's sums, as the kernels of long sequences do. __init__.py lists the symbols.
"""

from tape_arith.models.kernels.tiles import (
    LOG2_E,
    bound,
    causal,
    kernel,
    pairs,
    place,
    product,
    read,
    tl,
)


# fmt: off
@kernel
def backward_bias_kernel(
    q, k, v1, v2, v3, g1, g2, g3, d_bias, log_sums, mean_gradients,
    bias, side, starts, n, tokens, heads, scale,
    q_t, q_h, k_t, k_h, v1_t, v1_h, v2_t, v2_h, v3_t, v3_h, g1_t, g1_h, g2_t, g2_h, g3_t, g3_h,
    N: tl.constexpr, K: tl.constexpr, K2: tl.constexpr, V: tl.constexpr, V2: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr,
):
    """Compute R x C pairs of d_bias [P, H, side, side] from the gradients g* of the outputs."""
    v, v_t, v_h = (v1, v2, v3), (v1_t, v2_t, v3_t), (v1_h, v2_h, v3_h)
    g, g_t, g_h = (g1, g2, g3), (g1_t, g2_t, g3_t), (g1_h, g2_h, g3_h)
    program, programs = tl.program_id(0) // heads, tl.num_programs(0) // heads
    head = tl.program_id(0) % heads
    query, key = tl.program_id(1) * R, tl.program_id(2) * C
    rows, columns = tl.arange(0, R), tl.arange(0, C)
    queries, keys = query + rows, key + columns
    bias_at, inside = pairs(bias, head, queries[:, None], keys[None, :], side, side)
    bias_tile = tl.load(bias_at, mask=inside, other=0.0).to(tl.float32) * LOG2_E
    total = tl.full((R, C), 0.0, tl.float32)
    # Where all keys are later than all queries the sum stays 0.
    end = tl.where(key < query + R, n, 0)
    for sequence in range(bound(program), bound(end), bound(programs)):
        first = tl.load(starts + sequence)
        length = tl.load(starts + sequence + 1) - first
        count = length - query
        if count > 0:
            q_tile = read(q, first + query, head, q_t, q_h, rows, count, K, K2)
            k_tile = read(k, first + key, head, k_t, k_h, columns, length - key, K, K2)
            # With a sum of infinity the weights of queries past the end are 0.
            at = place(log_sums, first + query, head, 1, tokens) + rows
            log_sum = tl.load(at, mask=queries < length, other=float("inf"))
            at = place(mean_gradients, first + query, head, 1, tokens) + rows
            mean = tl.load(at, mask=queries < length, other=0.0)
            scores = product(q_tile, tl.trans(k_tile)) * (scale * LOG2_E) + bias_tile
            weights = tl.exp2(causal(scores, queries, keys) - log_sum[:, None])
            d_weights = tl.full((R, C), 0.0, tl.float32)
            for i in tl.static_range(N):
                g_tile = read(g[i], first + query, head, g_t[i], g_h[i], rows, count, V, V2)
                g_tile = g_tile.to(q_tile.dtype)
                v_tile = read(v[i], first + key, head, v_t[i], v_h[i], columns, length - key, V, V2)
                v_tile = v_tile.to(q_tile.dtype)
                d_weights = product(g_tile, tl.trans(v_tile), d_weights)
            total += weights * (d_weights - mean[:, None])
    sum_at, inside = pairs(d_bias, tl.program_id(0), queries[:, None], keys[None, :], side, side)
    tl.store(sum_at, total, mask=inside)
# fmt: on
