"""Dynamic NTK scaling: another base, by another law of the length."""

from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.errors import check_least
from tape_arith.models.extrapolations.ntk import NTK


class NTKDynamic(NTK):
    """Raise the base with the length of each problem, faster than NTK by `factor`.

    base' = base (a L/L0 - (a - 1))^(d/(d - 2)), a = `factor`, d rotated dimensions, L =
    final_length of the row, at least L0 (transformers' rope_type "dynamic", jquesnelle/yarn): a = 1
    is ntk. Those codes let L grow token by token; here it is fixed before decoding. `factor`
    defaults to max(1, L1 / L0), as their users set it to the extension they aim at.
    """

    kind = "at test time"
    paper = "Peng et al. 2023, arXiv 2309.00071"

    def __init__(self, *, factor: float | None = None) -> None:
        check_least("ntk-dynamic", 1, factor=factor)
        self.factor = factor

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        factor = self.factor
        if factor is None:
            factor = max(1.0, setting.max_length / setting.trained_length)
        return super().rescale(theta, 1 + factor * (s - 1), setting)
