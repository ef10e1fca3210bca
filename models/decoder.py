"""A decoder-only transformer in which nothing but the positional encoding varies.

RMSNorm, gated GELU, no biases, no dropout, untied output in float32. `norm` says where the norms
are. N is the number of applied layers, num_layers x loops:

    pre       x + f(norm(x)), and a norm before the output; f's last matrix starts narrower by
              (2N)^-1/2 (Radford et al. 2019)
    post      norm(x + f(x)), as in the original Transformer (Vaswani et al. 2017, 1706.03762)
    deepnorm  norm(alpha x + f(x)), alpha = (2N)^1/4; the matrices of v, of the attention's output
              and of the MLP start narrower by beta = (8N)^-1/4 (Wang et al. 2022, 2203.00555, for
              decoders; it scales Xavier's weights, we scale those of our recipe)

The authors' code of TAPE (zhuconv/arithmetic) and that of McLeish et al. (mcleish7/arithmetic) take
`post` with alpha = 1, but start from Xavier's weights narrowed by that beta. They have LayerNorm.

Looped decoders are those of McLeish et al. 2024, 2405.17399: the layers are applied `loops` times
with the same weights. An encoding's state continues from loop to loop. `input_injection` adds the
embedded input x0 at the start of each further loop. Theirs ("add" in their code) adds x0,
normalized, at the start of each; the first starts from N(0, 0.02), where ours starts from x0. Every
loop has its gradient; they train on a random number of loops.

`attention_scale` = "log" is Scalable-Softmax (Nakanishi 2025, 2501.19399): the scores K^-1/2 q k^T
of query t are multiplied by s_h ln n, n = t + 1 the number of its keys, so that attention does not
spread as sequences grow. s [H] is learned in each block, from 0.43 (0.43 ln 10 = 1: a query of ten
keys starts with the usual scores) and without weight decay. The bias of the paper's variant is left
out. q is multiplied where it meets keys, after an encoding's own functions of q (PoPE's softplus).
So a bias is added unscaled; keys of distances (Shaw, CoPE) and whatever reads the scores (CoPE's
gates, DAPE's MLP) take the multiplied q. An encoding without a softmax is refused.

Legend: B batch, T tokens, D hidden, H heads, K head dim, M MLP, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.attention import Needs
from tape_arith.models.cpu_kernels import rms_norm_on_cpu, use_custom_backward
from tape_arith.models.encoding import INITIAL_STD, PositionalEncoding, PositionalLayer, State
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences

NORM_EPSILON = 1e-6
FIRST_SCALE = 0.43
"""First value of s of Scalable-Softmax."""


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and variant of a decoder.

    `mlp_size` is M: the MLP's input projection has M gates and M values. `norm` is "pre", "post" or
    "deepnorm", `attention_scale` "plain" or "log".
    """

    vocabulary_size: int
    num_layers: int
    hidden_size: int
    num_heads: int
    head_dim: int
    mlp_size: int
    norm: str = "pre"
    loops: int = 1
    input_injection: bool = False
    attention_scale: str = "plain"

    @property
    def applied_layers(self) -> int:
        """N, the layers that a token passes: each counts once a loop."""
        return self.num_layers * self.loops

    @property
    def alpha(self) -> float:
        """Factor of x in a residual connection."""
        return (2 * self.applied_layers) ** 0.25 if self.norm == "deepnorm" else 1.0


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019, 1910.07467).

    Under autocast the result has autocast's type, so that the next product casts nothing; or with
    `residual` the type of x, so that the residual stream is not rounded. The mean is computed in
    float32 or wider.
    """

    def __init__(self, size: int, eps: float, *, residual: bool = False) -> None:
        super().__init__()
        self.eps, self.residual = eps, residual
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        device = x.device.type
        # Autocast leaves float64 alone.
        casts = torch.is_autocast_enabled(device) and x.dtype != torch.float64 and not self.residual
        dtype = torch.get_autocast_dtype(device) if casts else x.dtype
        if use_custom_backward(x):
            return rms_norm_on_cpu(x, self.weight, self.eps, dtype)
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps).to(dtype)


class Block(nn.Module):
    """Attention, then the MLP, each in a residual connection with a norm before or after it."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.pre, self.alpha = config.norm == "pre", config.alpha
        width = config.num_heads * config.head_dim
        self.attention_norm = RMSNorm(config.hidden_size, NORM_EPSILON, residual=not self.pre)
        self.qkv = nn.Linear(config.hidden_size, 3 * width, bias=False)
        self.output = nn.Linear(width, config.hidden_size, bias=False)
        self.mlp_norm = RMSNorm(config.hidden_size, NORM_EPSILON, residual=not self.pre)
        self.gate_value = nn.Linear(config.hidden_size, 2 * config.mlp_size, bias=False)
        self.down = nn.Linear(config.mlp_size, config.hidden_size, bias=False)
        if config.attention_scale == "log":
            self.score_scale = nn.Parameter(torch.full((config.num_heads,), FIRST_SCALE))

    def forward(
        self,
        x: Tensor,
        layer: PositionalLayer,
        state: State,
        seqs: Sequences,
        chosen: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Return x [B, T, D] and the state after the block.

        With `chosen` (int64 [m]) only those tokens pass through the MLP: the result is x [m, D] and
        the state before the MLP. The last block does this, since its other tokens are not read.
        """
        attention_in = self.attention_norm(x) if self.pre else x
        qkv = self.qkv(attention_in).unflatten(-1, (3, self.config.num_heads, self.config.head_dim))
        q, k, v = qkv.unbind(-3)
        heads, state = layer.attend(attention_in, q, k, v, state, seqs)
        heads = heads.flatten(-2)
        if chosen is not None:
            heads = heads.flatten(0, 1).index_select(0, chosen)
            x = x.flatten(0, 1).index_select(0, chosen)
        x = self._add(x, self.output(heads), self.attention_norm)
        gate, value = self.gate_value(self.mlp_norm(x) if self.pre else x).chunk(2, -1)
        mlp_out = self.down(F.gelu(gate) * value)
        x = self._add(x, mlp_out, self.mlp_norm)
        unread = seqs.last or chosen is not None
        return x, state if unread else layer.update(mlp_out, state, seqs)

    def _add(self, x: Tensor, change: Tensor, norm: RMSNorm) -> Tensor:
        if self.pre:
            return x + change
        added: Tensor = norm(self.alpha * x + change)
        return added


class Decoder(nn.Module):
    """Logits over the vocabulary for each next token, given a positional encoding."""

    def __init__(self, config: DecoderConfig, pe: PositionalEncoding) -> None:
        super().__init__()
        parts = [part for part in pe.modules() if isinstance(part, PositionalEncoding)]
        for part in parts if config.attention_scale == "log" else ():
            if not part.takes_softmax:
                raise UsageError(
                    "attention_scale=log multiplies the scores of a softmax, and "
                    f"{type(part).__name__} takes none: leave attention_scale out"
                )
            if part.query_scaling is not None:
                raise UsageError(
                    "this decoder has learned its own factor of log n (attention_scale=log): leave "
                    "logn out"
                )
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        # After a post-norm the output needs none.
        self.final_norm = (
            RMSNorm(config.hidden_size, NORM_EPSILON) if config.norm == "pre" else nn.Identity()
        )
        self.head = nn.Linear(config.hidden_size, config.vocabulary_size, bias=False)
        self.pe = pe

    @property
    def needs(self) -> Needs:
        """Requirements of the encoding on attention, at this head width."""
        return self.pe.needs._replace(width=self.config.head_dim)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw weights from N(0, 0.02), some narrower, as `norm` asks.

        The encoding initialized its own parameters when it was built.
        """
        config, applied = self.config, self.config.applied_layers
        outputs, beta = ("output.weight", "down.weight"), (8 * applied) ** -0.25
        narrow: tuple[str, ...]
        narrow, narrow_std = {
            "pre": (outputs, INITIAL_STD / (2 * applied) ** 0.5),
            "post": ((), INITIAL_STD),
            "deepnorm": ((*outputs, "gate_value.weight"), INITIAL_STD * beta),
        }[config.norm]
        for name, parameter in self.named_parameters():
            if name.startswith("pe.") or parameter.ndim < 2:
                continue
            std = narrow_std if name.endswith(narrow) else INITIAL_STD
            nn.init.normal_(parameter, std=std, generator=generator)
            if config.norm == "deepnorm" and name.endswith("qkv.weight"):
                parameter.data.chunk(3)[2].mul_(beta)  # v

    def forward(
        self,
        seqs: Sequences,
        chosen: Tensor | None = None,
        blocks: Sequence[Callable[..., Any]] | None = None,
    ) -> Tensor:
        """Return logits [B, T, V], or [m, V] of tokens `chosen` (int64 [m], indices into B x T).

        Logits are float32 under any autocast, float64 from a float64 decoder. `blocks` are called
        in place of the decoder's own, as when a `Runner` has compiled them.
        """
        index = self.pe.indices(seqs)
        x = self.pe.embed(self.embedding(seqs.tokens), index, seqs)
        state = self.pe.start(x, index, seqs)
        x0, last = x, self.config.applied_layers - 1
        scales = self._query_scales(seqs)
        calls: Iterable[Callable[..., Any]] = self.blocks if blocks is None else blocks
        pairs = list(zip(calls, self.pe.layers, strict=True))
        for i, (block, layer) in enumerate(self.config.loops * pairs):
            if self.config.input_injection and i and i % len(pairs) == 0:
                x = x + x0
            is_last = i == last and self.config.loops > 1
            here = seqs.at(i, last=is_last, query_scale=scales[i % len(pairs)])
            here.show("state", state)
            x, state = block(x, layer, state, here, chosen if i == last else None)
        with torch.autocast(x.device.type, enabled=False):
            return self.head(self.final_norm(x.to(self.head.weight.dtype)))

    def _query_scales(self, seqs: Sequences) -> list[Tensor | None]:
        """Compute the factor of each query's scores in each block, [1, T, H]; None: 1.

        It is computed outside the blocks, which may be compiled.
        """
        dtype = self.head.weight.dtype
        if self.config.attention_scale == "log":
            log_keys = seqs.log_keys.to(dtype)
            return [log_keys * block.get_parameter("score_scale") for block in self.blocks]
        scale = self.pe.query_scale(seqs)
        return [scale if scale is None else scale.to(dtype)] * len(self.blocks)

    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())
