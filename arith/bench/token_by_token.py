"""Decoding token by token as it is published: the yardstick of scoring by one pass.

Published code takes the cells one by one, 100 rows of one length each, and for every token of the
answer reads the whole sequence again. So does this loop, on a sample of cells spread over the grid.

Legend: n rows, P tokens of a prompt, A tokens of the longest answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.tasks.task import Problems, concatenate
from tape_arith.arith.tasks.vocabulary import EOS, PAD
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences


class Cell(NamedTuple):
    """The sampled problems of one cell: all prompts are of one length."""

    prompts: Tensor
    """int64 [n, P]"""
    answers: NDArray[np.int64]
    """int64 [n, A], PAD after each end token"""
    final_lengths: Tensor
    keys: Tensor


def lattice(digits: int, sides: int) -> list[tuple[int, int]]:
    """Cells in the middle of `sides` x `sides` equal parts of the grid.

    >>> lattice(80, 2)
    [(20, 20), (20, 60), (60, 20), (60, 60)]
    """
    middles = [round((2 * part + 1) * digits / (2 * sides)) for part in range(sides)]
    return [(i, j) for i in middles for j in middles]


def sampled(
    bucket: Bucket, cells: Sequence[tuple[int, int]], count: int
) -> list[tuple[Problems, NDArray[np.int64]]]:
    """The first `count` problems of each cell, one of each block, and their keys."""
    lengths = bucket.operand_lengths(0, count * bucket.num_pairs)
    sample = []
    for cell in cells:
        places = np.flatnonzero((lengths == cell).all(axis=1)).tolist()
        problems = concatenate([bucket.problems(place, place + 1) for place in places])
        keys = np.concatenate([bucket.keys(place, place + 1) for place in places])
        sample.append((problems, keys))
    return sample


def end_to_end(
    sample: Sequence[tuple[Problems, NDArray[np.int64]]],
) -> tuple[Problems, NDArray[np.int64]]:
    problems, keys = zip(*sample, strict=True)
    return concatenate(problems), np.concatenate(keys)


def cell_of(problems: Problems, keys: NDArray[np.int64], device: str) -> Cell:
    """Problems with prompts of one length, as the loop takes them."""
    (prompt,) = set(problems.prompt_lengths.tolist())
    ends = np.cumsum(problems.lengths)
    rows = [problems.tokens[end - n : end] for n, end in zip(problems.lengths, ends, strict=True)]
    answers = np.full((len(rows), int(problems.lengths.max()) - prompt), PAD, np.int64)
    for row, tokens in enumerate(rows):
        answers[row, : len(tokens) - prompt] = tokens[prompt:]
    prompts = torch.from_numpy(np.stack([tokens[:prompt] for tokens in rows]).astype(np.int64))
    return Cell(
        prompts.to(device),
        answers,
        torch.from_numpy(problems.final_lengths).to(device),
        torch.from_numpy(keys).to(device),
    )


def decoded(decoder: Decoder, cells: Sequence[Cell], hardware: Hardware) -> list[NDArray[np.bool_]]:
    """The yardstick over cells, as many at once as the suite takes batches at once."""
    return list(hardware.parallel_map(lambda cell: token_by_token(decoder, cell, hardware), cells))


def token_by_token(decoder: Decoder, cell: Cell, hardware: Hardware) -> NDArray[np.bool_]:
    """Which answers are exact, bool [n]: greedy decoding that reads the whole sequence again for
    each token, until every row has ended, or would be wrong as it is longer than any answer."""
    tokens, prompt = cell.prompts, cell.prompts.shape[1]
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(cell.answers.shape[1]):
        with torch.no_grad(), hardware.autocast():
            logits = decoder(Sequences(tokens, cell.final_lengths, cell.keys))[:, -1]
        following = logits.argmax(-1)
        tokens = torch.cat([tokens, following[:, None]], dim=1)
        ended |= following == EOS
        if ended.all():
            break
    found = np.full(cell.answers.shape, PAD, np.int64)
    found[:, : tokens.shape[1] - prompt] = tokens[:, prompt:].cpu().numpy()
    # What a row says after its end token is nobody's business.
    return np.asarray(((found == cell.answers) | (cell.answers == PAD)).all(axis=1))
