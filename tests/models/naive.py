"""The decoder and its positional encodings as a reader of the papers would write them down: loops.

An oracle for the fast code in `models`, and so written from the formulas, never from that code:
one sequence at a time, one score at a time, no masks, no batches, no cached angles. Weights come
as a mapping from the decoder's parameter names to tensors; give them `requires_grad` and the
result can be differentiated, so that gradients too are compared name by name.

Shapes: T tokens, D hidden, H heads, K head dim, F = K/2 frequencies, M MLP, V vocabulary.
Token t asks (query), token i answers (key). Scores are what stands before the softmax.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
# Attention[h][t][i]: the weight of key i for query t in head h; a key that t cannot see is absent.
Attention = list[list[dict[int, Tensor]]]
BASE = 10_000.0


@dataclass(frozen=True)
class Shape:
    """The sizes that cannot be read off the weights alone."""

    num_layers: int
    num_heads: int
    head_dim: int


def causal(t: int, i: int) -> bool:
    """Whether query t sees key i in a decoder."""
    return i <= t


def softmax(scores: dict[int, Tensor]) -> dict[int, Tensor]:
    """exp(score), divided by their sum; the largest score is subtracted, which changes nothing."""
    highest = max(float(score.detach()) for score in scores.values())
    raised = {i: torch.exp(score - highest) for i, score in scores.items()}
    total = sum(raised.values(), torch.zeros((), dtype=torch.float64))
    return {i: value / total for i, value in raised.items()}


# ---- frequencies -------------------------------------------------------------------------------


def frequencies(head_dim: int) -> list[float]:
    """theta_f = 10000^(-2f/K), f = 0 .. K/2 - 1, in radians a token (RoPE, arXiv 2104.09864)."""
    return [BASE ** (-2.0 * f / head_dim) for f in range(head_dim // 2)]


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
    gammas = []
    for f in range(head_dim // 2):
        if f <= low:
            gammas.append(1.0)
        elif f >= high:
            gammas.append(0.0)
        else:
            gammas.append(1.0 - (f - low) / (high - low))
    return gammas


def paper_ramp(head_dim: int, trained_length: int) -> list[float]:
    """gamma_f of YaRN's paper (arXiv 2309.00071): linear in the turns r, from 1 to 32."""
    gammas = []
    for theta in frequencies(head_dim):
        turns = trained_length * theta / (2.0 * math.pi)
        gammas.append(min(1.0, max(0.0, (turns - 1.0) / 31.0)))
    return gammas


def yarn(head_dim: int, gammas: Sequence[float], scale: float) -> tuple[list[float], float]:
    """Frequencies and magnitude (on cosine and sine) at `scale` = final / trained length >= 1."""
    stretched = [
        (1.0 - gamma) * theta / scale + gamma * theta
        for gamma, theta in zip(gammas, frequencies(head_dim), strict=True)
    ]
    return stretched, 0.1 * math.log(scale) + 1.0


# ---- positional encodings ----------------------------------------------------------------------


class NoPE:
    """No positional encoding: the causal mask alone knows the order."""

    def __init__(self, weights: Weights, shape: Shape, index: Sequence[int]) -> None:
        self.weights = weights
        self.shape = shape
        self.index = list(index)

    def named(self, layer: int, name: str) -> Tensor:
        return self.weights[f"pe.layers.{layer}.{name}"]

    def embed(self, t: int, x: Tensor) -> Tensor:
        """The embedding of token t (`x` [D]) with what an absolute encoding adds to it."""
        return x

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        """Told the block's normalized input, `normed`[t] [D], and queries and keys, [h][t] [K]."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        """The score of query t (`q` [K]) for key i (`k` [K])."""
        total = torch.zeros((), dtype=q.dtype)
        for channel in range(self.shape.head_dim):
            total = total + q[channel] * k[channel]
        return total / math.sqrt(self.shape.head_dim)

    def weigh(self, layer: int, head: int, t: int, scores: dict[int, Tensor]) -> dict[int, Tensor]:
        """The weight that query t gives to each key, from its scores for all keys it sees."""
        return softmax(scores)

    def after_attention(self, layer: int, attention: Attention, mixed: list[list[Tensor]]) -> None:
        """Told what attention did: its weights and `mixed`[t][h] [K], before the output matrix."""

    def after_mlp(self, layer: int, mlp_out: list[Tensor]) -> None:
        """Told what the MLP gave, `mlp_out`[t] [D], before the residual is added."""


class FIRE(NoPE):
    """b = MLP(psi(t - i) / psi(max(t, L))), psi(x) = ln(|c| x + 1) (arXiv 2310.04418)."""

    def __init__(self, weights: Weights, shape: Shape, index: Sequence[int], init_l: float) -> None:
        super().__init__(weights, shape, index)
        self.init_l = init_l

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        c = self.named(layer, "c")
        threshold = abs(self.named(layer, "l_multiplier") * self.init_l)
        query_index = torch.tensor(float(self.index[t]), dtype=q.dtype)
        normalizer = query_index if query_index > threshold else threshold
        distance = self.index[t] - self.index[i]
        ratio = torch.log(abs(c) * distance + 1.0) / (torch.log(abs(c) * normalizer + 1.0) + 1e-6)
        bias = self.named(layer, "output.bias")[head]
        for unit in range(self.named(layer, "hidden.bias").shape[0]):
            into = self.named(layer, "hidden.weight")[unit, 0] * ratio
            into = into + self.named(layer, "hidden.bias")[unit]
            if into > 0:
                bias = bias + self.named(layer, "output.weight")[head, unit] * into
        return super().score(layer, head, t, i, q, k) + bias


class RoPE(NoPE):
    """Channels f and f + F are one complex number, turned by theta_f a token (arXiv 2104.09864).

    Written with the distance alone: a rotation of both by their own angle never appears here.
    """

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        thetas: Sequence[float] | None = None,
        magnitude: float = 1.0,
    ) -> None:
        super().__init__(weights, shape, index)
        self.thetas = list(thetas or frequencies(shape.head_dim))
        self.magnitude = magnitude

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half = self.shape.head_dim // 2
        total = torch.zeros((), dtype=q.dtype)
        for f, theta in enumerate(self.thetas):
            angle = theta * (self.index[t] - self.index[i])
            turned = torch.complex(q[f], q[f + half]) * complex(math.cos(angle), math.sin(angle))
            total = total + (turned * torch.complex(k[f], k[f + half]).conj()).real
        # Cosine and sine carry the magnitude, once in the query and once in the key.
        return total * self.magnitude**2 / math.sqrt(self.shape.head_dim)


class TAPE(NoPE):
    """TAPE by the paper's Eq. 6 to 8: a matrix e [L=2, D=2] for each token, head and frequency.

    e_t = [[cos, sin], [-sin, cos]] at the start, the transpose of the paper's section 3.3, so that
    e^T q turns by +theta t. Eq. 6 is read as q^T (e_t e_i^T) k, the L x L product.
    """

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        thetas: Sequence[float] | None = None,
        magnitude: float = 1.0,
    ) -> None:
        super().__init__(weights, shape, index)
        # e[t][h][f]: the matrix [2, 2].
        self.e: list[list[list[Tensor]]] = []
        for position in self.index:
            matrices = []
            for theta in thetas or frequencies(shape.head_dim):
                c, s = math.cos(theta * position), math.sin(theta * position)
                matrices.append(
                    torch.tensor([[c, s], [-s, c]], dtype=torch.float64) * magnitude,
                )
            self.e.append([list(matrices) for _ in range(shape.num_heads)])

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half = self.shape.head_dim // 2
        total = torch.zeros((), dtype=q.dtype)
        for f in range(half):
            inner = self.e[t][head][f] @ self.e[i][head][f].T
            q_pair = torch.stack([q[f], q[f + half]])
            k_pair = torch.stack([k[f], k[f + half]])
            total = total + q_pair @ (inner @ k_pair)
        return total / math.sqrt(self.shape.head_dim)

    def after_attention(self, layer: int, attention: Attention, mixed: list[list[Tensor]]) -> None:
        if layer == self.shape.num_layers - 1:
            return
        w1, w2 = self.named(layer, "w1"), self.named(layer, "w2")
        updated = []
        for t, at_token in enumerate(self.e):
            heads = []
            for head, at_head in enumerate(at_token):
                into = self.named(layer, "psi.weight") @ mixed[t][head]
                into = into + self.named(layer, "psi.bias")
                gate = into / (1.0 + torch.exp(-into))
                matrices = []
                for f, matrix in enumerate(at_head):
                    gathered = torch.zeros(2, 2, dtype=matrix.dtype)
                    for i, share in attention[head][t].items():
                        gathered = gathered + share * self.e[i][head][f]  # Eq. 7
                    # Eq. 8, and the residual around the whole block.
                    matrices.append(matrix + w2 @ (torch.diag(gate) @ (w1 @ gathered)))
                heads.append(matrices)
            updated.append(heads)
        self.e = updated


class TAPEHeads(NoPE):
    """TAPE as the authors' language-model code has it: heads are mixed, not the rows of e.

    Every update of that code treats cosine and sine alike, so e stays one complex number z for
    each token, head and frequency: the query (as a complex number) is multiplied by its z.
    """

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        thetas: Sequence[float] | None = None,
        magnitude: float = 1.0,
    ) -> None:
        super().__init__(weights, shape, index)
        # z[t][h][f]: a complex number.
        self.z: list[list[list[Tensor]]] = []
        for position in self.index:
            numbers = []
            for theta in thetas or frequencies(shape.head_dim):
                angle = theta * position
                number = magnitude * complex(math.cos(angle), math.sin(angle))
                numbers.append(torch.tensor(number, dtype=torch.complex128))
            self.z.append([list(numbers) for _ in range(shape.num_heads)])

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half = self.shape.head_dim // 2
        total = torch.zeros((), dtype=q.dtype)
        for f in range(half):
            turned_q = self.z[t][head][f] * torch.complex(q[f], q[f + half])
            turned_k = self.z[i][head][f] * torch.complex(k[f], k[f + half])
            total = total + (turned_q * turned_k.conj()).real
        return total / math.sqrt(self.shape.head_dim)

    def after_attention(self, layer: int, attention: Attention, mixed: list[list[Tensor]]) -> None:
        """e <- e + s_h (A e), head by head."""
        if layer == self.shape.num_layers - 1:
            return
        s = self.named(layer, "s")
        updated = []
        for t, at_token in enumerate(self.z):
            heads = []
            for head, at_head in enumerate(at_token):
                numbers = []
                for f, number in enumerate(at_head):
                    gathered = torch.zeros((), dtype=number.dtype)
                    for i, share in attention[head][t].items():
                        gathered = gathered + share * self.z[i][head][f]
                    numbers.append(number + s[head] * gathered)
                heads.append(numbers)
            updated.append(heads)
        self.z = updated

    def after_mlp(self, layer: int, mlp_out: list[Tensor]) -> None:
        """e <- e + Wd diag(SiLU(Wx m)) Wu e, across heads, token by token."""
        if layer == self.shape.num_layers - 1:
            return
        wx, wu, wd = self.named(layer, "wx"), self.named(layer, "wu"), self.named(layer, "wd")
        num_heads, half = self.shape.num_heads, self.shape.head_dim // 2
        updated = []
        for t, at_token in enumerate(self.z):
            into = wx @ mlp_out[t]
            gate = into / (1.0 + torch.exp(-into))
            mixing = wd @ (torch.diag(gate) @ wu)  # [H, H]
            heads = []
            for head in range(num_heads):
                numbers = []
                for f in range(half):
                    number = at_token[head][f]
                    for other in range(num_heads):
                        number = number + mixing[head, other] * at_token[other][f]
                    numbers.append(number)
                heads.append(numbers)
            updated.append(heads)
        self.z = updated


# ---- the decoder -------------------------------------------------------------------------------


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """`x` [D] divided by the root of its mean square (plus 1e-6), times `weight` [D]."""
    mean_square = sum((x[d] * x[d] for d in range(x.shape[0])), torch.zeros((), dtype=x.dtype))
    return weight * x / torch.sqrt(mean_square / x.shape[0] + 1e-6)


def gelu(x: Tensor) -> Tensor:
    """x Phi(x), Phi the normal distribution's cumulative function itself, not its tanh stand-in."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def decode(
    weights: Weights,
    shape: Shape,
    tokens: Sequence[int],
    pe: NoPE,
    sees: Callable[[int, int], bool] = causal,
) -> Tensor:
    """Logits [T, V] of one sequence; `pe` holds this sequence's positions and is used up."""
    num_heads, head_dim = shape.num_heads, shape.head_dim
    xs = [pe.embed(t, weights["embedding.weight"][token]) for t, token in enumerate(tokens)]
    for layer in range(shape.num_layers):

        def named(name: str, layer: int = layer) -> Tensor:
            return weights[f"blocks.{layer}.{name}.weight"]

        normed = [rms_norm(x, named("attention_norm")) for x in xs]
        projected = [named("qkv") @ x for x in normed]
        # part[0], part[1], part[2] are queries, keys and values; part[p][h][t] is [K].
        part = [
            [
                [row[(p * num_heads + h) * head_dim :][:head_dim] for row in projected]
                for h in range(num_heads)
            ]
            for p in range(3)
        ]
        pe.before_attention(layer, normed, part[0], part[1])
        attention: Attention = []
        for h in range(num_heads):
            rows = []
            for t in range(len(xs)):
                scores = {
                    i: pe.score(layer, h, t, i, part[0][h][t], part[1][h][i])
                    for i in range(len(xs))
                    if sees(t, i)
                }
                rows.append(pe.weigh(layer, h, t, scores))
            attention.append(rows)
        mixed = []
        for t in range(len(xs)):
            heads = []
            for h in range(num_heads):
                out = torch.zeros(head_dim, dtype=torch.float64)
                for i, share in attention[h][t].items():
                    out = out + share * part[2][h][i]
                heads.append(out)
            mixed.append(heads)
        pe.after_attention(layer, attention, mixed)
        xs = [x + named("output") @ torch.cat(heads) for x, heads in zip(xs, mixed, strict=True)]
        mlp_out = []
        for x in xs:
            both = named("gate_value") @ rms_norm(x, named("mlp_norm"))
            size = both.shape[0] // 2
            mlp_out.append(named("down") @ (gelu(both[:size]) * both[size:]))
        pe.after_mlp(layer, mlp_out)
        xs = [x + m for x, m in zip(xs, mlp_out, strict=True)]
    head = weights["head.weight"]
    return torch.stack([head @ rms_norm(x, weights["final_norm.weight"]) for x in xs])
