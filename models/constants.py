"""Numbers that are known beforehand, where tensors are."""

from collections.abc import Sequence

import torch
from torch import Tensor


def constant(numbers: Sequence[float], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A few `numbers`, in the type of `like` or in `dtype`, on its device; nobody waits for the
    device to end its work, as `new_tensor` and an index that is a list do."""
    return torch.tensor(numbers, dtype=dtype or like.dtype).to(like.device, non_blocking=True)
