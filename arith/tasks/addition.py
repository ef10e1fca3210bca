"""Addition of two numbers of any length."""

import numpy as np
import numpy.typing as npt

from tape_arith.arith.tasks.carry_chains import longest_chains, operands_with_chains
from tape_arith.arith.tasks.task import Digits, Int64, Task


class Addition(Task):
    """The sum, all numbers written from their least significant digit on.

    >>> Addition().text(48, 5)
    '84+5=35'
    >>> Addition().text(999, 1)
    '999+1=0001'
    """

    version = 1
    symbol = "+"

    def answer_width(self, max_digits: int) -> int:
        return max_digits + 1

    def answer(self, a: Digits, b: Digits) -> Digits:
        count, width = a.values.shape
        total = np.zeros((count, width + 1), dtype=np.uint8)
        np.add(a.values, b.values, out=total[:, :width])
        # All carries at once, until none is left: some seven rounds, where going from digit to
        # digit takes one round a digit. On the flat array the place after a digit is its next
        # higher one; no row spills into the next, for its last place holds at most a carry.
        flat = total.reshape(-1)
        while (carries := (flat > 9).view(np.uint8)).any():
            flat -= 10 * carries
            flat[1:] += carries[:-1]

        longer = np.maximum(a.lengths, b.lengths)
        last_carry = total[np.arange(count), longer] != 0
        return Digits(total, longer + last_carry)

    def carry_operands(
        self, operand_lengths: Int64, halves: npt.NDArray[np.uint32]
    ) -> tuple[Digits, Digits]:
        return operands_with_chains(operand_lengths, halves)

    def carry_chains(self, a: Digits, b: Digits) -> Int64:
        return longest_chains(a, b)
