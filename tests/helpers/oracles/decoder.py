"""The decoder, and the base of every oracle.

T tokens, D hidden, H heads, K head dim, F = K/2. Token t asks (query), token i answers (key).
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tape_arith.arith.registry.names import Name
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.sequences import Sequences

PAD = 0


@dataclass(frozen=True)
class Row:
    """One row of a batch: all that an oracle may know."""

    name: Name
    #: By the decoder's parameter names; they may require gradients.
    weights: dict[str, Tensor]
    pe: PositionalEncoding
    seqs: Sequences
    row: int
    #: What indices are multiplied by: 1, or a real number.
    scale: Any = 1

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.name.encoding.parts[-1].options)

    @property
    def tokens(self) -> list[int]:
        tokens: list[int] = self.seqs.tokens[self.row].tolist()
        return [token for token in tokens if token != PAD]

    @property
    def counted(self) -> list[int]:
        """The index of each token if no index is drawn."""
        return [(self.seqs.offset + t) * self.scale for t in range(len(self.tokens))]

    def drawn(self, pe: PositionalEncoding | None = None) -> list[int]:
        """The index that `pe` reports of each token, which may be drawn from the row's key."""
        index = (pe or self.pe).indices(self.seqs)
        drawn: list[int] = index.expand(len(self.seqs.tokens), -1)[self.row].tolist()
        return drawn[: len(self.tokens)]


class NoPE:
    """No positional encoding: the causal mask alone knows the order."""

    #: Whether a score is no product of q with something, so that a multiple of q says nothing.
    bends_queries = False

    def __init__(self, row: Row, index: list[int] | None = None) -> None:
        self.row, self.weights, self.options = row, row.weights, row.options
        self.index = row.counted if index is None else index
        self.setting = row.pe.setting
        self.num_heads, self.half = self.setting.num_heads, self.setting.head_dim // 2

    def named(self, layer: int, name: str) -> Tensor:
        return self.weights[f"pe.layers.{layer}.{name}"]

    def distance(self, t: int, i: int) -> int:
        return self.index[t] - self.index[i]

    def embed(self, t: int, x: Tensor) -> Tensor:
        """The embedding x [D] of token t with what an absolute encoding adds."""
        return x

    def mix(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries, keys and values [H, T, K] that attention takes."""
        return q, k, v

    def before_attention(self, layer: int, x: Tensor, q: Tensor, k: Tensor) -> None:
        """Receives the block's normalized input [T, D], and queries and keys [H, T, K]."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        """The score of query t (q [K]) for key i (k [K])."""
        return q @ k / math.sqrt(len(q))

    def weigh(self, layer: int, head: int, t: int, scores: Tensor) -> Tensor:
        """The weights that query t gives to keys 0 .. t, from its scores for them, [t + 1]."""
        raised = torch.exp(scores - scores.max().detach())
        return raised / raised.sum()

    def after_attention(self, layer: int, weights: Tensor, mixed: Tensor) -> None:
        """Receives attention weights [H, T, T] and its output [H, T, K]."""

    def after_mlp(self, layer: int, mlp_out: Tensor) -> None:
        """Receives the output of the MLP [T, D], before the residual is added."""


def silu(x: Tensor) -> Tensor:
    return x / (1.0 + torch.exp(-x))


def causal_filter(kernel: Tensor, inputs: Tensor, t: int) -> Tensor:
    """Filter each channel of inputs [T, C] at token t by kernel [C, n].

    Tap j of n is n - 1 - j tokens back.
    """
    taps = kernel.shape[1]
    sources = [(tap, t - (taps - 1 - tap)) for tap in range(taps)]
    return torch.stack([kernel[:, tap] * inputs[s] for tap, s in sources if s >= 0]).sum(0)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x [T, D] divided by the root of its mean square (plus 1e-6), times weight [D]."""
    return weight * x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-6)


def gelu(x: Tensor) -> Tensor:
    """x Phi(x), Phi the normal distribution's cumulative function itself, not its tanh stand-in."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def decode(
    row: Row,
    pe: NoPE,
    norm: str = "pre",
    loops: int = 1,
    input_injection: bool = False,
    attention_scale: str = "plain",
) -> Tensor:
    """Logits [T, V] of one row; `pe` is used up.

    Post-norm: x = LN(x + f(x)) (1706.03762, section 3.1). DeepNorm: x = LN(alpha x + f(x)),
    alpha = (2N)^1/4 for a decoder of N layers (2203.00555, Figure 2). Loops: x = layers(x + x0) in
    each, from x = 0 (2405.17399, Figure 2). Scalable-Softmax: scores of the n-th query times s_h
    log n (2501.19399); but for PoPE q is multiplied, so that a bias is not. `logn` at test time:
    likewise, times log n / log L0 beyond L0.
    """
    weights, setting, tokens = row.weights, row.pe.setting, row.tokens
    depth = setting.num_layers * loops
    alpha = math.sqrt(math.sqrt(2.0 * depth)) if norm == "deepnorm" else 1.0

    def before(x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight) if norm == "pre" else x

    def after(x: Tensor, change: Tensor, weight: Tensor) -> Tensor:
        return x + change if norm == "pre" else rms_norm(alpha * x + change, weight)

    length, heads = len(tokens), range(setting.num_heads)
    x0 = torch.stack([pe.embed(t, weights["embedding.weight"][n]) for t, n in enumerate(tokens)])
    x = torch.zeros_like(x0) if input_injection else x0
    for step in range(depth):
        layer = step % setting.num_layers
        if input_injection and layer == 0:
            x = x + x0
        block = {
            name: weights[f"blocks.{layer}.{name}.weight"]
            for name in ("attention_norm", "qkv", "output", "mlp_norm", "gate_value", "down")
        }
        attention_in = before(x, block["attention_norm"])
        qkv = (attention_in @ block["qkv"].T).reshape(
            length, 3, setting.num_heads, setting.head_dim
        )
        q, k, v = pe.mix(layer, *qkv.permute(1, 2, 0, 3))
        factor = torch.ones(setting.num_heads, length, dtype=x.dtype)
        extrapolation = row.name.extrapolation
        if extrapolation is not None and extrapolation.name == "logn" and not row.pe.training:
            trained = math.log(setting.trained_length)
            factor = factor * torch.tensor(
                [max(1.0, math.log(t + 1) / trained) for t in range(length)], dtype=x.dtype
            )
        if attention_scale == "log":
            s = weights[f"blocks.{layer}.score_scale"]
            keys = [math.log(t + 1) for t in range(length)]
            factor = torch.stack([torch.stack([s[h] * n for n in keys]) for h in heads])
        after_scores = factor if pe.bends_queries else torch.ones_like(factor)
        q = q if pe.bends_queries else q * factor[..., None]
        pe.before_attention(layer, attention_in, q, k)
        attention = torch.stack(
            [
                torch.stack(
                    [
                        _weights(pe, layer, h, t, q[h], k[h], after_scores[h, t])
                        for t in range(length)
                    ]
                )
                for h in heads
            ]
        )
        mixed = attention @ v
        pe.after_attention(layer, attention, mixed)
        x = after(x, mixed.transpose(0, 1).flatten(1) @ block["output"].T, block["attention_norm"])
        gate, value = (before(x, block["mlp_norm"]) @ block["gate_value"].T).chunk(2, 1)
        mlp_out = (gelu(gate) * value) @ block["down"].T
        pe.after_mlp(layer, mlp_out)
        x = after(x, mlp_out, block["mlp_norm"])
    final = rms_norm(x, weights["final_norm.weight"]) if norm == "pre" else x
    return final @ weights["head.weight"].T


def _weights(
    pe: NoPE, layer: int, head: int, t: int, q: Tensor, k: Tensor, factor: Tensor
) -> Tensor:
    """The weights of query t, [T], zero at future keys; its scores are multiplied by `factor`."""
    scores = torch.stack([factor * pe.score(layer, head, t, i, q[t], k[i]) for i in range(t + 1)])
    return torch.cat((pe.weigh(layer, head, t, scores), scores.new_zeros(len(k) - t - 1)))
