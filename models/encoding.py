"""The interface between the decoder and a positional encoding.

Every hook is the identity, so the base class itself is NoPE. The decoder calls every hook of
every encoding and never asks which encoding it holds:

    index = pe.indices(seqs)                             once per forward
    x     = pe.embed(embedding(tokens), index, seqs)
    state = pe.start(x, index, seqs)
    for block, layer in zip(blocks, pe.layers):
        heads, state = layer.attend(x, q, k, v, state, seqs)
        ...
        state = layer.update(mlp_out, state, seqs)

The result of a hook for token t never depends on tokens after t.

Legend: B batch, T tokens, D hidden, H heads, K head dim.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from tape_arith.models.attention import Bias, Eager, Needs, Values
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences

# The encoding's own NamedTuple of tensors, opaque to the decoder; () if it carries nothing.
State = Any
#: Standard deviation of the decoder's normally distributed first weights, embeddings included.
INITIAL_STD = 0.02
_EAGER = Eager()


@dataclass(frozen=True)
class Setting:
    """The values that an encoding is built from; they follow from the run's config.

    trained_length, max_length  tokens of the longest sequences in training and test (L0 and L1 in
                                the docstrings of the encodings)
    separator_ids               tokens that end an operand, an item or a step; '=' is the last
    longest_number              digits of the longest number, or string, in test
    trained_number              the same in training
    ascending                   numbers begin with their least significant digit
    unbroken                    no other token is between the digits of a number
    coupled                     pairs of Cho et al. 2024: digit k of the answer with digit k of each
                                operand, or with digit k from the end; None: no pairs
    loops                       number of times that the decoder applies its layers
    pad_id                      the token that pads rows on the right
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
    longest_number: int
    trained_number: int
    ascending: bool
    unbroken: bool
    coupled: Literal["alike", "mirrored"] | None
    loops: int = 1
    pad_id: int = 0

    @property
    def applied_layers(self) -> int:
        """Number of layers that a token passes; each counts once per loop."""
        return self.num_layers * self.loops

    @property
    def width(self) -> int:
        """Width of all heads together."""
        return self.num_heads * self.head_dim


class Workload(NamedTuple):
    """The size of a forward, from which its FLOPs follow.

    tokens     number of tokens in all rows
    pairs      pairs of a query and a key in all rows
    distances  pairs in the longest row; functions of indices alone are computed once for all rows
    """

    tokens: int
    pairs: int
    distances: int


class MatMul(NamedTuple):
    """A matrix product, each of whose multiply-adds is two FLOPs.

    gradients  number of factors that need a gradient; each gradient costs as much as the product
    needed     multiply-adds without work that is repeated because sharing is slower; None: all
    """

    multiply_adds: int
    gradients: int = 2
    needed: int | None = None

    @property
    def forward(self) -> int:
        """FLOPs of the forward."""
        return 2 * self.multiply_adds

    @property
    def training(self) -> int:
        """FLOPs of forward and backward."""
        return self.forward * (1 + self.gradients)

    @property
    def useful(self) -> int:
        """Needed FLOPs of forward and backward.

        >>> MatMul(10).training, MatMul(10, gradients=1).training, MatMul(10, needed=5).useful
        (60, 40, 30)
        """
        return (self if self.needed is None else MatMul(self.needed, self.gradients)).training


class PositionalLayer(nn.Module):
    """The positional part of one block; the base does nothing."""

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        """Compute the attention of one block; a subclass rotates, biases or gates here.

        q, k, v [B, T, H, K] are computed from x [B, T, D]. Returns the heads [B, T, H, K] before
        the output projection, and the state.
        """
        (heads,) = self.attention(q, k, (v,), seqs)
        return heads, state

    def update(self, mlp_out: Tensor, state: State, seqs: Sequences) -> State:
        """Return the state after the block's MLP, whose output is mlp_out [B, T, D]."""
        return state

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        values: Values,
        seqs: Sequences,
        *,
        scale: float | None = None,
        bias: Bias = None,
    ) -> Values:
        """Compute attention by the backend that runs the decoder, as `Backend.__call__` says."""
        attend = _EAGER if seqs.attention is None else seqs.attention
        return attend(q, k, values, seqs, scale=scale, bias=bias)


class PositionalEncoding(nn.Module):
    """Base of every encoding. Keyword-only arguments of a subclass are its options.

    `layers` holds a separate module for each block, because torch.compile would recompile a shared
    module until it gives up.
    """

    #: Name in figures; if empty, that of the class.
    label: ClassVar[str] = ""
    #: One of: none, absolute, relative bias, rotary, "rotary, contextual", randomized, content,
    #: task-structured.
    kind: ClassVar[str] = "none"
    #: Author, year and arXiv number.
    paper: ClassVar[str] = ""
    #: The option that follows the longest tested length unless it is given: training depends on it.
    told_by: ClassVar[str] = ""
    #: Name suffixes of parameters without effect, kept because the paper's formula has them.
    inert: tuple[str, ...] = ()
    #: Name suffixes of matrices (tables) that get no weight decay; scalars and biases never do.
    no_decay: ClassVar[tuple[str, ...]] = ()
    #: Whether it computes with its index as a number, so that the index may be real.
    computes_with_index: bool = False
    #: The largest factor of an index in training (see modifiers.py).
    stretch: float = 1.0
    #: Whether its attention weights are a softmax over keys, which spreads as their number grows.
    takes_softmax: bool = True
    #: An extrapolation that multiplies the scores of each query at test time.
    query_scaling: Callable[[Sequences, Setting], Tensor] | None = None
    #: Requirements on the attention backend.
    needs: Needs = Needs()
    #: What tells its random numbers from those of others with the same key, if it has that.
    stream: bytes = b""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        layers = [self.layer(i) for i in range(setting.num_layers)]
        for layer in layers:
            if not isinstance(layer, PositionalLayer):
                raise TypeError(
                    f"{type(self).__name__}.layer returned {layer!r}; it returns a PositionalLayer"
                )
        self.layers = nn.ModuleList(layers)

    def layer(self, i: int) -> PositionalLayer:
        """Build the module of block `i`; the base's `__init__` calls it, so set options before."""
        return PositionalLayer()

    def indices(self, seqs: Sequences) -> Tensor:
        """Return the index of each token: [1, T], or [B, T] if rows differ.

        int64; float64 only if a modifier scales the index, or if it is drawn so.
        """
        return seqs.place + seqs.offset

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        """Return token embeddings [B, T, D]; an absolute encoding adds to them."""
        return x

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        """Compute the state that layers pass on, such as angles, biases or TAPE's e."""
        return ()

    def query_scale(self, seqs: Sequences) -> Tensor | None:
        """Compute the factor of each query's scores, [1, T, 1]; None: 1.

        Only an extrapolation sets it (`query_scaling`).
        """
        if self.query_scaling is None or self.training:
            return None
        return self.query_scaling(seqs, self.setting)

    def trained_reach(self) -> dict[str, int]:
        """Return the greatest lengths at which every row of a learned table is a trained one.

        "digits": of a number or string; "tokens": of a sequence. Without an entry there is no
        limit. Scoring records what is exceeded, and figures say so.
        """
        return {}

    def measures(self, first: State, state: State) -> dict[str, Tensor]:
        """Measure `state` for studies: numbers per token by name, [B or 1, T], means over heads.

        `first` is the state that `start` returned.
        """
        return {}

    def inner_products(self, state: State) -> Tensor | None:
        """Compute the inner product of the positions of query t and key i: sum_f tr(e_t e_i^T).

        Returns [B or 1, H or 1, T, T], without q and k; None if the state holds no positions.
        """
        return None

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """List the matrix products that this encoding adds to a forward of all layers.

        By default each layer adds one product of `multiply_adds`.
        """
        added = self.multiply_adds(extent)
        return [MatMul(added)] * self.setting.applied_layers if added else ()

    def multiply_adds(self, extent: Workload) -> int:
        """Count the multiply-adds that one layer adds to plain attention over `extent.pairs`."""
        return 0

    def parameter_groups(self) -> Iterable[tuple[nn.Parameter, dict[str, float]]]:
        """List parameters with their own `weight_decay` or `lr_factor` (of the learning rate).

        By default scalars, biases and matrices named in `no_decay` get no weight decay.
        """
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2 or name.endswith(self.no_decay):
                yield parameter, {"weight_decay": 0.0}

    def after_step(self) -> None:
        """Clamp parameters that must stay in a range; called after each optimizer step."""


def constant(numbers: Sequence[float], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Copy a few numbers to the device of `like`, in its type or in `dtype`.

    Unlike `new_tensor` and indexing with a list this does not wait for the device: kernels write
    the numbers there, since a recorded step (recording.py) can copy nothing from the CPU.
    """
    dtype, device = dtype or like.dtype, like.device
    if device.type == "cpu":
        return torch.tensor(numbers, dtype=dtype, device=device)
    return torch.stack([torch.full((), x, dtype=dtype, device=device) for x in numbers])


def check_least(name: str, least: int, **options: float | None) -> None:
    """Raise UsageError if an option of `name` is set to less than `least`."""
    for option, value in options.items():
        if value is not None and value < least:
            raise UsageError(f"{name}: {option} must be {least} or more, not {value:g}")


def check_reaches(setting: Setting, **options: int | None) -> None:
    """Raise UsageError if a number of indices is set to less than L1."""
    longest = setting.max_length
    for option, value in options.items():
        if value is not None and value < longest:
            raise UsageError(
                f"{option}={value} is less than the longest tested sequence, {longest} tokens; "
                f"choose {option} >= {longest}"
            )
