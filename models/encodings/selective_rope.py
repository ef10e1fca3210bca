"""Selective RoPE: rotations whose angles the tokens determine. R: rank."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import (
    INITIAL_STD,
    PositionalEncoding,
    PositionalLayer,
    Setting,
    Workload,
    check_least,
)
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import geometric_frequencies, rotate, rotation
from tape_arith.models.sequences import Sequences, pack, unpack

BASE = 500_000.0
TAPS = 4
EPSILON = 1e-6


class Temperature(NamedTuple):
    """The angle of one unit of phi, in radians, [F]."""

    temperature: Tensor


class SelectiveRoPELayer(PositionalLayer):
    def __init__(self, setting: Setting, rank: int) -> None:
        super().__init__()
        self.num_heads = setting.num_heads
        channels = setting.num_heads * setting.head_dim // 2
        self.down = nn.Linear(setting.hidden_size, rank, bias=False)
        self.up = nn.Linear(rank, channels, bias=False)
        nn.init.normal_(self.down.weight, std=INITIAL_STD)
        nn.init.normal_(self.up.weight, std=INITIAL_STD)
        self.taps = nn.Parameter(torch.randn(channels, TAPS) * INITIAL_STD)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Temperature, seqs: Sequences
    ) -> tuple[Tensor, Temperature]:
        with torch.autocast(x.device.type, enabled=False):
            angles = self.cumulative_angles(x, seqs) * state.temperature
            by = rotation(angles.cos(), angles.sin())
        return super().attend(x, rotate(q, by), rotate(k, by), v, state, seqs)

    def cumulative_angles(self, x: Tensor, seqs: Sequences) -> Tensor:
        """Sum phi over the tokens up to each one: [B, T, H, F], from x [B, T, D]."""
        x = x.to(torch.promote_types(torch.float32, x.dtype)).unflatten(-1, (self.num_heads, -1))
        x = (x * (x.square().sum(-1, keepdim=True) + EPSILON).rsqrt()).flatten(-2)
        phi = F.linear(F.linear(x, self.down.weight.to(x.dtype)), self.up.weight.to(x.dtype))
        # Neither conv nor the sum may include tokens of the sequence packed before.
        rows = phi if seqs.starts is None else unpack(phi, seqs)
        tokens, taps = rows.shape[1], self.taps.to(x.dtype)
        padded = F.pad(rows, (0, 0, TAPS - 1, 0))
        mixed = sum(padded[:, j : j + tokens] * taps[:, j] for j in range(1, TAPS))
        total = (padded[:, :tokens] * taps[:, 0] + mixed).cumsum(1)
        total = total if seqs.starts is None else pack(total, seqs)
        return total.unflatten(-1, (self.num_heads, -1))


class SelectiveRoPE(PositionalEncoding):
    """RoPE whose angle is a running sum of learned functions of the tokens, in each layer.

    phi_t = conv(W2 W1 norm(x_t)); the angle of token t in head h and frequency f is
    T_f (phi_1 + ... + phi_t)[h, f], and q and k are turned by it as in RoPE. x is the block's
    normalized input, norm divides each of its H parts by the part's length, W1 is [R, D] and W2
    [H F, R], conv filters each channel causally over 4 tokens, and T_f = 500000^(-f/F) is not
    trained. W1, W2 and conv start from N(0, 0.02), so that tokens hardly rotate at first.

    This code agrees line by line with the authors' (timurcarstensen/selective-rope,
    modules/rotary.py, 9d06c33), but leaves out its phase gate and bias, which are off in its
    configurations, and skip_conv, whose first difference undoes the sum.

    rank  R, the width between W1 and W2
    """

    label = "Selective RoPE"
    kind = "content"
    paper = "Movahedi et al. 2025, arXiv 2511.17388"

    def __init__(self, setting: Setting, *, rank: int = 32) -> None:
        check_least("selective-rope", 1, rank=rank)
        if setting.head_dim % 2:
            raise UsageError(f"selective-rope needs an even head_dim, not {setting.head_dim}")
        if setting.hidden_size % setting.num_heads:
            raise UsageError(
                f"selective-rope divides hidden_size={setting.hidden_size} evenly among "
                f"{setting.num_heads} heads; choose a multiple"
            )
        self.rank = rank
        super().__init__(setting)

    def layer(self, i: int) -> PositionalLayer:
        return SelectiveRoPELayer(self.setting, self.rank)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> Temperature:
        temperature = geometric_frequencies(self.setting.head_dim // 2, BASE, x.device)
        return Temperature(temperature.to(torch.promote_types(torch.float32, x.dtype)))

    def multiply_adds(self, extent: Workload) -> int:
        """Count the products with W1 and W2."""
        return extent.tokens * self.rank * (self.setting.hidden_size + self.setting.width // 2)
