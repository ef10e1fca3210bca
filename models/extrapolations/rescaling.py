"""Change the frequencies of rotary encodings at test time: `rope+yarn`.

Legend: B rows, R frequencies of a schedule, L0 and L1 the longest trained and tested sequences.
"""

import math
from abc import abstractmethod
from copy import copy
from typing import Literal

import torch
from torch import Tensor

from tape_arith.models.encoding import PositionalEncoding, Setting, check_least
from tape_arith.models.errors import UsageError
from tape_arith.models.extrapolations.extrapolation import Extrapolation
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.sequences import Sequences

# YaRN keeps a frequency that turns BETA_FAST times or more within the trained length, and fully
# interpolates one that turns less than BETA_SLOW times (the paper's beta = 32 and alpha = 1).
BETA_FAST, BETA_SLOW = 32, 1


class Rescaling(Extrapolation):
    """Base: `rescale` changes the frequencies for sequences longer than the trained ones.

    scale  s: "problem" takes max(1, final_length / L0) of each row, "static" max(1, L1 / L0) for
           all rows, short ones too
    """

    def __init__(self, *, scale: Literal["problem", "static"] = "problem") -> None:
        self.scale = scale

    def __call__(
        self, theta: Tensor, final_length: Tensor, setting: Setting
    ) -> tuple[Tensor, Tensor]:
        """Return new frequencies, [B or 1, R], and the amplitude of cos and sin, [B or 1].

        All are float64 except final_length, int64 [B]. It is known before decoding, because a scale
        that grew token by token would rotate earlier keys again.
        """
        length = final_length
        if self.scale == "static":
            length = final_length.new_full((1,), setting.max_length)
        s = (length.to(torch.float64) / setting.trained_length).clamp_min(1.0)
        return self.rescale(theta, s, setting), self.amplitude(s)

    @abstractmethod
    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        """Compute frequencies [B or 1, R] from theta [R] and the scale s [B or 1]."""

    def amplitude(self, s: Tensor) -> Tensor:
        """Compute the factor of cos and sin, [B or 1], from the scale s [B or 1]."""
        return torch.ones_like(s)

    def why_unfit(self, theta: Tensor) -> str | None:
        """Say why this cannot change frequencies theta [R]; None if it can."""
        return None

    def why_unsupported(self, encoding: PositionalEncoding) -> str | None:
        name = type(encoding).__name__
        if not isinstance(encoding, Rotary):
            return f"changes the frequencies of a rotary encoding; {name} has none"
        with torch.device("cpu"):
            theta = encoding.frequencies().cpu()
            unfit = self.why_unfit(theta) if len(theta) else "it has no frequencies to change"
        reason = encoding.not_rescalable or unfit
        if not reason and not _start_rescales(encoding):
            reason = "its `start` does not take its angles from `cos_sin`, so nothing would change"
        return reason and f"cannot act on {name} here: {reason}"

    def apply(self, encoding: PositionalEncoding) -> None:
        assert isinstance(encoding, Rotary)
        encoding.rescaling = self


class PI(Rescaling):
    """Interpolate positions: every frequency divided by the per-problem scale.

    theta'_f = theta_f / s, so neighbouring digits are only 1/s positions apart. The paper's
    fine-tuning is left out.
    """

    name = "pi"
    paper = "Chen et al. 2023, arXiv 2306.15595"

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        return theta / s[:, None]


class NTK(Rescaling):
    """Raise the base until the lowest frequency is divided by the per-problem scale.

    base' = base s^(d/(d - 2)), d = 2R rotated dimensions: theta'_f = theta_f s^(-f/(R - 1)), so
    that the highest frequency is kept and the lowest is divided by s (NTK-aware interpolation in
    YaRN's paper; first posted by bloc97).
    """

    name = "ntk"
    paper = "Peng et al. 2023, arXiv 2309.00071"

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        count = len(theta)
        exponent = torch.arange(count, dtype=theta.dtype, device=theta.device) / (count - 1)
        return theta * s[:, None] ** -exponent

    def why_unfit(self, theta: Tensor) -> str | None:
        if len(theta) == 1:
            return "it has one frequency, which is the highest and the lowest; use pi"
        return (
            None if _is_geometric(theta) else "its frequencies are not powers of one base; use pi"
        )


class NTKDynamic(NTK):
    """Raise the base with the length of each problem, faster than NTK by `factor`.

    base' = base (a L/L0 - (a - 1))^(d/(d - 2)), a = `factor`, d rotated dimensions, L =
    final_length of the row, at least L0 (transformers' rope_type "dynamic", jquesnelle/yarn). a = 1
    gives ntk. In that code L grows token by token; here it is fixed before decoding.

    factor  a, 1 or more; by default max(1, L1 / L0), because users of that code set it to the
            intended extension
    """

    name = "ntk-dynamic"
    label = "Dynamic NTK"
    paper = "Peng et al. 2023, arXiv 2309.00071"

    def __init__(self, *, factor: float | None = None) -> None:
        check_least("ntk-dynamic", 1, factor=factor)
        super().__init__()
        self.factor = factor

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        factor = self.factor
        if factor is None:
            factor = max(1.0, setting.max_length / setting.trained_length)
        return super().rescale(theta, 1 + factor * (s - 1), setting)


class YaRN(Rescaling):
    """Interpolate slow frequencies and keep fast ones, by per-problem scale.

    theta'_f = theta_f [(1 - g_f)/s + g_f]; cos and sin are multiplied by 0.1 ln s + 1.

    ramp   g: "code" falls linearly in the *index* f, as in the authors' code, which keeps the
           fastest frequency at this suite's lengths; "paper" is linear in the number of rotations
           r = L0 theta / 2 pi, (r - 1)/31 clamped to [0, 1] (Eq. 18 and 19), which slows even
           theta = 1 by a fifth at L0 = 124
    """

    name = "yarn"
    paper = "Peng et al. 2023, arXiv 2309.00071"

    def __init__(
        self,
        *,
        ramp: Literal["code", "paper"] = "code",
        scale: Literal["problem", "static"] = "problem",
    ) -> None:
        super().__init__(scale=scale)
        self.by_index = ramp == "code"

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        keep = (_code_ramp if self.by_index else _paper_ramp)(theta, setting.trained_length)
        # At s = 1, keep + (1 - keep)/s could differ by rounding from the trained model.
        return theta * torch.where(s[:, None] > 1, (1 - keep) / s[:, None] + keep, 1.0)

    def amplitude(self, s: Tensor) -> Tensor:
        return 0.1 * s.log() + 1

    def why_unfit(self, theta: Tensor) -> str | None:
        if not self.by_index or _is_geometric(theta):
            return None
        return "its frequencies are not those that ramp=code counts; use yarn:ramp=paper"


def _is_geometric(theta: Tensor) -> bool:
    """Tell whether frequencies are base^(-f/R), f from 0, as formulas with base or f assume."""
    index = torch.arange(len(theta), dtype=theta.dtype)
    return torch.allclose(theta, theta[min(1, len(theta) - 1)] ** index)


def _start_rescales(encoding: Rotary) -> bool:
    """Tell whether `start`, which a subclass may override, calls the rescaling in evaluation."""
    calls: list[Tensor] = []

    def record(theta: Tensor, final_length: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
        calls.append(theta)
        return theta[None], torch.ones_like(theta[:1])

    encoding = copy(encoding)
    encoding.rescaling, encoding.training = record, False
    with torch.device(next((p.device for p in encoding.parameters()), "cpu")):
        ids = torch.zeros(1, 2, dtype=torch.int64)
        features = torch.zeros(1, 2, encoding.setting.hidden_size)
        encoding.start(features, ids, Sequences(ids, ids[:, 0] + 2, ids[:, 0]))
    return bool(calls)


def _code_ramp(theta: Tensor, trained_length: int) -> Tensor:
    """Compute g_f by index, as in jquesnelle/yarn; float64 [R]."""
    turns, count = trained_length / (2 * math.pi), theta.shape[-1]
    if turns <= 1:
        raise UsageError(
            f"yarn: a trained length of {trained_length} tokens is less than one turn of the "
            "fastest frequency; use ramp=paper"
        )
    # ln theta_f = -f step. A frequency alone is kept for any step.
    step = -theta[1].log() if count > 1 else torch.ones_like(theta[0])
    low = (math.log(turns / BETA_FAST) / step).floor().clamp_min(0)
    high = (math.log(turns / BETA_SLOW) / step).ceil().clamp_max(2 * count - 1)
    index = torch.arange(count, dtype=torch.float64, device=theta.device)
    # Where even the slowest frequency turns BETA_FAST times, low is beyond all of them.
    return 1 - ((index - low) / (high - low).clamp_min(1e-3)).clamp(0, 1)


def _paper_ramp(theta: Tensor, trained_length: int) -> Tensor:
    """Compute gamma(r) of the paper, r the rotations within the trained length; float64 [R]."""
    rotations = trained_length * theta / (2 * math.pi)
    return ((rotations - BETA_SLOW) / (BETA_FAST - BETA_SLOW)).clamp(0, 1)
