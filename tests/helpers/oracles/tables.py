"""Oracles of what is added to token embeddings: by a token's index, or by its place in its number.

From the papers' formulas (see decoder.py).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.helpers.oracles.decoder import NoPE, Row
from tests.helpers.oracles.rotary import RoPE


def abacus_indices(tokens: Sequence[int], digits: Sequence[int], start: int) -> list[int]:
    """0 for what is no digit; the digits of a run get start + 1, start + 2, ... from its first, the
    least significant one if numbers are reversed (arXiv 2405.17399)."""
    indices = []
    for t, token in enumerate(tokens):
        if token not in digits:
            indices.append(0)
        elif t > 0 and tokens[t - 1] in digits:
            indices.append(indices[-1] + 1)
        else:
            indices.append(start + 1)
    return indices


def coupling_indices(
    tokens: Sequence[int], digits: Sequence[int], separators: Sequence[int], s: int
) -> list[int]:
    """A digit of place r (0: the least significant, which stands first) gets s + 1 + r, in operands
    and answer alike; a separator s; any other token 0 (arXiv 2405.20671, without zero-padding)."""
    indices = []
    place = 0
    for token in tokens:
        if token in digits:
            indices.append(s + 1 + place)
            place = place + 1
        else:
            indices.append(s if token in separators else 0)
            place = 0
    return indices


def mirrored_indices(string: int, answer: int, rest: int, s: int) -> list[int]:
    """The digits of a string s, s + 1, ...; '=' the next; the digits of the answer from one less
    downwards; other tokens 0 (reversal in the code of arXiv 2405.20671).

    string, answer, rest  their numbers of tokens
    """
    upwards = [s + i for i in range(string)]
    downwards = [s + string - 1 - j for j in range(answer)]
    return [*upwards, s + string, *downwards, *[0] * rest]


def bipe_indices(tokens: Sequence[int], separators: Sequence[int]) -> list[tuple[int, int]]:
    """(segment, place in it), both from 0; a separator is the last token of the segment that it
    closes (arXiv 2401.16421)."""
    pairs = []
    segment, place = 0, 0
    for token in tokens:
        pairs.append((segment, place))
        place = place + 1
        if token in separators:
            segment, place = segment + 1, 0
    return pairs


class Sinusoidal(NoPE):
    """x sqrt(D) + [sin(t w_0) .. sin(t w_{D/2-1}), cos(t w_0) .. cos(t w_{D/2-1})], w_k =
    10000^(-2k/D) (Vaswani et al. 2017, arXiv 1706.03762, section 3.4 and 3.5)."""

    def embed(self, t: int, x: Tensor) -> Tensor:
        width = len(x)
        waves = [10_000.0 ** (-2.0 * k / width) for k in range(width // 2)]
        sines = [math.sin(self.index[t] * w) for w in waves]
        cosines = [math.cos(self.index[t] * w) for w in waves]
        return math.sqrt(width) * x + torch.tensor(sines + cosines, dtype=x.dtype)


class Table(NoPE):
    """x + table[index]: learned positions (Gehring et al. 2017, arXiv 1705.03122), and those of
    Abacus and Position Coupling, which differ in the index alone."""

    def embed(self, t: int, x: Tensor) -> Tensor:
        return x + self.weights["pe.table"][self.index[t]]


class BiPE(RoPE):
    """x + table[place in the segment], and RoPE by the segment's number (arXiv 2401.16421)."""

    def __init__(self, row: Row) -> None:
        pairs = bipe_indices(row.tokens, row.pe.setting.separator_ids)
        segments, self.places = zip(*pairs, strict=True)
        super().__init__(row, [segment * row.scale for segment in segments])
        if row.pe.training:  # find the row of the table that the first token, of place 0, is given
            table = row.pe.get_parameter("table").detach()
            zeros = torch.zeros(*row.seqs.tokens.shape, table.shape[1], dtype=table.dtype)
            first = row.pe.embed(zeros, row.pe.indices(row.seqs), row.seqs)[row.row, 0].detach()
            (shift,) = [p for p in range(len(table)) if torch.equal(table[p], first)]
            self.places = tuple(place + shift for place in self.places)

    def embed(self, t: int, x: Tensor) -> Tensor:
        table = self.weights["pe.table"]
        return x + table[min(self.places[t], len(table) - 1)]
