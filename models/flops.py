"""Count the FLOPs of a decoder from its sizes.

A multiply-add of a matrix product counts as two, as in torch.utils.flop_counter. Norms, softmax,
rotations and the optimizer count as none.
"""

from collections.abc import Iterator, Sequence

from tape_arith.models.decoder import DecoderConfig
from tape_arith.models.encoding import MatMul, PositionalEncoding, Workload


def causal_workload(lengths: Sequence[int]) -> Workload:
    """Compute the least work for these lengths: no padding, and only the keys up to each query.

    >>> causal_workload([1, 3])
    Workload(tokens=4, pairs=7, distances=6)
    """
    pairs = [length * (length + 1) // 2 for length in lengths]
    return Workload(sum(lengths), sum(pairs), max(pairs, default=0))


def matmuls(
    config: DecoderConfig,
    encoding: PositionalEncoding,
    workload: Workload,
    answers: int | None = None,
) -> Iterator[MatMul]:
    """Yield every matrix product of a forward, those of `encoding` included.

    Logits, and the last block after attention, are computed for `answers` tokens (None: all).
    """
    answers = workload.tokens if answers is None else answers
    width = config.num_heads * config.head_dim
    after = width * config.hidden_size + 3 * config.hidden_size * config.mlp_size
    for block in range(config.applied_layers):
        last = block == config.applied_layers - 1
        yield MatMul(workload.tokens * config.hidden_size * 3 * width)
        yield MatMul(workload.pairs * width)  # scores
        yield MatMul(workload.pairs * width)  # weights times values
        yield MatMul((answers if last else workload.tokens) * after)
    yield MatMul(answers * config.hidden_size * config.vocabulary_size)
    yield from encoding.products(workload)


def useful_training_flops(
    config: DecoderConfig,
    encoding: PositionalEncoding,
    lengths: Sequence[int],
    answers: int | None = None,
) -> int:
    """Count the FLOPs that a training step needs, for MFU: no padding, no repeated work.

    `lengths` exclude the end token, which is never an input.
    """
    return sum(p.useful for p in matmuls(config, encoding, causal_workload(lengths), answers))
