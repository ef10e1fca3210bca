"""What a study of attention measures: plain numbers, for tables and figures. No torch here.

Shapes: N layers, H heads, D tokens of the longest input.
"""

from dataclasses import dataclass

import numpy as np

from tape_arith.arith.scoring.grid import Floats


@dataclass(frozen=True)
class Patterns:
    """Means over a sample of problems; of layers and heads, the first one first.

    - by_distance float64 [N, D]: weight on the key so many tokens back, of all queries that have
      one and of all heads; entry 0 is the diagonal.
    - diagonal float64 [N, H]: weight of a token on itself.
    - place float64 [N, H]: the place-addressing score. The answer's digit of place r (0 the least
      significant) is predicted by the token before it, '=' for r = 0; the score is the weight that
      this query puts on the digits of place r of both operands, or on that of the one that is long
      enough. Digits that neither operand has (a last carry) and the end token do not count.
    - uniform float64 [D] and chance: by_distance and place of a query that attends to everything
      it sees alike.
    - problems, positions: over how many problems, and over how many answer positions, these are
      means; each position weighs the same.
    """

    by_distance: Floats
    diagonal: Floats
    place: Floats
    uniform: Floats
    chance: float
    problems: int
    positions: int

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head of the highest place-addressing score, counted from 0."""
        layer, head = np.unravel_index(int(self.place.argmax()), self.place.shape)
        return int(layer), int(head)
