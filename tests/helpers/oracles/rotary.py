"""Oracles of the rotary encodings and of TAPE: loops from their papers' formulas (see decoder.py).

Channels f and f + F of a head are one pair. F = K/2 frequencies; `thetas` in radians a token, and
`magnitude` on cosine and sine, are what an extrapolation changes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.helpers.oracles.decoder import Attention, NoPE, causal_filter, silu

BASE = 10_000.0

# ---- frequencies, and what changes them at test time -------------------------------------------


def frequencies(head_dim: int) -> list[float]:
    """theta_f = 10000^(-2f/K), f = 0 .. K/2 - 1, in radians a token (RoPE, arXiv 2104.09864)."""
    return [BASE ** (-2.0 * f / head_dim) for f in range(head_dim // 2)]


def p_rope_frequencies(head_dim: int, p: float) -> list[float]:
    """The floor(pF) highest of the F frequencies; the rest do not turn (arXiv 2410.06205)."""
    kept = math.floor(p * (head_dim // 2))
    return [theta if f < kept else 0.0 for f, theta in enumerate(frequencies(head_dim))]


def pi(head_dim: int, scale: float) -> list[float]:
    """theta_f / s: positions squeezed into the trained range (PI, arXiv 2306.15595)."""
    return [theta / scale for theta in frequencies(head_dim)]


def ntk(head_dim: int, scale: float) -> list[float]:
    """theta_f with the base b s^(K/(K-2)): the lowest frequency is divided by s, the highest by 1
    (NTK-aware scaling; YaRN's paper, arXiv 2309.00071, Eq. 16). Dynamic NTK takes
    s = a L/L0 - (a - 1), L the sequence's length > L0."""
    base = BASE * scale ** (head_dim / (head_dim - 2.0))
    return [base ** (-2.0 * f / head_dim) for f in range(head_dim // 2)]


def index_ramp_ends(head_dim: int, trained_length: int) -> tuple[int, int]:
    """First and last frequency of the ramp in the code that YaRN's authors published.

    The (real) number of the frequency that turns r times within the trained length solves
    r = L0 theta_f / 2 pi, that is f = K ln(L0 / (2 pi r)) / (2 ln base); the ramp runs from the
    one of 32 turns, rounded down, to the one of 1 turn, rounded up, kept within [0, K - 1].
    """

    def number(turns: float) -> float:
        log_wavelengths = math.log(trained_length / (2.0 * math.pi * turns))
        return head_dim * log_wavelengths / (2.0 * math.log(BASE))

    return max(math.floor(number(32.0)), 0), min(math.ceil(number(1.0)), head_dim - 1)


def index_ramp(head_dim: int, trained_length: int) -> list[float]:
    """gamma_f of the published code: 1 keeps a frequency, 0 divides it by the whole scale."""
    low, high = index_ramp_ends(head_dim, trained_length)
    return [min(1.0, max(0.0, 1.0 - (f - low) / (high - low))) for f in range(head_dim // 2)]


def paper_ramp(head_dim: int, trained_length: int) -> list[float]:
    """gamma_f of YaRN's paper (arXiv 2309.00071): linear in the turns r, from 1 to 32."""
    turns = [trained_length * theta / (2.0 * math.pi) for theta in frequencies(head_dim)]
    return [min(1.0, max(0.0, (r - 1.0) / 31.0)) for r in turns]


def yarn(head_dim: int, gammas: Sequence[float], scale: float) -> tuple[list[float], float]:
    """Frequencies and magnitude (on cosine and sine) at `scale` = final / trained length >= 1."""
    stretched = [
        (1.0 - gamma) * theta / scale + gamma * theta
        for gamma, theta in zip(gammas, frequencies(head_dim), strict=True)
    ]
    return stretched, 0.1 * math.log(scale) + 1.0


# ---- encodings ---------------------------------------------------------------------------------


@dataclass
class Rotary(NoPE):
    thetas: Sequence[float]
    magnitude: float = 1.0

    def turned_product(self, f: int, angle: float, q: Tensor, k: Tensor, half: int) -> Tensor:
        """q.k of channels f and f + half, the query turned ahead of the key by `angle`."""
        turned = torch.complex(q[f], q[f + half]) * complex(math.cos(angle), math.sin(angle))
        return (turned * torch.complex(k[f], k[f + half]).conj()).real * self.magnitude**2


@dataclass
class RoPE(Rotary):
    """Each pair is one complex number, turned by theta_f a token (arXiv 2104.09864).

    Written with the distance alone: a rotation of both by their own angle never appears here.
    The first 2 len(thetas) channels turn and the others are left alone, as in partial rotations
    (GPT-NeoX, arXiv 2204.06745, and transformers' code of it).
    """

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half, total = len(self.thetas), torch.zeros((), dtype=q.dtype)
        for f, theta in enumerate(self.thetas):
            total = total + self.turned_product(f, theta * self.distance(t, i), q, k, half)
        total = total + q[2 * half :] @ k[2 * half :]
        return total / math.sqrt(self.shape.head_dim)


@dataclass
class XPos(Rotary):
    """RoPE whose frequency f decays by zeta_f^(distance/S), zeta_f = (2f/K + 0.4) / 1.4
    (arXiv 2212.10554, Algorithm 1: gamma = 0.4 and 0 <= 2f/K < 1)."""

    scale_base: float = math.nan

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        distance, total = self.distance(t, i), torch.zeros((), dtype=q.dtype)
        for f, theta in enumerate(self.thetas):
            zeta = (2.0 * f / self.shape.head_dim + 0.4) / 1.4
            inner = self.turned_product(f, theta * distance, q, k, len(self.thetas))
            total = total + zeta ** (distance / self.scale_base) * inner
        return total / math.sqrt(self.shape.head_dim)


class PoPE(Rotary):
    """sum_c softplus(q_c) softplus(k_c) cos((i - t) theta_c + delta_c) / sqrt(K), theta_c =
    10000^(-c/K), c = 0 .. K - 1: every channel a magnitude with a phase of its own, delta [H, K]
    of each layer within [-2 pi, 0] (arXiv 2509.10534)."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        total = torch.zeros((), dtype=q.dtype)
        for c, theta in enumerate(self.thetas):
            delta = self.named(layer, "phase")[head, c].clamp(-2.0 * math.pi, 0.0)
            magnitudes = torch.log(1.0 + torch.exp(q[c])) * torch.log(1.0 + torch.exp(k[c]))
            total = total + magnitudes * torch.cos(delta - self.distance(t, i) * theta)
        return total * self.magnitude**2 / math.sqrt(self.shape.head_dim)


@dataclass
class SelectiveRoPE(NoPE):
    """RoPE whose angle at token t is the sum of what tokens 0 .. t say (arXiv 2511.17388):

        phi_t = conv(W2 W1 l2norm(x_t)), angle_t[h, f] = T_f sum_{s <= t} phi_s[h, f]

    x_t, the block's normalized input, is cut into H parts and each part divided by its length;
    T_f = 500000^(-2f/K).
    """

    #: angles[t] [H, F] of the present layer.
    angles: list[Tensor] = field(default_factory=list)

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        heads, half = self.shape.num_heads, self.shape.head_dim // 2
        projected = []
        for x in normed:
            parts = [part / torch.sqrt((part * part).sum() + 1e-6) for part in x.chunk(heads)]
            low = self.named(layer, "down.weight") @ torch.cat(parts)
            projected.append(self.named(layer, "up.weight") @ low)
        temperature = torch.tensor([500_000.0 ** (-f / half) for f in range(half)]).double()
        self.angles = []
        total = torch.zeros(heads, half, dtype=torch.float64)
        for t in range(len(normed)):
            phi = causal_filter(self.named(layer, "taps"), projected, t)
            total = total + temperature * phi.reshape(heads, half)
            self.angles.append(total)

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half, total = self.shape.head_dim // 2, torch.zeros((), dtype=q.dtype)
        for f in range(half):
            angle = self.angles[t][head, f] - self.angles[i][head, f]
            total = total + torch.cos(angle) * (q[f] * k[f] + q[f + half] * k[f + half])
            total = total + torch.sin(angle) * (q[f] * k[f + half] - q[f + half] * k[f])
        return total / math.sqrt(self.shape.head_dim)


# ---- TAPE --------------------------------------------------------------------------------------

# e[t][h][f]: a matrix [L, D].
State = list[list[list[Tensor]]]


@dataclass
class Contextual(Rotary):
    """Base: every token, head and frequency has a matrix e; `table` [T, ...] holds the rows of a
    learned start, one for each token, its columns as halves of the last axis."""

    context: str = "full"
    clamp: float = 0.0
    width: int = 48
    table: Tensor | None = None
    e: State = field(default_factory=list)

    def __post_init__(self) -> None:
        for t, position in enumerate(self.index):
            matrices = []
            for f, theta in enumerate(self.thetas):
                c = self.magnitude * math.cos(theta * position)
                s = self.magnitude * math.sin(theta * position)
                matrix = self.first(c, s) if self.table is None else self.from_row(self.table[t], f)
                matrices.append(matrix)
            self.e.append([list(matrices) for _ in range(self.shape.num_heads)])

    def first(self, c: float, s: float) -> Tensor:
        raise NotImplementedError

    def from_row(self, row: Tensor, f: int) -> Tensor:
        raise NotImplementedError

    def is_last(self, layer: int) -> bool:
        """Whether nobody reads the state after this layer, which therefore has no update."""
        return layer == self.shape.num_layers - 1

    def gather(self, attention: Attention, t: int, head: int, f: int) -> Tensor:
        """sum_i A_ti e_i (Eq. 7)."""
        total = torch.zeros_like(self.e[0][head][f])
        for i, share in attention[head][t].items():
            total = total + share * self.e[i][head][f]
        return total

    def clamp_norms(self) -> None:
        """e / max(1, ||e||_F / clamp); as it is where `clamp` is 0."""

        def one(matrix: Tensor) -> Tensor:
            norm = torch.sqrt((matrix * matrix).sum())
            return matrix / (norm / self.clamp) if 0 < self.clamp < norm else matrix

        self.e = [[[one(matrix) for matrix in head] for head in token] for token in self.e]

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half, total = self.shape.head_dim // 2, torch.zeros((), dtype=q.dtype)
        for f in range(half):
            q_pair = torch.stack([q[f], q[f + half]])
            k_pair = torch.stack([k[f], k[f + half]])
            total = total + q_pair @ self.inner(self.e[t][head][f], self.e[i][head][f]) @ k_pair
        return total / math.sqrt(self.shape.head_dim)

    def inner(self, query: Tensor, key: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass
class TAPE(Contextual):
    """TAPE by the paper's Eq. 6 to 8, with its options `context`, `form` and `clamp`.

    e_t = [[cos, sin], [-sin, cos]] at the start, the transpose of the paper's section 3.3, so that
    e^T q turns by +theta t. Eq. 6 is read as q^T phi(e_t e_i^T) k, the L x L product; phi(a) of a
    vector's one number a is a I, and a vector is (cos, sin, cos, sin) / sqrt 2 at the start.
    """

    form: str = "tensor"

    def first(self, c: float, s: float) -> Tensor:
        if self.form == "vector":
            return torch.tensor([[c, s, c, s]], dtype=torch.float64) / math.sqrt(2.0)
        return torch.tensor([[c, s], [-s, c]], dtype=torch.float64)

    def from_row(self, row: Tensor, f: int) -> Tensor:
        matrix = row[:, [f, self.shape.head_dim // 2 + f]]
        if self.form == "vector":
            return torch.cat((matrix, matrix), 1) / math.sqrt(2.0)
        return matrix

    def inner(self, query: Tensor, key: Tensor) -> Tensor:
        inner = query @ key.T
        return inner[0, 0] * torch.eye(2, dtype=key.dtype) if self.form == "vector" else inner

    def after_attention(self, layer: int, attention: Attention, mixed: list[list[Tensor]]) -> None:
        if self.is_last(layer):
            return
        updated: State = []
        for t, at_token in enumerate(self.e):
            heads = []
            for head, at_head in enumerate(at_token):
                matrices = []
                for f, matrix in enumerate(at_head):
                    gathered = matrix
                    if self.context != "no-attention":
                        gathered = self.gather(attention, t, head, f)
                    # Eq. 8, and the residual around the whole block.
                    matrices.append(matrix + self.change(layer, head, gathered, mixed[t][head]))
                heads.append(matrices)
            updated.append(heads)
        self.e = updated
        self.clamp_norms()

    def change(self, layer: int, head: int, gathered: Tensor, output: Tensor) -> Tensor:
        """What is added to e [L, D], from e~ (`gathered`) and the head's output [K]."""
        if self.context == "no-mlp":
            return self.named(layer, "s")[head] * gathered
        psi = self.named(layer, "psi.weight") @ output + self.named(layer, "psi.bias")
        matrix = self.named(layer, "w2") @ torch.diag(silu(psi)) @ self.named(layer, "w1")
        if self.form == "non-equivariant":
            return (matrix @ gathered.reshape(4)).reshape(2, 2)
        return matrix @ gathered


class TAPEHeads(Contextual):
    """TAPE as the authors' language-model code has it: heads are mixed, not the rows of e.

    Every update of that code treats cosine and sine alike; e is [[a, -b], [b, a]] and q~ = e q.
    """

    def first(self, c: float, s: float) -> Tensor:
        return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)

    def from_row(self, row: Tensor, f: int) -> Tensor:
        a, b = row[f], row[self.shape.head_dim // 2 + f]
        return torch.stack([torch.stack([a, -b]), torch.stack([b, a])])

    def inner(self, query: Tensor, key: Tensor) -> Tensor:
        return query.T @ key

    def after_attention(self, layer: int, attention: Attention, mixed: list[list[Tensor]]) -> None:
        """e <- e + s_h (A e), head by head."""
        if self.is_last(layer) or self.context == "no-attention":
            return
        s = self.named(layer, "s")
        self.e = [
            [
                [e + s[h] * self.gather(attention, t, h, f) for f, e in enumerate(at_head)]
                for h, at_head in enumerate(at_token)
            ]
            for t, at_token in enumerate(self.e)
        ]

    def after_mlp(self, layer: int, mlp_out: list[Tensor]) -> None:
        """e <- e + Wd diag(SiLU(Wx m)) Wu e, across heads, token by token; then the clamp."""
        if self.is_last(layer):
            return
        if self.context != "no-mlp":
            self.e = [self.mix(layer, e, m) for e, m in zip(self.e, mlp_out, strict=True)]
        self.clamp_norms()

    def mix(self, layer: int, e: list[list[Tensor]], mlp_out: Tensor) -> list[list[Tensor]]:
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
