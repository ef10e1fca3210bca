# mypy: ignore-errors
# ruff: noqa: RUF005
# The body of a kernel is Triton's language: no types, and no tuple unpacked into another.
"""Attention of sequences of any length.

One program computes one head of a block of tokens and carries the softmax from each block of keys
to the next. The backward recomputes the weights from the logarithms of the softmax's sums. No
program adds to another program's output. __init__.py lists the symbols.
"""

from tape_arith.models.kernels.tiles import (
    LEAST,
    LOG2_E,
    biased,
    bound,
    causal_scores,
    clear,
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
@kernel
def forward_kernel(
    q, k, v1, v2, v3, o1, o2, o3, log_sums, bias, side, starts, n, blocks, tokens, heads, scale,
    q_t, q_h, k_t, k_h, v1_t, v1_h, v2_t, v2_h, v3_t, v3_h,
    N: tl.constexpr, K: tl.constexpr, K2: tl.constexpr, V: tl.constexpr, V2: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr,
):
    """Compute the outputs o* of R queries, and log_sums [H, T], log2 of each softmax sum."""
    v, v_t, v_h, o = (v1, v2, v3), (v1_t, v2_t, v3_t), (v1_h, v2_h, v3_h), (o1, o2, o3)
    head = tl.program_id(0) % heads
    program = tl.program_id(0) // heads
    sequence = program // blocks
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    # The last block has the most keys, so it starts first.
    block = (blocks - 1 - program % blocks) * R
    if block < length:
        rows, columns = tl.arange(0, R), tl.arange(0, C)
        q_tile = read(q, first + block, head, q_t, q_h, rows, length - block, K, K2)
        most = tl.full((R,), LEAST, tl.float32)
        total = tl.full((R,), 0.0, tl.float32)
        mixed = (tl.full((R, V2), 0.0, tl.float32),) * N
        for key in range(0, bound(tl.minimum(block + R, length)), C):
            k_tile = read(k, first + key, head, k_t, k_h, columns, length - key, K, K2)
            queries, keys = block + rows, key + columns
            scores = causal_scores(q_tile, k_tile, scale, bias, head, queries, keys, side, length)
            larger = tl.maximum(most, row_max(scores))
            shrink = tl.exp2(most - larger)
            powers = tl.exp2(scores - larger[:, None])
            most = larger
            total = total * shrink + row_sum(powers)
            powers = powers.to(q_tile.dtype)
            grown = ()
            for i in tl.static_range(N):
                v_tile = read(v[i], first + key, head, v_t[i], v_h[i], columns, length - key, V, V2)
                v_tile = v_tile.to(q_tile.dtype)
                scaled = mixed[i] * shrink[:, None]
                grown = grown + (product(powers, v_tile, scaled),)
            mixed = grown
        for i in tl.static_range(N):
            output = mixed[i] / total[:, None]
            write(o[i], first + block, head, heads, rows, length - block, output, V, V2)
        sums_at = place(log_sums, first + block, head, 1, tokens)
        tl.store(sums_at + rows, most + tl.log2(total), mask=rows < length - block)
    for i in tl.static_range(N):
        clear(o[i], tl.load(starts + n), tokens, program, n * blocks, head, heads, R, V, V2)


@kernel
def backward_queries_kernel(
    q, k, v1, v2, v3, o1, o2, o3, g1, g2, g3, d_q, log_sums, mean_gradients,
    bias, side, starts, n, blocks, tokens, heads, scale,
    q_t, q_h, k_t, k_h, v1_t, v1_h, v2_t, v2_h, v3_t, v3_h, g1_t, g1_h, g2_t, g2_h, g3_t, g3_h,
    N: tl.constexpr, K: tl.constexpr, K2: tl.constexpr, V: tl.constexpr, V2: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr,
):
    """Compute d_q of R queries from g*, the gradients of the outputs o*, and mean_gradients [H, T].

    mean_gradients is the weighted mean of the gradients of each query's weights: the sum over o g.
    """
    v, v_t, v_h, o = (v1, v2, v3), (v1_t, v2_t, v3_t), (v1_h, v2_h, v3_h), (o1, o2, o3)
    g, g_t, g_h = (g1, g2, g3), (g1_t, g2_t, g3_t), (g1_h, g2_h, g3_h)
    head = tl.program_id(0) % heads
    program = tl.program_id(0) // heads
    sequence = program // blocks
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    block = (blocks - 1 - program % blocks) * R
    if block < length:
        rows, columns = tl.arange(0, R), tl.arange(0, C)
        q_tile = read(q, first + block, head, q_t, q_h, rows, length - block, K, K2)
        mean = tl.full((R,), 0.0, tl.float32)
        g_tiles = ()
        for i in tl.static_range(N):
            g_tile = read(g[i], first + block, head, g_t[i], g_h[i], rows, length - block, V, V2)
            g_tile = g_tile.to(q_tile.dtype)
            o_tile = read(o[i], first + block, head, heads * V, V, rows, length - block, V, V2)
            mean = mean + row_sum(o_tile.to(tl.float32) * g_tile.to(tl.float32))
            g_tiles = g_tiles + (g_tile,)
        at = place(log_sums, first + block, head, 1, tokens) + rows
        log_sum = tl.load(at, mask=rows < length - block, other=0.0)
        at = place(mean_gradients, first + block, head, 1, tokens) + rows
        tl.store(at, mean, mask=rows < length - block)
        d_q_tile = tl.full((R, K2), 0.0, tl.float32)
        for key in range(0, bound(tl.minimum(block + R, length)), C):
            k_tile = read(k, first + key, head, k_t, k_h, columns, length - key, K, K2)
            queries, keys = block + rows, key + columns
            scores = causal_scores(q_tile, k_tile, scale, bias, head, queries, keys, side, length)
            weights = tl.exp2(scores - log_sum[:, None])
            d_weights = tl.full((R, C), 0.0, tl.float32)
            for i in tl.static_range(N):
                v_tile = read(v[i], first + key, head, v_t[i], v_h[i], columns, length - key, V, V2)
                v_tile = v_tile.to(q_tile.dtype)
                d_weights = product(g_tiles[i], tl.trans(v_tile), d_weights)
            d_scores = (weights * (d_weights - mean[:, None])).to(q_tile.dtype)
            d_q_tile = product(d_scores, k_tile, d_q_tile)
        write(d_q, first + block, head, heads, rows, length - block, d_q_tile * scale, K, K2)
    clear(d_q, tl.load(starts + n), tokens, program, n * blocks, head, heads, R, K, K2)


@kernel
def backward_keys_kernel(
    q, k, v1, v2, v3, g1, g2, g3, d_k, d_v1, d_v2, d_v3, log_sums, mean_gradients,
    bias, side, starts, n, blocks, tokens, heads, scale,
    q_t, q_h, k_t, k_h, v1_t, v1_h, v2_t, v2_h, v3_t, v3_h, g1_t, g1_h, g2_t, g2_h, g3_t, g3_h,
    N: tl.constexpr, WANTED: tl.constexpr, K: tl.constexpr, K2: tl.constexpr, V: tl.constexpr,
    V2: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):
    """Compute d_k and d_v* (the first WANTED) of C keys. Score tiles are transposed: [C, R]."""
    v, v_t, v_h, d_v = (v1, v2, v3), (v1_t, v2_t, v3_t), (v1_h, v2_h, v3_h), (d_v1, d_v2, d_v3)
    g, g_t, g_h = (g1, g2, g3), (g1_t, g2_t, g3_t), (g1_h, g2_h, g3_h)
    head = tl.program_id(0) % heads
    program = tl.program_id(0) // heads
    sequence = program // blocks
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    block = program % blocks * C
    if block < length:
        rows, columns = tl.arange(0, R), tl.arange(0, C)
        k_tile = read(k, first + block, head, k_t, k_h, columns, length - block, K, K2)
        v_tiles = ()
        for i in tl.static_range(N):
            v_tile = read(v[i], first + block, head, v_t[i], v_h[i], columns, length - block, V, V2)
            v_tiles = v_tiles + (v_tile.to(k_tile.dtype),)
        d_k_tile = tl.full((C, K2), 0.0, tl.float32)
        d_v_tiles = (tl.full((C, V2), 0.0, tl.float32),) * WANTED
        for query in range(bound(block // R * R), bound(length), R):
            count = length - query
            q_tile = read(q, first + query, head, q_t, q_h, rows, count, K, K2)
            at = place(log_sums, first + query, head, 1, tokens) + rows
            log_sum = tl.load(at, mask=rows < count, other=0.0)
            at = place(mean_gradients, first + query, head, 1, tokens) + rows
            mean = tl.load(at, mask=rows < count, other=0.0)
            scores = product(k_tile, tl.trans(q_tile)) * (scale * LOG2_E)
            queries, keys = query + rows[None, :], block + columns[:, None]
            scores = biased(scores, bias, head, queries, keys, side, length)
            seen = query + rows[None, :] >= block + columns[:, None]
            scores = tl.where(seen, scores, float("-inf"))
            weights = tl.exp2(scores - log_sum[None, :])
            narrow = weights.to(k_tile.dtype)
            d_weights = tl.full((C, R), 0.0, tl.float32)
            grown = ()
            for i in tl.static_range(N):
                g_tile = read(g[i], first + query, head, g_t[i], g_h[i], rows, count, V, V2)
                g_tile = g_tile.to(k_tile.dtype)
                d_weights = product(v_tiles[i], tl.trans(g_tile), d_weights)
                if i < WANTED:
                    d_v_tile = product(narrow, g_tile, d_v_tiles[i])
                    grown = grown + (d_v_tile,)
            d_v_tiles = grown
            d_scores = (weights * (d_weights - mean[None, :])).to(k_tile.dtype)
            d_k_tile = product(d_scores, q_tile, d_k_tile)
        write(d_k, first + block, head, heads, columns, length - block, d_k_tile * scale, K, K2)
        for i in tl.static_range(WANTED):
            write(d_v[i], first + block, head, heads, columns, length - block, d_v_tiles[i], V, V2)
    tail = tl.load(starts + n)
    clear(d_k, tail, tokens, program, n * blocks, head, heads, C, K, K2)
    for i in tl.static_range(WANTED):
        clear(d_v[i], tail, tokens, program, n * blocks, head, heads, C, V, V2)
# fmt: on
