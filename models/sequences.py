"""What every hook of an encoding may know of a batch besides its features.

Legend: B batch, T tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Sequences:
    """A batch of right-padded rows.

    tokens        int64 [B, T]
    final_length  int64 [B]  upper bound of each row's length, known from its prompt alone; never
                  read off padding or the true answer, whose length would tell of a last carry
    key           int64 [B]  each row's only source of randomness, so that resuming, padding and
                  the number of processes change nothing
    offset        index of the first token (studies of translation shift it)
    watch         what studies a forward: the decoder calls watch(i, "state", state) with the state
                  that enters block i; None otherwise
    """

    tokens: Tensor
    final_length: Tensor
    key: Tensor
    offset: int = 0
    watch: Callable[[int, str, Any], None] | None = None
