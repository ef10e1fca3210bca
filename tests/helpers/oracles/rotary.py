"""Oracles of the rotary encodings and of TAPE, from their papers' formulas (see decoder.py).

Channels f and f + F of a head are one pair, F = K/2.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from tape_arith.models.families.rotary import Rotary
from tests.helpers.oracles.decoder import NoPE, Row, causal_filter, silu

BASE = 10_000.0

# ---- frequencies, and what changes them at test time -------------------------------------------


def base_of(row: Row) -> float:
    base: float = row.options.get("base", BASE)
    return base


def frequencies(head_dim: int, base: float = BASE) -> list[float]:
    """theta_f = b^(-2f/K), f = 0 .. K/2 - 1, in radians a token (RoPE, arXiv 2104.09864)."""
    return [base ** (-2.0 * f / head_dim) for f in range(head_dim // 2)]


def ntk(head_dim: int, scale: float, base: float) -> list[float]:
    """theta_f with the base b s^(K/(K-2)): the lowest frequency is divided by s, the highest by 1
    (NTK-aware scaling; YaRN's paper, arXiv 2309.00071, Eq. 16). Dynamic NTK takes
    s = a L/L0 - (a - 1), L the sequence's length > L0."""
    base = base * scale ** (head_dim / (head_dim - 2.0))
    return [base ** (-2.0 * f / head_dim) for f in range(head_dim // 2)]


def index_ramp_ends(head_dim: int, trained_length: int, base: float = BASE) -> tuple[int, int]:
    """First and last frequency of the ramp in the code that YaRN's authors published.

    The (real) number of the frequency that turns r times within the trained length solves
    r = L0 theta_f / 2 pi, that is f = K ln(L0 / (2 pi r)) / (2 ln base); the ramp runs from the
    one of 32 turns, rounded down, to the one of 1 turn, rounded up, kept within [0, K - 1].
    """

    def number(turns: float) -> float:
        log_wavelengths = math.log(trained_length / (2.0 * math.pi * turns))
        return head_dim * log_wavelengths / (2.0 * math.log(base))

    return max(math.floor(number(32.0)), 0), min(math.ceil(number(1.0)), head_dim - 1)


def index_ramp(head_dim: int, trained_length: int, base: float) -> list[float]:
    """gamma_f of the published code: 1 keeps a frequency, 0 divides it by the whole scale."""
    low, high = index_ramp_ends(head_dim, trained_length, base)
    return [min(1.0, max(0.0, 1.0 - (f - low) / (high - low))) for f in range(head_dim // 2)]


def paper_ramp(head_dim: int, trained_length: int, base: float) -> list[float]:
    """gamma_f of YaRN's paper (arXiv 2309.00071): linear in the turns r, from 1 to 32."""
    turns = [trained_length * theta / (2.0 * math.pi) for theta in frequencies(head_dim, base)]
    return [min(1.0, max(0.0, (r - 1.0) / 31.0)) for r in turns]


def extrapolated(row: Row, width: int, usual: Sequence[float]) -> tuple[Sequence[float], float]:
    """Frequencies of `width` rotated channels, and the magnitude of cosine and sine, of a row."""
    part = row.name.extrapolation
    if part is None or part.name == "logn" or row.pe.training:
        return usual, 1.0
    options, setting = dict(part.options), row.pe.setting
    base = base_of(row)
    length = int(row.seqs.final_length[row.row])
    if options.get("scale") == "static":
        length = setting.max_length
    trained = setting.trained_length
    scale = max(1.0, length / trained)
    if part.name == "pi":  # positions squeezed into the trained range (arXiv 2306.15595)
        return [theta / scale for theta in usual], 1.0
    if part.name == "ntk":
        return ntk(width, scale, base), 1.0
    if part.name == "ntk-dynamic":
        factor = options.get("factor", setting.max_length / trained)
        assert isinstance(factor, float)
        return ntk(width, factor * scale - (factor - 1.0), base), 1.0
    ramp = paper_ramp if options.get("ramp") == "paper" else index_ramp
    kept = zip(usual, ramp(width, trained, base), strict=True)
    yarn = [(1.0 - gamma) * theta / scale + gamma * theta for theta, gamma in kept]
    return yarn, 0.1 * math.log(scale) + 1.0


# ---- encodings ---------------------------------------------------------------------------------


class RoPE(NoPE):
    """Each pair is one complex number, turned by theta_f a token (arXiv 2104.09864).

    Written with the distance alone: a rotation of both by their own angle never appears here. The
    channels behind `width` are left alone, as in partial rotations (GPT-NeoX, arXiv 2204.06745).
    """

    def __init__(self, row: Row, index: list[int] | None = None) -> None:
        super().__init__(row, index)
        thetas, self.magnitude = extrapolated(
            row, self.width(), frequencies(self.width(), base_of(row))
        )
        self.thetas = torch.tensor(self.turning(thetas), dtype=torch.float64)

    def width(self) -> int:
        return self.setting.head_dim

    def turning(self, thetas: Sequence[float]) -> Sequence[float]:
        return thetas

    def decay(self, distance: int) -> Tensor | float:
        """A factor of each frequency's product."""
        return 1.0

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half, distance = len(self.thetas), self.distance(t, i)
        turn = torch.polar(torch.ones_like(self.thetas), self.thetas * distance)
        ahead = torch.complex(q[:half], q[half : 2 * half]) * turn
        products = (ahead * torch.complex(k[:half], k[half : 2 * half]).conj()).real
        total = (products * self.decay(distance)).sum() * self.magnitude**2
        return (total + q[2 * half :] @ k[2 * half :]) / math.sqrt(len(q))


class RoPEPartial(RoPE):
    """The first int(fraction K) channels turn, an even number of them."""

    def width(self) -> int:
        return 2 * int(self.options.get("fraction", 0.25) * self.setting.head_dim / 2)


class PRoPE(RoPE):
    """The floor(pF) highest of the F frequencies; the rest do not turn (arXiv 2410.06205).

    An extrapolation acts on all of them before.
    """

    def turning(self, thetas: Sequence[float]) -> Sequence[float]:
        kept = math.floor(self.options.get("p", 0.75) * self.half)
        return [theta if f < kept else 0.0 for f, theta in enumerate(thetas)]


class XPos(RoPE):
    """RoPE whose frequency f decays by zeta_f^(distance/S), zeta_f = (2f/K + 0.4) / 1.4
    (arXiv 2212.10554, Algorithm 1: gamma = 0.4 and 0 <= 2f/K < 1)."""

    def decay(self, distance: int) -> Tensor:
        scale_base = self.options.get("scale_base", self.setting.trained_length / 2)
        zeta = (2.0 * torch.arange(self.half).double() / self.setting.head_dim + 0.4) / 1.4
        return zeta ** (distance / scale_base)


class PoPE(RoPE):
    """sum_c softplus(q_c) softplus(k_c) cos((i - t) theta_c + delta_c) / sqrt(K), theta_c =
    b^(-c/K), c = 0 .. K - 1: every channel a magnitude with a phase of its own, delta [H, K]
    of each layer within [-2 pi, 0] (arXiv 2509.10534)."""

    bends_queries = True

    def width(self) -> int:
        """That of a RoPE with as many frequencies."""
        return 2 * self.setting.head_dim

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        delta = self.named(layer, "phase")[head].clamp(-2.0 * math.pi, 0.0)
        magnitudes = torch.log(1.0 + torch.exp(q)) * torch.log(1.0 + torch.exp(k))
        total = (magnitudes * torch.cos(delta - self.distance(t, i) * self.thetas)).sum()
        return total * self.magnitude**2 / math.sqrt(len(q))


class Hybrid(RoPE):
    """RoPE, but NoPE in the layers offset, offset + period, offset + 2 period, .. (2501.18795);
    the last of each period if no offset is given."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        period = self.options.get("period", 2)
        first = self.options.get("offset", period - 1)
        without = layer in range(first, self.setting.num_layers, period)
        return (NoPE if without else RoPE).score(self, layer, head, t, i, q, k)


class RePo(RoPE):
    """RoPE at the real indices z_t = w_h.(SiLU(W_g x_t) * W_c x_t) of each head (arXiv 2512.14391);
    plain RoPE in the layers before floor(L/3)."""

    def before_attention(self, layer: int, x: Tensor, q: Tensor, k: Tensor) -> None:
        if layer < self.setting.num_layers // 3:
            return
        gate, content = (x @ self.named(layer, f"{part}.weight").T for part in ("gate", "content"))
        self.z = (silu(gate) * content) @ self.named(layer, "position.weight").T  # [T, H]

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        if layer < self.setting.num_layers // 3:
            return super().score(layer, head, t, i, q, k)
        turned = turned_product(self.thetas * (self.z[t, head] - self.z[i, head]), q, k)
        return turned.sum() / math.sqrt(len(q))


def turned_product(angle: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The product of each pair of q and k [2F], q turned by `angle` [F]."""
    (a, b), (c, d) = q.chunk(2), k.chunk(2)
    return torch.cos(angle) * (a * c + b * d) + torch.sin(angle) * (a * d - b * c)


class SelectiveRoPE(NoPE):
    """RoPE whose angle at token t is the sum of what tokens 0 .. t say (arXiv 2511.17388):

        phi_t = conv(W2 W1 l2norm(x_t)), angle_t[h, f] = T_f sum_{s <= t} phi_s[h, f]

    x_t, the block's normalized input, is cut into H parts and each part divided by its length;
    T_f = 500000^(-2f/K).
    """

    def before_attention(self, layer: int, x: Tensor, q: Tensor, k: Tensor) -> None:
        parts = x.reshape(len(x), self.num_heads, -1)
        parts = parts / torch.sqrt((parts * parts).sum(2, keepdim=True) + 1e-6)
        low = parts.flatten(1) @ self.named(layer, "down.weight").T
        projected = low @ self.named(layer, "up.weight").T
        temperature = 500_000.0 ** (-torch.arange(self.half).double() / self.half)
        self.angles, total = [], x.new_zeros(self.num_heads, self.half)
        for t in range(len(x)):
            phi = causal_filter(self.named(layer, "taps"), projected, t)
            total = total + temperature * phi.reshape(self.num_heads, self.half)
            self.angles.append(total)

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        turned = turned_product(self.angles[t][head] - self.angles[i][head], q, k)
        return turned.sum() / math.sqrt(len(q))


# ---- TAPE --------------------------------------------------------------------------------------


class Contextual(NoPE, ABC):
    """Base: e [T, H, F, L, D], a matrix for every token, head and frequency."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self.context = self.options.get("context", "full")
        start, heads = self.options.get("start", "rope"), (1, self.num_heads, 1, 1, 1)
        if start == "learned":
            table = row.weights["pe.table"][self.index]  # columns are halves of the last axis
            pairs = torch.stack(table.chunk(2, -1), -1)
            self.e = self.from_table(pairs)[:, None].repeat(heads)
            return
        usual = frequencies(self.setting.head_dim, base_of(row))
        if start == "fourier":  # drawn when the encoding was built; test_draws.py tests it
            assert isinstance(row.pe, Rotary)
            usual = row.pe.frequencies().tolist()
        thetas, magnitude = extrapolated(row, self.setting.head_dim, usual)
        index, theta = (torch.tensor(x, dtype=torch.float64) for x in (self.index, thetas))
        angles = index[:, None] * theta
        first = self.first(magnitude * torch.cos(angles), magnitude * torch.sin(angles))
        self.e = first[:, None].repeat(heads)

    @abstractmethod
    def first(self, c: Tensor, s: Tensor) -> Tensor:
        """e at first, [T, F, L, D], from cosines and sines [T, F]."""

    @abstractmethod
    def from_table(self, pairs: Tensor) -> Tensor:
        """e at first from the rows of a learned table, [T, (L,) F, 2]."""

    @abstractmethod
    def inner(self, query: Tensor, key: Tensor) -> Tensor:
        """The 2x2 matrix between q and k of a pair, [F, 2, 2], from e [F, L, D] of both."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        between = self.inner(self.e[t, head], self.e[i, head])
        q_pairs, k_pairs = torch.stack(q.chunk(2), 1), torch.stack(k.chunk(2), 1)
        return (q_pairs[:, None] @ between @ k_pairs[:, :, None]).sum() / math.sqrt(len(q))

    def is_last(self, layer: int) -> bool:
        """Tell whether no layer reads the state after this one, which therefore has no update."""
        return self.setting.loops == 1 and layer == self.setting.num_layers - 1

    def gathered(self, weights: Tensor) -> Tensor:
        """sum_i A_ti e_i (Eq. 7)."""
        return torch.einsum("hti,ihfld->thfld", weights, self.e)

    def clamp_norms(self) -> None:
        """e / max(1, ||e||_F / clamp)."""
        clamp = self.options.get("clamp", 0.0)
        norms = torch.sqrt((self.e * self.e).sum((-2, -1), keepdim=True))
        if clamp:
            self.e = torch.where(norms > clamp, self.e / (norms / clamp), self.e)


class TAPE(Contextual):
    """TAPE by the paper's Eq. 6 to 8, with its options `context`, `form` and `clamp`.

    e_t = [[cos, sin], [-sin, cos]] at the start, the transpose of the paper's section 3.3, so that
    e^T q turns by +theta t. Eq. 6 is read as q^T phi(e_t e_i^T) k, the L x L product; phi(a) of a
    vector's one number a is a I, and a vector is (cos, sin, cos, sin) / sqrt 2 at the start.
    """

    @property
    def is_vector(self) -> bool:
        return self.options.get("form") == "vector"

    def first(self, c: Tensor, s: Tensor) -> Tensor:
        if self.is_vector:
            return torch.stack([c, s, c, s], -1)[:, :, None] / math.sqrt(2.0)
        return torch.stack([torch.stack([c, s], -1), torch.stack([-s, c], -1)], -2)

    def from_table(self, pairs: Tensor) -> Tensor:
        e = pairs.transpose(1, 2)
        return torch.cat((e, e), -1) / math.sqrt(2.0) if self.is_vector else e

    def inner(self, query: Tensor, key: Tensor) -> Tensor:
        inner = query @ key.transpose(1, 2)
        return inner * torch.eye(2, dtype=key.dtype) if self.is_vector else inner

    def after_attention(self, layer: int, weights: Tensor, mixed: Tensor) -> None:
        if self.is_last(layer):
            return
        gathered = self.e if self.context == "no-attention" else self.gathered(weights)
        changes = [
            [self.change(layer, h, gathered[t, h], mixed[h, t]) for h in range(self.num_heads)]
            for t in range(len(self.e))
        ]
        # Eq. 8, and the residual around the whole block.
        self.e = self.e + torch.stack([torch.stack(heads) for heads in changes])
        self.clamp_norms()

    def change(self, layer: int, head: int, gathered: Tensor, output: Tensor) -> Tensor:
        """What is added to e [F, L, D], from e~ (`gathered`) and the head's output [K]."""
        if self.context == "no-mlp":
            return self.named(layer, "s")[head] * gathered
        psi = silu(self.named(layer, "psi.weight") @ output + self.named(layer, "psi.bias"))
        matrix = self.named(layer, "w2") @ torch.diag(psi) @ self.named(layer, "w1")
        if self.options.get("form") == "non-equivariant":
            return (gathered.reshape(-1, 4) @ matrix.T).reshape(-1, 2, 2)
        return matrix @ gathered


class TAPEHeads(Contextual):
    """TAPE as the authors' language-model code has it: heads are mixed, not the rows of e.

    Every update of that code treats cosine and sine alike; e is [[a, -b], [b, a]] and q~ = e q.
    """

    def first(self, c: Tensor, s: Tensor) -> Tensor:
        return torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)

    def from_table(self, pairs: Tensor) -> Tensor:
        return self.first(pairs[..., 0], pairs[..., 1])

    def inner(self, query: Tensor, key: Tensor) -> Tensor:
        return query.transpose(1, 2) @ key

    def after_attention(self, layer: int, weights: Tensor, mixed: Tensor) -> None:
        """e <- e + s_h (A e), head by head."""
        if not self.is_last(layer) and self.context != "no-attention":
            share = self.named(layer, "s")[:, None, None, None]
            self.e = self.e + share * self.gathered(weights)

    def after_mlp(self, layer: int, mlp_out: Tensor) -> None:
        """e <- e + Wd diag(SiLU(Wx m)) Wu e, across heads, token by token; then the clamp."""
        if self.is_last(layer):
            return
        if self.context != "no-mlp":
            updated = []
            for e, m in zip(self.e, mlp_out, strict=True):
                gate = torch.diag(silu(self.named(layer, "wx") @ m))
                mixing = self.named(layer, "wd") @ gate @ self.named(layer, "wu")  # [H, H]
                updated.append(e + torch.einsum("gh,hfld->gfld", mixing, e))
            self.e = torch.stack(updated)
        self.clamp_norms()
