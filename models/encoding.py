"""The one interface between the decoder and a positional encoding.

Every hook is the identity, so the base class itself is NoPE. The decoder calls every hook of
every encoding and never asks which one it holds:

    index = pe.indices(seqs)                             once per forward
    x     = pe.embed(embedding(tokens), index, seqs)
    state = pe.start(x, index, seqs)
    for block, layer in zip(blocks, pe.layers):
        heads, state = layer.attend(x, q, k, v, state, seqs)
        ...
        state = layer.update(mlp_out, state, seqs)

What a hook returns for token t never depends on tokens after t.

Legend: B batch, T tokens, D hidden, H heads, K head dim.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.backends.backend import Backend, Needs
from models.backends.eager import Eager
from models.flops import MatMul, Workload
from models.sequences import Sequences

# A NamedTuple of tensors of the encoding's own, opaque to the decoder; () where it carries nothing.
State = Any
#: Of the normal distribution from which the decoder draws its weights, embeddings included.
INITIAL_STD = 0.02


@dataclass(frozen=True)
class Setting:
    """The plain values that an encoding is built from; they follow from the run's config.

    `trained_length` and `max_length` are the longest sequences, in tokens, of training and test
    (L0 and L1 in the docstrings of the encodings).
    """

    num_layers: int
    num_heads: int
    head_dim: int
    hidden_size: int
    trained_length: int
    max_length: int
    digit_ids: tuple[int, ...]
    separator_ids: tuple[int, ...]
    end_id: int


class PositionalLayer(nn.Module):
    """What one block does with positions; the base does nothing."""

    #: What computes attention; `Decoder.attend_with` sets it for all layers.
    attention: Backend = Eager()

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        """Attention of one block: rotate, bias or gate here.

        x [B, T, D] is the block's normalized input; q, k, v [B, T, H, K]. Returns the heads
        [B, T, H, K] before the output projection, and the state.
        """
        (heads,) = self.attention(q, k, (v,), seqs)
        return heads, state

    def update(self, mlp_out: Tensor, state: State, seqs: Sequences) -> State:
        """The state after the block's MLP, whose output is mlp_out [B, T, D]."""
        return state


class PositionalEncoding(nn.Module):
    """Base of every encoding. Keyword-only arguments of a subclass are its options.

    `layers` holds a module of its own for each block: blocks that share one make torch.compile
    recompile until it gives up.
    """

    #: What the encoding acts on: none, absolute, relative bias, rotary, randomized, content.
    kind: ClassVar[str] = "none"
    #: Author, year and arXiv number.
    paper: ClassVar[str] = ""
    #: Other names accepted on the command line.
    aliases: ClassVar[tuple[str, ...]] = ()
    #: Endings of parameters that cannot act, kept because the paper's formula has them.
    inert: ClassVar[tuple[str, ...]] = ()
    #: What it asks of attention.
    needs: ClassVar[Needs] = Needs()

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        self.layers = nn.ModuleList(self.layer(i) for i in range(setting.num_layers))

    def layer(self, i: int) -> PositionalLayer:
        """The module of block `i`; called by the constructor, after a subclass set its options."""
        return PositionalLayer()

    def indices(self, seqs: Sequences) -> Tensor:
        """Which number each token gets: int64 [1, T], or [B, T] where rows differ."""
        return seqs.place + seqs.offset

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        """Token embeddings [B, T, D] with what an absolute encoding adds to them."""
        return x

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        """What travels between layers: angles, biases, TAPE's e."""
        return ()

    def measures(self, first: State, state: State) -> dict[str, Tensor]:
        """What studies may plot of a state, `first` being the one that `start` gave: by name, a
        number a token, [B or 1, T], the mean over heads and whatever else a state has."""
        return {}

    def inner_products(self, state: State) -> Tensor | None:
        """How the positions of two tokens lie to each other in `state`, with no content in it:
        sum_f tr(e_t e_i^T) of query t and key i, [B or 1, H or 1, T, T]; None where no state
        stands for a token's position."""
        return None

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """The matrix products that this encoding adds to a forward of all layers, over its plain
        twin of attention (every pair counts that `extent` counts): what a count of FLOPs adds."""
        return ()

    def parameter_groups(self) -> Iterable[tuple[nn.Parameter, dict[str, float]]]:
        """Parameters trained otherwise than the rest, each with what differs:
        `weight_decay` and `lr_factor` (multiplies the learning rate). Scalars, biases and tables
        get no decay by default; matrices do."""
        return [(p, {"weight_decay": 0.0}) for p in self.parameters() if p.ndim < 2]

    def after_step(self) -> None:
        """Called after each optimizer step; clamps what must stay in a range."""


class Extrapolation:
    """Base of every change to an encoding at test time, which training never sees.

    Each is one file of models/extrapolations. Stateless: the same call gives the same answer,
    whatever was called before. Keyword-only arguments of a subclass are its options.
    """

    kind: ClassVar[str] = "at test time"
    paper: ClassVar[str] = ""

    def why_unsupported(self, encoding: PositionalEncoding) -> str | None:
        """Why it cannot change `encoding`, as words that follow its name; None if it can."""
        raise NotImplementedError

    def apply(self, encoding: PositionalEncoding) -> None:
        """Make `encoding` evaluate with this change."""
        raise NotImplementedError


def constant(numbers: Sequence[float], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A few numbers as a tensor on the device of `like`, in its type or in `dtype`.

    Unlike `new_tensor` and an index that is a list, it does not wait for the device.
    """
    return torch.tensor(numbers, dtype=dtype or like.dtype).to(like.device, non_blocking=True)
