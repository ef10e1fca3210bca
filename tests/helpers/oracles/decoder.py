"""The decoder as loops, and the base of every oracle.

Weights come as a mapping from the decoder's parameter names to tensors; give them `requires_grad`
and the result can be differentiated, so that gradients are compared name by name.

Shapes: T tokens, D hidden, H heads, K head dim, M MLP, V vocabulary.
Token t asks (query), token i answers (key). Scores are what stands before the softmax.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
# Attention[h][t][i]: the weight of key i for query t in head h; a key that t cannot see is absent.
Attention = list[list[dict[int, Tensor]]]


@dataclass(frozen=True)
class Shape:
    """The sizes that cannot be read off the weights alone."""

    num_layers: int
    num_heads: int
    head_dim: int


def softmax(scores: dict[int, Tensor]) -> dict[int, Tensor]:
    """exp(score), divided by their sum; the largest score is subtracted, which changes nothing."""
    highest = max(float(score.detach()) for score in scores.values())
    raised = {i: torch.exp(score - highest) for i, score in scores.items()}
    total = sum(raised.values(), torch.zeros((), dtype=torch.float64))
    return {i: value / total for i, value in raised.items()}


def sigmoid(x: Tensor) -> Tensor:
    return 1.0 / (1.0 + torch.exp(-x))


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def causal_filter(kernel: Tensor, inputs: Sequence[Tensor], t: int) -> Tensor:
    """Token t of inputs[t] [C], each channel filtered on its own by kernel [C, n]; tap j of n is
    n - 1 - j tokens back."""
    taps = kernel.shape[1]
    total = torch.zeros(kernel.shape[0], dtype=kernel.dtype)
    for tap in range(taps):
        source = t - (taps - 1 - tap)
        if source >= 0:
            total = total + kernel[:, tap] * inputs[source]
    return total


@dataclass
class NoPE:
    """No positional encoding: the causal mask alone knows the order. `index` of each token."""

    weights: Weights
    shape: Shape
    index: Sequence[int]

    def named(self, layer: int, name: str) -> Tensor:
        return self.weights[f"pe.layers.{layer}.{name}"]

    def distance(self, t: int, i: int) -> int:
        return self.index[t] - self.index[i]

    def embed(self, t: int, x: Tensor) -> Tensor:
        """The embedding of token t (`x` [D]) with what an absolute encoding adds to it."""
        return x

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        """Receives the block's normalized input [t] [D], and queries and keys, [h][t] [K]."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        """The score of query t (`q` [K]) for key i (`k` [K])."""
        return q @ k / math.sqrt(self.shape.head_dim)

    def weigh(self, layer: int, head: int, t: int, scores: dict[int, Tensor]) -> dict[int, Tensor]:
        """The weight that query t gives to each key, from its scores for all keys it sees."""
        return softmax(scores)

    def after_attention(self, layer: int, attention: Attention, mixed: list[list[Tensor]]) -> None:
        """Receives the attention weights and `mixed`[t][h] [K], before the output matrix."""

    def after_mlp(self, layer: int, mlp_out: list[Tensor]) -> None:
        """Receives the output of the MLP, `mlp_out`[t] [D], before the residual is added."""


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """`x` [D] divided by the root of its mean square (plus 1e-6), times `weight` [D]."""
    return weight * x / torch.sqrt((x * x).sum() / x.shape[0] + 1e-6)


def gelu(x: Tensor) -> Tensor:
    """x Phi(x), Phi the normal distribution's cumulative function itself, not its tanh stand-in."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def decode(weights: Weights, shape: Shape, tokens: Sequence[int], pe: NoPE) -> Tensor:
    """Logits [T, V] of one sequence; `pe` holds this sequence's positions and is used up."""
    num_heads, head_dim = shape.num_heads, shape.head_dim
    xs = [pe.embed(t, weights["embedding.weight"][token]) for t, token in enumerate(tokens)]
    for layer in range(shape.num_layers):

        def named(name: str, layer: int = layer) -> Tensor:
            return weights[f"blocks.{layer}.{name}.weight"]

        normed = [rms_norm(x, named("attention_norm")) for x in xs]
        projected = [named("qkv") @ x for x in normed]
        # q[h][t], k[h][t] and v[h][t] are [K].
        q, k, v = (
            [
                [row[(part * num_heads + h) * head_dim :][:head_dim] for row in projected]
                for h in range(num_heads)
            ]
            for part in range(3)
        )
        pe.before_attention(layer, normed, q, k)
        attention: Attention = []
        for h in range(num_heads):
            rows = []
            for t in range(len(xs)):
                scores = {i: pe.score(layer, h, t, i, q[h][t], k[h][i]) for i in range(t + 1)}
                rows.append(pe.weigh(layer, h, t, scores))
            attention.append(rows)
        mixed = []
        for t in range(len(xs)):
            heads = []
            for h in range(num_heads):
                out = torch.zeros(head_dim, dtype=torch.float64)
                for i, share in attention[h][t].items():
                    out = out + share * v[h][i]
                heads.append(out)
            mixed.append(heads)
        pe.after_attention(layer, attention, mixed)
        xs = [x + named("output") @ torch.cat(heads) for x, heads in zip(xs, mixed, strict=True)]
        mlp_out = []
        for x in xs:
            gate, value = (named("gate_value") @ rms_norm(x, named("mlp_norm"))).chunk(2)
            mlp_out.append(named("down") @ (gelu(gate) * value))
        pe.after_mlp(layer, mlp_out)
        xs = [x + m for x, m in zip(xs, mlp_out, strict=True)]
    return torch.stack(
        [weights["head.weight"] @ rms_norm(x, weights["final_norm.weight"]) for x in xs]
    )
