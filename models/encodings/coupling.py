import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.models.encoding import Setting, check_least, constant
from tape_arith.models.errors import UndefinedEncoding
from tape_arith.models.families.learned_table import PlaceTable, tokens_since, usual_shift
from tape_arith.models.sequences import Sequences


class Coupling(PlaceTable):
    """A learned vector for each group of coupled tokens: digits of equal places, and the signs.

    x_t <- x_t + table[p_t]. `table` [`s` + L1 + 1, D] starts from N(0, 0.02), without weight decay.
    In training each sequence draws s, uniform in 1 .. `s`; at test time s = 1.

    Tokens are coupled as in the authors' code (HanseulJo/position-coupling). Addition of two or
    more numbers, multiplication, copying: p_t = s + 1 + r for the digit of place r (0: least
    significant, or the first of a string) of operands and answer, s for the signs and '='.
    Reversing a string of n digits: s + r for its digit r, s + n for '=', and s + n - 1 down to s
    for the answer. 0 for every other token. Undefined for other problems: the authors couple a
    scratchpad at several levels (arXiv 2410.15787), and digits of lists not at all. Subtraction,
    which they lack, is coupled like addition, with the minus of an answer as a sign.

    Unlike in the paper, operands have no zeros that pad them to one length, they are written from
    their least significant digit on, and s has one range for all lengths. Attention is NoPE's.

    s  largest start in training; by default 1.25 x (n - 1), n the digits of the longest tested
       number, like Abacus's k
    """

    paper = "Cho et al. 2024, arXiv 2405.20671"
    told_by = "s"
    stream = b"couple"

    def __init__(self, setting: Setting, *, s: int | None = None) -> None:
        check_least("coupling", 1, s=s)
        if setting.coupled is None:
            raise UndefinedEncoding(
                "it couples digits as its authors do, and not those of lists, bit strings or "
                "scratchpads (a task of your own declares its pairs of digits in `coupled`)"
            )
        super().__init__(setting, 1, max(usual_shift(setting), 1) if s is None else s)

    def has_index(self, tokens: Tensor, digits: Tensor) -> Tensor:
        return digits | torch.isin(tokens, constant(self.setting.separator_ids, tokens))

    def places(self, digits: Tensor, seqs: Sequences) -> Tensor:
        count = super().places(digits, seqs)
        if self.setting.coupled == "alike":
            return count
        equals = seqs.tokens == self.setting.separator_ids[-1]
        since = tokens_since(equals, seqs)
        last = (torch.arange(since.shape[1], device=since.device) - since).clamp_min(0)
        # The number of digits of the string, read at '='.
        length = (F.pad(count[:, :-1], (1, 0)) * (seqs.place > 0)).gather(1, last)
        answer = (length - since).clamp_min(0)  # a wrong answer may be too long
        return torch.where(since > seqs.place, count - 1, answer)
