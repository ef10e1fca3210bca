"""FLOPs of a decoder by formula, and by torch's counter.

Only matrix products count, two FLOPs a multiply-add, as in torch.utils.flop_counter: norms,
softmax, rotations and the optimizer are none. On the plain twin of attention formula and counter
agree to the last digit (tests/training/test_flops.py); inside a kernel of Triton the counter sees
nothing, so there the formula is what counts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from torch.utils.flop_counter import FlopCounterMode

from tape_arith.models.decoder import DecoderConfig
from tape_arith.models.encoding import MatMul, PositionalEncoding, Workload


def padded(rows: int, tokens: int) -> Workload:
    """What plain attention works on: the full square of each row, padding and future included."""
    return Workload(rows * tokens, rows * tokens**2, tokens**2)


def causal(lengths: Sequence[int]) -> Workload:
    """What is needed of sequences so long: no padding, and the keys up to each query.

    >>> causal([1, 3])
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
    """Every matrix product of a forward, those of `encoding` included.

    Logits are taken of `answers` tokens, None: of all; what the last block does after attention
    is done for these alone.
    """
    answers = workload.tokens if answers is None else answers
    width = config.num_heads * config.head_dim
    after = width * config.hidden_size + 3 * config.hidden_size * config.mlp_size
    for block in range(config.num_layers):
        last = block == config.num_layers - 1
        yield MatMul(workload.tokens * config.hidden_size * 3 * width)
        yield MatMul(workload.pairs * width)  # scores
        yield MatMul(workload.pairs * width)  # weights times values
        yield MatMul((answers if last else workload.tokens) * after)
    yield MatMul(answers * config.hidden_size * config.vocabulary_size)
    yield from encoding.products(workload)


def forward_flops(products: Iterable[MatMul]) -> int:
    """FLOPs of a forward. Its MACs are half of them."""
    return sum(product.forward for product in products)


def training_flops(products: Iterable[MatMul]) -> int:
    """FLOPs of forward and backward; the optimizer multiplies no matrices."""
    return sum(product.training for product in products)


def useful_training_flops(
    config: DecoderConfig,
    encoding: PositionalEncoding,
    lengths: Sequence[int],
    answers: int | None = None,
) -> int:
    """FLOPs that a training step needs, for MFU: no padding, half of attention, nothing twice.

    `lengths` are those of the sequences as the decoder reads them, without the end token, which
    is never an input. With `answers`, the number of tokens that logits are taken of, nothing is
    counted that only the others would need.
    """
    needed = matmuls(config, encoding, causal(lengths), answers)
    return sum(product.useful for product in needed)


def counted(function: Callable[[], object]) -> int:
    """FLOPs of a call by torch's counter, which sees no kernel that is not torch's own."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()
