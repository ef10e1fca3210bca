"""TAPE with a part of it taken away or held down, as a reader would write it down: loops.

An oracle beside `naive.py`, in its style, from the formulas of the paper's Eq. 6 to 8 and of its
Table 6, never from the code in `models`. e is a list of plain matrices here, L x D, one for each
token, head and frequency: the vector has its D = 4 as in the paper, and the form that mixes heads
the whole 2x2 matrix, where the fast code keeps half of either.

Shapes: T tokens, H heads, K head dim, F = K/2 frequencies, W width of psi.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests.models.naive import Attention, NoPE, Shape, Weights, frequencies

# e[t][h][f]: a matrix [L, D].
State = list[list[list[Tensor]]]


def rotation(angle: float, magnitude: float) -> Tensor:
    """[[cos, sin], [-sin, cos]]: e^T q turns q by +angle."""
    c, s = magnitude * math.cos(angle), magnitude * math.sin(angle)
    return torch.tensor([[c, s], [-s, c]], dtype=torch.float64)


def four_numbers(angle: float, magnitude: float) -> Tensor:
    """(cos, sin, cos, sin) / sqrt 2."""
    c, s = magnitude * math.cos(angle), magnitude * math.sin(angle)
    return torch.tensor([[c, s, c, s]], dtype=torch.float64) / math.sqrt(2.0)


def silu(x: Tensor) -> Tensor:
    return x / (1.0 + torch.exp(-x))


def gather(e: State, attention: Attention, t: int, head: int, f: int) -> Tensor:
    """sum_i A_ti e_i (Eq. 7)."""
    total = torch.zeros_like(e[0][head][f])
    for i, share in attention[head][t].items():
        total = total + share * e[i][head][f]
    return total


def held(e: State, clamp: float) -> State:
    """e / max(1, ||e||_F / clamp); as it is where `clamp` is 0."""

    def one(matrix: Tensor) -> Tensor:
        norm = torch.sqrt((matrix * matrix).sum())
        return matrix / (norm / clamp) if clamp > 0 and norm > clamp else matrix

    return [[[one(matrix) for matrix in at_head] for at_head in at_token] for at_token in e]


class AblatedTAPE(NoPE):
    """`tape`, by its options `context`, `form` and `clamp`; `table` [T, L, 2F] holds the rows of a
    learned start, one for each token, its columns as halves of the last axis."""

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        *,
        context: str = "full",
        form: str = "tensor",
        clamp: float = 0.0,
        table: Tensor | None = None,
        thetas: Sequence[float] | None = None,
        magnitude: float = 1.0,
    ) -> None:
        super().__init__(weights, shape, index)
        self.context, self.form, self.clamp = context, form, clamp
        first: Callable[[float, float], Tensor] = four_numbers if form == "vector" else rotation
        half = shape.head_dim // 2
        self.e: State = []
        for t, position in enumerate(self.index):
            matrices = []
            for f, theta in enumerate(thetas or frequencies(shape.head_dim)):
                matrix = first(theta * position, magnitude)
                if table is not None:
                    matrix = table[t][:, [f, half + f]]
                    if form == "vector":
                        matrix = torch.cat((matrix, matrix), 1) / math.sqrt(2.0)
                matrices.append(matrix)
            self.e.append([list(matrices) for _ in range(shape.num_heads)])

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        """sum_f q_f^T phi(e_t e_i^T) k_f; phi(a) of a vector's one number a is a I."""
        half = self.shape.head_dim // 2
        total = torch.zeros((), dtype=q.dtype)
        for f in range(half):
            inner = self.e[t][head][f] @ self.e[i][head][f].T
            if self.form == "vector":
                inner = inner[0, 0] * torch.eye(2, dtype=q.dtype)
            q_pair = torch.stack([q[f], q[f + half]])
            k_pair = torch.stack([k[f], k[f + half]])
            total = total + q_pair @ (inner @ k_pair)
        return total / math.sqrt(self.shape.head_dim)

    def after_attention(self, layer: int, attention: Attention, mixed: list[list[Tensor]]) -> None:
        if layer == self.shape.num_layers - 1:
            return
        updated: State = []
        for t, at_token in enumerate(self.e):
            heads = []
            for head, at_head in enumerate(at_token):
                matrices = []
                for f, matrix in enumerate(at_head):
                    found = matrix
                    if self.context != "no-attention":
                        found = gather(self.e, attention, t, head, f)
                    change = self.change(layer, head, found, mixed[t][head])
                    matrices.append(matrix + change)
                heads.append(matrices)
            updated.append(heads)
        self.e = held(updated, self.clamp)

    def change(self, layer: int, head: int, found: Tensor, output: Tensor) -> Tensor:
        """What is added to e [L, D], from e~ (`found`) and the head's output [K]."""
        if self.context == "no-mlp":
            return self.named(layer, "s")[head] * found
        psi = self.named(layer, "psi.weight") @ output + self.named(layer, "psi.bias")
        matrix = self.named(layer, "w2") @ torch.diag(silu(psi)) @ self.named(layer, "w1")
        if self.form == "non-equivariant":
            numbers = [found[0, 0], found[0, 1], found[1, 0], found[1, 1]]
            a, b, c, d = matrix @ torch.stack(numbers)
            return torch.stack([torch.stack([a, b]), torch.stack([c, d])])
        return matrix @ found


class AblatedTAPEHeads(NoPE):
    """`tape-heads`, by its options `context` and `clamp`; e is [[a, -b], [b, a]], q~ = e q."""

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        *,
        context: str = "full",
        clamp: float = 0.0,
        table: Tensor | None = None,
        thetas: Sequence[float] | None = None,
        magnitude: float = 1.0,
    ) -> None:
        super().__init__(weights, shape, index)
        self.context, self.clamp = context, clamp
        half = shape.head_dim // 2
        self.e: State = []
        for t, position in enumerate(self.index):
            matrices = []
            for f, theta in enumerate(thetas or frequencies(shape.head_dim)):
                matrix = rotation(theta * position, magnitude).T
                if table is not None:
                    a, b = table[t][f], table[t][half + f]
                    matrix = torch.stack([torch.stack([a, -b]), torch.stack([b, a])])
                matrices.append(matrix)
            self.e.append([list(matrices) for _ in range(shape.num_heads)])

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half = self.shape.head_dim // 2
        total = torch.zeros((), dtype=q.dtype)
        for f in range(half):
            q_pair = self.e[t][head][f] @ torch.stack([q[f], q[f + half]])
            k_pair = self.e[i][head][f] @ torch.stack([k[f], k[f + half]])
            total = total + q_pair @ k_pair
        return total / math.sqrt(self.shape.head_dim)

    def after_attention(self, layer: int, attention: Attention, mixed: list[list[Tensor]]) -> None:
        if layer == self.shape.num_layers - 1 or self.context == "no-attention":
            return
        s = self.named(layer, "s")
        self.e = [
            [
                [matrix + s[h] * gather(self.e, attention, t, h, f) for f, matrix in enumerate(row)]
                for h, row in enumerate(at_token)
            ]
            for t, at_token in enumerate(self.e)
        ]

    def after_mlp(self, layer: int, mlp_out: list[Tensor]) -> None:
        if layer == self.shape.num_layers - 1:
            return
        if self.context != "no-mlp":
            self.e = [self.across_heads(layer, e, m) for e, m in zip(self.e, mlp_out, strict=True)]
        self.e = held(self.e, self.clamp)

    def across_heads(
        self, layer: int, e: list[list[Tensor]], mlp_out: Tensor
    ) -> list[list[Tensor]]:
        """e + Wd diag(SiLU(Wx m)) Wu e of one token, e[h][f]."""
        gate = silu(self.named(layer, "wx") @ mlp_out)
        mixing = self.named(layer, "wd") @ torch.diag(gate) @ self.named(layer, "wu")  # [H, H]
        heads, half = range(self.shape.num_heads), range(self.shape.head_dim // 2)
        updated = []
        for head in heads:
            matrices = []
            for f in half:
                total = e[head][f]
                for other in heads:
                    total = total + mixing[head, other] * e[other][f]
                matrices.append(total)
            updated.append(matrices)
        return updated
