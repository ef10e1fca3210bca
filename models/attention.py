"""Causal attention over token-major tensors.

Legend: B batch, T tokens, H heads, K head dim, V value width.
"""

import torch
from torch import Tensor


def scaled_scores(q: Tensor, k: Tensor, *, scale: float | None = None) -> Tensor:
    """Compute scale q k^T, future keys included: [B, H, T, T], in float32 or wider.

    q, k [B, T, H, K]; `scale` defaults to K^-1/2. The product is taken in the type of q and k.
    """
    scale = scale or q.shape[-1] ** -0.5
    scores = (q * scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def causal_softmax(scores: Tensor) -> Tensor:
    """Take the softmax of scores [B, H, T, T] over the keys up to each query."""
    tokens = scores.shape[-1]
    future = torch.full((tokens, tokens), float("-inf"), dtype=scores.dtype, device=scores.device)
    return (scores + future.triu(1)).softmax(-1)


def gather_values(weights: Tensor, values: Tensor) -> Tensor:
    """Multiply weights [B, H, T, T] and values [B or 1, T, H or 1, V]: [B, T, H, V].

    The result has the type of the values.
    """
    return (weights.to(values.dtype) @ values.transpose(1, 2)).transpose(1, 2)


def attention_weights(
    q: Tensor, k: Tensor, *, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """Compute softmax(scale q k^T + bias) over the keys up to each query, [B, H, T, T].

    q, k [B, T, H, K]; bias [H, T, T] or [B, H, T, T], added after scaling and before the mask.
    The softmax is taken in float32 or wider: a bfloat16 step is 0.06 at 12.
    """
    scores = scaled_scores(q, k, scale=scale)
    return causal_softmax(scores if bias is None else scores + bias)


def attention(
    q: Tensor,
    k: Tensor,
    values: tuple[Tensor, ...],
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Apply one causal attention map to each of `values`.

    q, k [B, T, H, K]; each value [B or 1, T, H or 1, V] (V may differ from K); returns one
    [B, T, H, V] for each. `scale` defaults to K^-1/2. Written as plain products: at these lengths
    the fused kernel of a CPU is several times slower.
    """
    weights = attention_weights(q, k, scale=scale, bias=bias)
    return tuple(gather_values(weights, v) for v in values)
