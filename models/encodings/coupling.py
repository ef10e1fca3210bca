import torch
from torch import Tensor

from tape_arith.models.encoding import Setting, check_least, constant
from tape_arith.models.families.learned_table import PlaceTable, usual_shift


class Coupling(PlaceTable):
    """A learned vector for each group of coupled tokens: equal places, and the signs.

    x_t <- x_t + table[p_t], p_t = s + 1 + r for the digit of place r (0: least significant) of
    either operand and of the answer, s for '+' and '=', 0 for every other token (as in the authors'
    code, HanseulJo/position-coupling). `table` [`s` + L1 + 1, D] starts from N(0, 0.02), without
    weight decay. In training each sequence draws s, uniform in 1 .. `s`; at test time s = 1.
    `s` defaults to 1.25 x the digits of the longest tested operand, as Abacus's k.

    Unlike in the paper, operands are not padded with zeros to one length, they are written from
    their least significant digit on, and s is drawn from one range for all lengths. Attention is
    NoPE's.
    """

    kind = "task-structured"
    paper = "Cho et al. 2024, arXiv 2405.20671"
    stream = b"couple"

    def __init__(self, setting: Setting, *, s: int | None = None) -> None:
        check_least("coupling", 1, s=s)
        super().__init__(setting, 1, max(usual_shift(setting), 1) if s is None else s)

    def has_index(self, tokens: Tensor, digits: Tensor) -> Tensor:
        return digits | torch.isin(tokens, constant(self.setting.separator_ids, tokens))
