"""The formula against torch's counter, on plain attention, and against numbers worked by hand."""

from collections.abc import Iterable

import pytest
import torch

from tape_arith.arith.registry.load import load_classes
from tape_arith.arith.registry.locate import known_names
from tape_arith.models.build import build_decoder
from tape_arith.models.decoder import DecoderConfig
from tape_arith.models.encoding import MatMul, Setting
from tape_arith.models.flops import causal_workload, matmuls, useful_training_flops
from tape_arith.models.sequences import Sequences
from tests.helpers.small_decoders import build, counted, padded_workload, setting_of
from tests.models.test_oracles import ABLATIONS

# Three blocks; one, whose state no block reads; heads together wider than hidden; one head.
SIZES = {
    "three blocks": DecoderConfig(19, 3, 16, 2, 8, 24),
    "one block": DecoderConfig(19, 1, 24, 3, 8, 16),
    "wide heads": DecoderConfig(31, 2, 20, 4, 10, 7),
    "one head": DecoderConfig(7, 4, 12, 1, 6, 5),
}
# Every encoding, and options under which one multiplies otherwise than by default.
NAMES = [
    *known_names("encoding"),
    *ABLATIONS,
    "coupling+fire",
    "aug-rope",
    "tape:clamp=1.5",
    "tape:start=learned",
    "tape:context=no-attention:form=non-equivariant:start=learned",
    "tape-heads:start=learned",
    "tape-heads:context=no-attention:start=learned",
]
# Rows and tokens; of those, answers or None for all.
BATCHES = [(3, 20, None), (1, 9, 4), (5, 33, 37), (2, 1, None)]
LOOPED = {
    "looped": DecoderConfig(19, 2, 16, 2, 8, 24, "deepnorm", 2, True),
    "one looped block": DecoderConfig(19, 1, 24, 3, 8, 16, loops=2),
}
# One of each way to count; these meet every size and every batch.
FAMILIES = ["fire", "tape-heads"]
LOOPED_NAMES = [*FAMILIES, "tape", "dape", "path", "repo"]


def setting(config: DecoderConfig) -> Setting:
    return setting_of(
        config,
        trained_length=16,
        max_length=64,
        digit_ids=(0, 1, 2, 3),
        separator_ids=(4, 5),
        end_id=6,
    )


def batch(rows: int, tokens: int, answers: int | None) -> tuple[Sequences, torch.Tensor | None]:
    """Rows of unequal length, right-padded with zeros, and `answers` of their tokens."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 7, (rows, tokens), generator=generator)
    for row in range(1, rows):
        ids[row, tokens - row :] = 0
    places = None
    if answers is not None:
        places = torch.randperm(rows * tokens, generator=generator)[:answers].sort().values
    return Sequences(ids, torch.full((rows,), min(tokens + 2, 64)), torch.arange(rows)), places


def forward_flops(products: Iterable[MatMul]) -> int:
    return sum(product.forward for product in products)


@pytest.mark.parametrize(
    ("name", "size", "rows", "tokens", "answers"),
    [
        *((name, "wide heads", 2, 17, 9) for name in NAMES),
        *((name, "looped", 3, 20, None) for name in LOOPED_NAMES),
        *((name, "one looped block", 1, 9, 4) for name in FAMILIES),
        *(
            (name, size, *batch)
            for name in FAMILIES
            for size, batch in zip([*SIZES, "one block"], [*BATCHES, BATCHES[1]], strict=True)
        ),
    ],
)
def test_formula_and_counter_agree(
    name: str, size: str, rows: int, tokens: int, answers: int | None
) -> None:
    config = {**SIZES, **LOOPED}[size]
    decoder = build_decoder(config, load_classes(name), setting(config), seed=0)
    seqs, places = batch(rows, tokens, answers)
    parameters = list(decoder.parameters())
    with torch.no_grad():
        forward = counted(lambda: decoder.eval()(seqs, places))
    step = counted(lambda: torch.autograd.grad(decoder.train()(seqs, places).sum(), parameters))
    formula = list(matmuls(config, decoder.pe, padded_workload(rows, tokens), answers))
    assert forward_flops(formula) == forward
    assert sum(product.training for product in formula) == step


def test_by_hand() -> None:
    """Two layers, D = 4, two heads of 2, M = 3, V = 5; rows of 2 and 3 tokens."""
    config = DecoderConfig(5, 2, 4, 2, 2, 3)
    rope = build("rope", setting(config))
    weights = 2 * (4 * 12 + 4 * 4 + 4 * 6 + 3 * 4)  # qkv, output, gates and values, down
    pairs = 1 + 2 + 1 + 2 + 3
    attention = 2 * 2 * pairs * 4  # layers, scores and values, width
    multiply_adds = 5 * weights + attention + 5 * 4 * 5
    assert causal_workload([2, 3]) == (5, pairs, 6)
    assert forward_flops(matmuls(config, rope, causal_workload([2, 3]))) == 2 * multiply_adds
    assert useful_training_flops(config, rope, [2, 3]) == 6 * multiply_adds
    # Four answers: the output projection and the MLP of the last block miss one token.
    fewer = (4 * 4 + 4 * 6 + 3 * 4) + 4 * 5
    assert useful_training_flops(config, rope, [2, 3], 4) == 6 * (multiply_adds - fewer)
