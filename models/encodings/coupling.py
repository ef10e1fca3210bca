"""Position coupling: tokens that belong together get one number."""

import torch
from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.digit_places import PlaceTable, operand_digits


class Coupling(PlaceTable):
    """A learned vector for each group of coupled tokens: equal places, and the signs.

    x_t <- x_t + table[p_t], p_t = s + 1 + r for the digit of place r (0: least significant) of
    either operand and of the answer, s for '+' and '=', 0 for every other token. `table` is
    [`s` + L1 + 1, D], N(0, 0.02) as the embeddings of tokens, without weight decay. In training one
    start a sequence, uniform in 1 .. `s`, drawn from its key; at test time it is 1. `s` defaults to
    1.25 x the digits of the longest tested operand, as Abacus's k.

    Otherwise than in the paper, operands are not padded with zeros to one length, they are written
    from their least significant digit on like the answer, and a start is drawn from one range for
    all lengths, not from what each leaves of it. The authors' current code
    (HanseulJo/position-coupling) numbers signs and digits as above.

    From `abacus` it differs in that the signs are coupled and shifted too, and that no start is 0.
    A place beyond `s` + the longest trained number is an untrained row; one beyond the table is an
    error. Attention is NoPE's.
    """

    kind = "task-structured"
    paper = "Cho et al. 2024, arXiv 2405.20671"
    stream = b"couple"
    separator_ids: Tensor

    def __init__(self, setting: Setting, *, s: int | None = None) -> None:
        if s is not None and s < 1:
            raise UsageError(f"coupling: s must be 1 or more, not {s}")
        super().__init__(setting, 1, max(5 * operand_digits(setting) // 4, 1) if s is None else s)
        ids = torch.tensor(setting.separator_ids)
        self.register_buffer("separator_ids", ids, persistent=False)

    def has_index(self, tokens: Tensor, digits: Tensor) -> Tensor:
        return digits | torch.isin(tokens, self.separator_ids)
