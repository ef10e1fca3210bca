"""DAPE: data-adaptive positional encoding. M: width of the MLP."""

from collections.abc import Iterable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.attention import scaled_scores
from tape_arith.models.encoding import (
    MatMul,
    PositionalLayer,
    Setting,
    State,
    Workload,
    check_least,
)
from tape_arith.models.encodings.alibi import ALiBi
from tape_arith.models.encodings.fire import FIRE
from tape_arith.models.encodings.kerple_log import KerpleLog
from tape_arith.models.families.scores import AdditiveBiasLayer, FromScores, ScoresLayer
from tape_arith.models.sequences import Sequences

_BASES = {"kerple-log": KerpleLog, "alibi": ALiBi, "fire": FIRE}


class DAPELayer(ScoresLayer):
    #: The layer of `base`, whose bias is adapted.
    base: AdditiveBiasLayer

    def __init__(self, num_heads: int, width: int) -> None:
        super().__init__()
        self.mlp_hidden = nn.Linear(2 * num_heads, width)
        self.mlp_output = nn.Linear(width, num_heads)

    def adaptation(self, scores: Tensor, bias: Tensor) -> Tensor:
        """Apply f to scores [B, H, T, T] and bias [B or 1, H, T, T], pair by pair."""
        dtype = scores.dtype
        hidden, output = self.mlp_hidden, self.mlp_output
        for_scores, for_bias = hidden.weight.to(dtype).chunk(2, 1)
        # Two products, because that of the bias is the same for all sequences.
        inner = F.linear(bias.to(dtype).permute(0, 2, 3, 1), for_bias, hidden.bias.to(dtype))
        inner = F.leaky_relu(F.linear(scores.permute(0, 2, 3, 1), for_scores) + inner)
        return F.linear(inner, output.weight.to(dtype), output.bias.to(dtype)).permute(0, 3, 1, 2)

    def scores(self, x: Tensor, q: Tensor, k: Tensor, state: State) -> Tensor:
        scores, bias = scaled_scores(q, k), self.base.bias(state)
        return scores + bias + self.adaptation(scores, bias)


class DAPE(FromScores):
    """A bias that an MLP adapts to the scores of all heads, for each pair of tokens.

    The logits [H] of a query and a key are s + b + f([s; b]): s [H] the scaled scores, b [H] the
    bias of `base`, f = W2 LeakyReLU(W1 [s; b] + b1) + b2 with W1 [M, 2H], W2 [H, M], slope 0.01 (as
    in the authors' code). f starts from torch's defaults; b2 is the same for all keys, so the
    softmax cancels it. `base` keeps its parameters, their sharing by layers, initial values and
    behaviour beyond L0. In the authors' code Kerple has parameters in each layer, and FIRE has
    L = 256 and LeakyReLU. DAPE v2 (2410.04798) is left out.

    base   encoding whose bias is adapted
    width  M, the hidden width of f
    """

    computes_with_index = True
    paper = "Zheng et al. 2024, arXiv 2405.14722"
    inert = ("mlp_output.bias",)

    def __init__(
        self,
        setting: Setting,
        *,
        base: Literal["kerple-log", "alibi", "fire"] = "kerple-log",
        width: int = 32,
    ) -> None:
        check_least("dape", 1, width=width)
        self.width = width
        super().__init__(setting)
        self.base = _BASES[base](setting)
        # Our layers own the base's layers, so that every tensor has one name.
        for layer, base_layer in zip(self.layers, self.base.layers, strict=True):
            layer.base = base_layer
        self.base.layers = nn.ModuleList()

    def layer(self, i: int) -> PositionalLayer:
        return DAPELayer(self.setting.num_heads, self.width)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        return self.base.start(x, index, seqs)

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """List the base's products and each layer's MLP, with b's part once per distance."""
        numbers = self.setting.num_heads * self.width
        yield from self.base.products(extent)
        gradients = 2 if self.base.needs.bias == "learned" else 1
        for _ in range(self.setting.applied_layers):
            yield MatMul(2 * extent.pairs * numbers)
            yield MatMul(extent.distances * numbers, gradients)

    def after_step(self) -> None:
        self.base.after_step()
