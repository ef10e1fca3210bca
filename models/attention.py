"""Causal attention over token-major tensors.

Legend: B batch, T tokens, H heads, K head dim, V value width.
"""

import torch
from torch import Tensor


def attention_weights(q: Tensor, k: Tensor, *, scale: float, bias: Tensor | None = None) -> Tensor:
    """softmax(scale q k^T + bias) over the keys up to each query, [B, H, T, T].

    q, k [B, T, H, K]; bias [H, T, T] or [B, H, T, T], added after scaling and before the mask.
    The softmax is taken in float32 or wider: a bfloat16 step is 0.06 at 12.
    """
    scores = (q * scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if bias is not None:
        scores = scores + bias
    tokens = q.shape[1]
    future = torch.full((tokens, tokens), float("-inf"), dtype=scores.dtype, device=q.device)
    return (scores + future.triu(1)).softmax(-1)


def attention(
    q: Tensor,
    k: Tensor,
    values: tuple[Tensor, ...],
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Causal attention of one map over each of `values`.

    q, k [B, T, H, K]; each value [B or 1, T, H or 1, V] (V may differ from K); returns one
    [B, T, H, V] for each. `scale` defaults to K^-1/2. Written as plain products: at these lengths
    the fused kernel of a CPU is several times slower.
    """
    weights = attention_weights(q, k, scale=scale or q.shape[-1] ** -0.5, bias=bias)
    return tuple((weights.to(v.dtype) @ v.transpose(1, 2)).transpose(1, 2) for v in values)
