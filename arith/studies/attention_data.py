"""What attention patterns say: where weight lies by distance, and whether it finds equal places.

Legend: B batch, T tokens, H heads, N layers, n problems, m pairs of a query and a key.
"""

import numpy as np
import torch
from torch import Tensor

from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.studies.attention_patterns import Patterns
from tape_arith.arith.studies.watch import Integers, batches, watched
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.decoder import Decoder


def patterns(
    decoder: Decoder, problems: Problems, keys: Integers, among: Integers, device: str
) -> Patterns:
    """Of the problems at the places `among`, one at the least. Errors: as `watched`."""
    config = decoder.config
    longest = int(problems.lengths[among].max()) - 1  # the end token is no input
    shape = (config.num_layers, config.num_heads)
    back = torch.zeros(*shape, longest, dtype=torch.float64)
    place = torch.zeros(*shape, dtype=torch.float64)
    queries, uniform = np.zeros(longest), np.zeros(longest)
    chance = positions = 0.0
    for rows in batches(decoder, problems, keys, among):
        count, tokens = rows.inputs.shape
        seen = watched(decoder, sequences(rows, device))
        row, query, key = equal_places(
            problems.operand_lengths[rows.place], rows.prompt_lengths, rows.answer_tokens - 1
        )
        at = tuple(torch.from_numpy(index).to(device) for index in (row, query, key))
        for layer, weights in enumerate(seen.weights):
            back[layer, :, :tokens] += by_distance(weights).cpu()
            found = weights[at[0], :, at[1], at[2]]
            place[layer] += found.sum(0, dtype=torch.float64).cpu()
        places = np.arange(tokens)
        queries[:tokens] += count * (tokens - places)
        # Of the query at place t, 1 / (t + 1) on each key: summed over those that see so far back.
        uniform[:tokens] += count * np.cumsum(1 / (places[::-1] + 1))[::-1].copy()
        chance += float((1 / (query + 1)).sum())
        positions += len(np.unique(row * tokens + query))
    back /= torch.from_numpy(queries)
    return Patterns(
        by_distance=back.mean(1).numpy(),
        diagonal=back[..., 0].numpy(),
        place=(place / positions).numpy(),
        uniform=uniform / queries,
        chance=chance / positions,
        problems=len(among),
        positions=int(positions),
    )


def by_distance(weights: Tensor) -> Tensor:
    """Weight [B, H, T, T] summed over rows and queries by how far back the key is: [H, T]."""
    tokens = weights.shape[-1]
    place = torch.arange(tokens, device=weights.device)
    # Future keys, which have no weight, are counted with the diagonal.
    distance = (place[:, None] - place).clamp_min(0).flatten()
    of_pairs = weights.sum(0, dtype=torch.float64).flatten(-2)
    return of_pairs.new_zeros(len(of_pairs), tokens).index_add_(1, distance, of_pairs)


def equal_places(
    operand_lengths: Integers, prompt_lengths: Integers, answer_digits: Integers
) -> tuple[Integers, Integers, Integers]:
    """Row, query and key of each pair of an answer position and an operand's digit of the same
    place: int64 [m] each. Numbers stand least significant digit first, the first operand at 0, the
    second behind the operator; the logits of a query are those of the token after it.

    >>> row, query, key = equal_places(*map(np.array, ([[3, 2]], [7], [3])))  # 321+54=861
    >>> list(zip(query.tolist(), key.tolist()))
    [(6, 0), (6, 4), (7, 1), (7, 5), (8, 2)]
    """
    found = [
        (row, prompt - 1 + place, start + place)
        for row, ((first, second), prompt, digits) in enumerate(
            zip(
                operand_lengths.tolist(),
                prompt_lengths.tolist(),
                answer_digits.tolist(),
                strict=True,
            )
        )
        for place in range(digits)
        for start, length in ((0, first), (first + 1, second))
        if place < length
    ]
    row, query, key = np.array(found, dtype=np.int64).T
    return row, query, key


def maps(decoder: Decoder, problem: Problems, device: str) -> Floats:
    """The weights of one problem, [N, H, T, T]: query, key; without the end token, as it is scored.
    Its key for random choices is 0."""
    rows = next(batches(decoder, problem, np.zeros(1, np.int64), np.zeros(1, np.int64)))
    seen = watched(decoder, sequences(rows, device))
    return torch.cat(seen.weights).to(torch.float64).cpu().numpy()
