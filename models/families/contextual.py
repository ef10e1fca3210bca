"""Rotary encodings whose state travels between layers, and where that state starts.

Legend: B batch, T tokens, F frequencies.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from models.errors import UsageError
from models.families.rotary import Rotary
from models.philox import words
from models.sequences import Sequences


class ContextualRotary(Rotary):
    """Base: the initial state is RoPE's, random Fourier features, or a learned table.

    - `rope`: the rotation of the index by theta_f = 10000^(-f/F).
    - `fourier`: the same by frequencies drawn once from |N(0, 1)| radians a token, when the
      encoding is made (random Fourier features of the Gaussian kernel exp(-distance^2 / 2), a pair
      of cos and sin each). What is kept, and moves with a checkpoint, is the key of the draw: an
      integer, which no change of type rounds.
    - `learned`: row `index` of a table of L1 states, shared by heads, N(0, 1/2) at first, so that a
      row of a 2x2 matrix has length 1 as a rotation's has. No weight decay.

    All three look at the index alone, so causality stays, and the layers stay equivariant: turn
    the whole table and all states turn alike while the logits stay. A shift of all indices turns
    the first two by an angle a frequency, which the layers cannot see; rows of a table are
    unrelated, so learned loses that, and with it every index beyond L0 (untrained; past the table
    an error) and any extrapolation.
    """

    #: Shape of one state in a table.
    state_shape: tuple[int, ...]

    def set_first(self, first: str) -> None:
        """Start from `first`; called once the constructor of the base has run."""
        self.first = first
        if first == "fourier":
            self.register_buffer("fourier_key", torch.randint(2**62, (1,)))
        if first == "learned":
            entries = torch.randn(self.setting.max_length, *self.state_shape)
            self.table = nn.Parameter(entries * 0.5**0.5)

    def frequencies(self) -> Tensor:
        """Of `rope`, of `fourier`, or none."""
        if self.first == "rope":
            return super().frequencies()
        if self.first == "learned":
            return torch.zeros(0, dtype=torch.float64)
        assert isinstance(self.fourier_key, Tensor)
        count = self.setting.head_dim // 2
        uniform = (words(self.fourier_key, 2 * count)[0].to(torch.float64) + 0.5) / 2**32
        size, turn = uniform.chunk(2)
        normal = (-2 * size.log()).sqrt() * (2 * math.pi * turn).cos()
        return normal.abs().sort(descending=True).values

    def rows(self, index: Tensor, seqs: Sequences, dtype: torch.dtype) -> Tensor:
        """The table's states, [B or 1, T, *shape], for a model of type `dtype`."""
        longest = seqs.tokens.shape[1] if seqs.starts is None else seqs.longest
        if longest + seqs.offset > len(self.table):
            raise UsageError(
                f"start=learned has a table of {len(self.table)} states, too short for index "
                f"{longest + seqs.offset - 1}; take start=rope, which has no end"
            )
        return self.table.to(torch.promote_types(torch.float32, dtype))[index]

    def parameter_groups(self) -> Iterable[tuple[nn.Parameter, dict[str, float]]]:
        """The base's, and no weight decay on the table."""
        yield from super().parameter_groups()
        if self.first == "learned":
            yield self.table, {"weight_decay": 0.0}
