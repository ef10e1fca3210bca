"""Between sequences packed end to end and padded rows.

Legend: n sequences, T tokens packed, L the longest sequence.
"""

import torch
from torch import Tensor

from models.sequences import Sequences


def unpack(x: Tensor, seqs: Sequences) -> Tensor:
    """[1, T, ...] as rows [n, L, ...]. What stands after a row's end is of other sequences:
    harmless in causal attention."""
    assert seqs.starts is not None
    columns = torch.arange(seqs.longest, device=x.device)
    source = seqs.starts[:-1, None].long() + columns
    return x[0, source.clamp_max(x.shape[1] - 1)]


def pack(x: Tensor, seqs: Sequences) -> Tensor:
    """Rows [n, L, ...] end to end: [1, T, ...]."""
    return x[seqs.row[0], seqs.place[0]][None]
