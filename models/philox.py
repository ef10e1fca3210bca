"""Random numbers as a function of a key and a counter: Philox 4x32-10 in torch.

Torch's own generators keep a state, which resuming, padding and the number of processes would
all disturb. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; checked
against the known answers of its authors in the tests.
"""

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


def words(key: Tensor, count: int, draw: int = 0) -> Tensor:
    """Draw `count` 32-bit words (in int64) for each key: int64 [n] -> int64 [n, count].

    Another `draw` (from 0 to 2^32 - 1) gives independent words.
    """
    blocks = -(-count // 4)
    counter = torch.arange(blocks, device=key.device).expand(len(key), blocks)
    zero = torch.zeros_like(counter)
    number = torch.full_like(counter, draw)
    k = ((key & LOW)[:, None], ((key >> 32) & LOW)[:, None])
    return torch.stack(philox((counter, number, zero, zero), k), -1).flatten(1)[:, :count]


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run ten rounds over 32-bit words held in int64; shapes broadcast."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        # A 64-bit product wraps into the sign bit; masking after the shift undoes that.
        ac, cc = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = (cc >> 32) & LOW ^ b ^ k0, cc & LOW, (ac >> 32) & LOW ^ d ^ k1, ac & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return a, b, c, d
