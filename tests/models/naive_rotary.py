"""Oracles of the rotary encodings, as loops from their papers' formulas (see naive.py)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.models.naive import BASE, TAPE, NoPE, Shape, TAPEHeads, Weights, frequencies

# ---- frequencies, and what changes them at test time -------------------------------------------


def p_rope_frequencies(head_dim: int, p: float) -> list[float]:
    """The floor(pF) highest of the F frequencies; the rest do not turn (arXiv 2410.06205)."""
    kept = math.floor(p * (head_dim // 2))
    return [theta if f < kept else 0.0 for f, theta in enumerate(frequencies(head_dim))]


def interpolated(head_dim: int, scale: float) -> list[float]:
    """theta_f / s: positions squeezed into the trained range (PI, arXiv 2306.15595)."""
    return [theta / scale for theta in frequencies(head_dim)]


def ntk_aware(head_dim: int, scale: float) -> list[float]:
    """theta_f with the base b s^(K/(K-2)): the lowest frequency is divided by s, the highest by 1
    (NTK-aware scaling; YaRN's paper, arXiv 2309.00071, Eq. 16)."""
    base = BASE * scale ** (head_dim / (head_dim - 2.0))
    return [base ** (-2.0 * f / head_dim) for f in range(head_dim // 2)]


def ntk_dynamic(head_dim: int, factor: float, length: float, trained: float) -> list[float]:
    """theta_f with the base b (a L/L0 - (a - 1))^(K/(K-2)), L the sequence's length > L0."""
    stretched = factor * length / trained - (factor - 1.0)
    base = BASE * stretched ** (head_dim / (head_dim - 2.0))
    return [base ** (-2.0 * f / head_dim) for f in range(head_dim // 2)]


# ---- encodings ---------------------------------------------------------------------------------


class RoPEPartial(NoPE):
    """The first R channels turn, with frequencies 10000^(-2f/R) of their own, paired (f, f + R/2);
    the others are left alone, and so are they by an extrapolation's magnitude (GPT-NeoX, arXiv
    2204.06745, and transformers' code of it)."""

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        turned: int,
        thetas: Sequence[float] | None = None,
        magnitude: float = 1.0,
    ) -> None:
        super().__init__(weights, shape, index)
        self.turned, self.magnitude = turned, magnitude
        self.thetas = list(thetas or frequencies(turned))

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half = self.turned // 2
        total = torch.zeros((), dtype=q.dtype)
        for f in range(half):
            angle = self.thetas[f] * (self.index[t] - self.index[i])
            turned = torch.complex(q[f], q[f + half]) * complex(math.cos(angle), math.sin(angle))
            product = (turned * torch.complex(k[f], k[f + half]).conj()).real
            total = total + self.magnitude**2 * product
        for channel in range(self.turned, self.shape.head_dim):
            total = total + q[channel] * k[channel]
        return total / math.sqrt(self.shape.head_dim)


class XPos(NoPE):
    """RoPE whose frequency f decays by zeta_f^(distance/S), zeta_f = (2f/K + 0.4) / 1.4
    (arXiv 2212.10554, Algorithm 1: gamma = 0.4 and 0 <= 2f/K < 1)."""

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        scale_base: float,
        thetas: Sequence[float] | None = None,
        magnitude: float = 1.0,
    ) -> None:
        super().__init__(weights, shape, index)
        self.scale_base, self.magnitude = scale_base, magnitude
        self.thetas = list(thetas or frequencies(shape.head_dim))

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half = self.shape.head_dim // 2
        distance = self.index[t] - self.index[i]
        total = torch.zeros((), dtype=q.dtype)
        for f, theta in enumerate(self.thetas):
            zeta = (2.0 * f / self.shape.head_dim + 0.4) / 1.4
            angle = theta * distance
            turned = torch.complex(q[f], q[f + half]) * complex(math.cos(angle), math.sin(angle))
            inner = (turned * torch.complex(k[f], k[f + half]).conj()).real
            total = total + zeta ** (distance / self.scale_base) * inner
        return total * self.magnitude**2 / math.sqrt(self.shape.head_dim)


class PoPE(NoPE):
    """sum_c softplus(q_c) softplus(k_c) cos((i - t) theta_c + delta_c) / sqrt(K), theta_c =
    10000^(-c/K), c = 0 .. K - 1: every channel a magnitude with a phase of its own, delta within
    [-2 pi, 0] (arXiv 2509.10534)."""

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        deltas: Sequence[Tensor],
        thetas: Sequence[float] | None = None,
        magnitude: float = 1.0,
    ) -> None:
        """`deltas`: of each layer, [H, K]."""
        super().__init__(weights, shape, index)
        self.deltas, self.magnitude = list(deltas), magnitude
        self.thetas = list(thetas or frequencies(2 * shape.head_dim))

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        total = torch.zeros((), dtype=q.dtype)
        for c, theta in enumerate(self.thetas):
            delta = self.deltas[layer][head, c].clamp(-2.0 * math.pi, 0.0)
            angle = (self.index[i] - self.index[t]) * theta + delta
            magnitudes = torch.log(1.0 + torch.exp(q[c])) * torch.log(1.0 + torch.exp(k[c]))
            total = total + magnitudes * torch.cos(angle)
        return total * self.magnitude**2 / math.sqrt(self.shape.head_dim)


class SelectiveRoPE(NoPE):
    """RoPE whose angle at token t is the sum of what tokens 0 .. t say (arXiv 2511.17388):

        phi_t = conv(W2 W1 l2norm(x_t)), angle_t[h, f] = T_f sum_{s <= t} phi_s[h, f]

    x_t, the block's normalized input, is cut into H parts and each part divided by its length;
    conv sees each channel on its own, tap j of n being n - 1 - j tokens back; T_f =
    temperature / base^(2f/K).
    """

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        w1: Sequence[Tensor],
        w2: Sequence[Tensor],
        conv: Sequence[Tensor],
        temperature: float,
        base: float,
        epsilon: float,
    ) -> None:
        """Of each layer: w1 [R, D], w2 [H F, R], conv [H F, n]."""
        super().__init__(weights, shape, index)
        self.w1, self.w2, self.conv = list(w1), list(w2), list(conv)
        self.temperature, self.base, self.epsilon = temperature, base, epsilon
        # angles[t][h][f] of the present layer.
        self.angles: list[list[list[Tensor]]] = []

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        num_heads, half = self.shape.num_heads, self.shape.head_dim // 2
        projected = []
        for x in normed:
            width = x.shape[0] // num_heads
            parts = []
            for h in range(num_heads):
                part = x[h * width : (h + 1) * width]
                parts.append(part / torch.sqrt((part * part).sum() + self.epsilon))
            projected.append(self.w2[layer] @ (self.w1[layer] @ torch.cat(parts)))
        kernel = self.conv[layer]
        taps = kernel.shape[1]
        self.angles = []
        for t in range(len(normed)):
            at_token = []
            for h in range(num_heads):
                at_head = []
                for f in range(half):
                    channel = h * half + f
                    phi = torch.zeros((), dtype=torch.float64)
                    for tap in range(taps):
                        source = t - (taps - 1 - tap)
                        if source >= 0:
                            phi = phi + kernel[channel, tap] * projected[source][channel]
                    scale = self.temperature / self.base ** (2.0 * f / self.shape.head_dim)
                    before = self.angles[t - 1][h][f] if t > 0 else 0.0
                    at_head.append(before + scale * phi)
                at_token.append(at_head)
            self.angles.append(at_token)

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half = self.shape.head_dim // 2
        total = torch.zeros((), dtype=q.dtype)
        for f in range(half):
            angle = self.angles[t][head][f] - self.angles[i][head][f]
            cos, sin = torch.cos(angle), torch.sin(angle)
            total = total + cos * (q[f] * k[f] + q[f + half] * k[f + half])
            total = total + sin * (q[f] * k[f + half] - q[f + half] * k[f])
        return total / math.sqrt(self.shape.head_dim)


class TAPEFromTable(TAPE):
    """TAPE whose e of each token is at first a learned row, shared by heads (arXiv 2501.00712,
    section 3.2: "initial positional features may encompass ... learnable features")."""

    def __init__(self, weights: Weights, shape: Shape, index: Sequence[int], table: Tensor) -> None:
        """`table`: [rows, L, 2F], entry (l, D) of frequency f at [l, D F + f]."""
        super().__init__(weights, shape, index)
        half = shape.head_dim // 2
        self.e = []
        for position in self.index:
            matrices = []
            for f in range(half):
                rows = [
                    torch.stack([table[position, row, f], table[position, row, half + f]])
                    for row in range(2)
                ]
                matrices.append(torch.stack(rows))
            self.e.append([list(matrices) for _ in range(shape.num_heads)])


class TAPEHeadsFromTable(TAPEHeads):
    """TAPE by its authors' code, from a learned number of each index and frequency."""

    def __init__(self, weights: Weights, shape: Shape, index: Sequence[int], table: Tensor) -> None:
        """`table`: [rows, 2F], real parts before imaginary ones."""
        super().__init__(weights, shape, index)
        half = shape.head_dim // 2
        self.z = []
        for position in self.index:
            row = table[position]
            numbers = [torch.complex(row[f], row[half + f]) for f in range(half)]
            self.z.append([list(numbers) for _ in range(shape.num_heads)])
