"""Sort numbers of any length."""

from typing import Literal

import numpy as np

from tape_arith.arith.tasks.families.lists import ListOfNumbers, NumberList
from tape_arith.arith.tasks.families.numbers import Int64
from tape_arith.arith.tasks.families.writing import Field, Format, Writer
from tape_arith.arith.tasks.task import Axis


class Sort(ListOfNumbers):
    """Numbers in ascending order.

    >>> Sort().text("45,7,123")
    '54,7,321=7,54,321'
    >>> Sort(order="plain", pad=True).text("45,7,123")
    '045,007,123=7,45,123'

    order   "reversed": from the least significant digit on; "plain": as people write numbers
    pad     zeros up to the longest number
    spaces  most blanks at random places of the prompt
    """

    version = 1
    axes = (
        Axis("numbers", "numbers", counts="operands", shortest=2),
        Axis("digits", "digits"),
    )
    symbol = symbols = ","
    example = "45,7,123"

    def __init__(
        self,
        *,
        order: Literal["reversed", "plain"] = "reversed",
        pad: bool = False,
        spaces: int = 0,
    ) -> None:
        super().__init__(Format(order, pad, spaces=spaces))

    def answer_fields(self, drawn: NumberList, write: Writer) -> list[Field]:
        order = np.lexsort(drawn.values.transpose(2, 0, 1), axis=-1)  # the last place decides first
        # Numbers that a list lacks are 0 and so come first here; they move to the end.
        most = order.shape[1]
        ranks = (np.arange(most) - drawn.counts[:, None]) % most
        order = np.take_along_axis(order, ranks, 1)
        values = np.take_along_axis(drawn.values, order[:, :, None], 1)
        lengths = np.take_along_axis(drawn.lengths, order, 1)
        return self.listed(NumberList(values, lengths), write)

    def places(self, lengths: Int64) -> Int64:
        return lengths[:, 1]

    def answer_bound(self, lengths: Int64) -> Int64:
        counts, digits = lengths.T
        return counts * (digits + 1) - 1
