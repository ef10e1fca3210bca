"""Every encoding equals the loops of `naive.py`: logits and gradients, in float64.

All parameters are perturbed first. A fresh TAPE is RoPE and a fresh yarn ramp may be flat: without
the perturbation much of what is compared here would be zero on both sides.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.sequences import Sequences
from tests.models import naive

SHAPE = naive.Shape(num_layers=3, num_heads=2, head_dim=8)
LENGTHS = (8, 6)
VOCABULARY = 19
PAD = 0
LOGITS_TOLERANCE = 1e-10
GRADIENT_TOLERANCE = 1e-9

# From the weights, the row's indices, its final length and the encoding's settings.
Oracle = Callable[[naive.Weights, list[int], int, PositionalEncoding], naive.NoPE]


@dataclass(frozen=True)
class Case:
    name: str
    oracle: Oracle
    trained_length: int = 28
    final_lengths: tuple[int, int] = (11, 9)


def nope(w: naive.Weights, index: list[int], final: int, pe: PositionalEncoding) -> naive.NoPE:
    return naive.NoPE(w, SHAPE, index)


def rope(w: naive.Weights, index: list[int], final: int, pe: PositionalEncoding) -> naive.NoPE:
    return naive.RoPE(w, SHAPE, index)


def tape(w: naive.Weights, index: list[int], final: int, pe: PositionalEncoding) -> naive.NoPE:
    return naive.TAPE(w, SHAPE, index)


def tape_heads(
    w: naive.Weights, index: list[int], final: int, pe: PositionalEncoding
) -> naive.NoPE:
    return naive.TAPEHeads(w, SHAPE, index)


def fire(w: naive.Weights, index: list[int], final: int, pe: PositionalEncoding) -> naive.NoPE:
    init_l = pe.init_l
    assert isinstance(init_l, int | float)
    return naive.FIRE(w, SHAPE, index, init_l)


def yarn(
    kind: type[naive.RoPE] | type[naive.TAPE] | type[naive.TAPEHeads],
    ramp: Callable[[int, int], list[float]],
) -> Oracle:
    def oracle(
        w: naive.Weights, index: list[int], final: int, pe: PositionalEncoding
    ) -> naive.NoPE:
        trained = pe.setting.trained_length
        gammas = ramp(SHAPE.head_dim, trained)
        thetas, magnitude = naive.yarn(SHAPE.head_dim, gammas, max(1.0, final / trained))
        return kind(w, SHAPE, index, thetas, magnitude)

    return oracle


# At a head of 8 channels the index ramp of 1,000 tokens is 1, 2/3, 1/3, 0 and that of 3,000 tokens
# starts at the second frequency; the paper's ramp of 124 tokens is 0.60, 0.03, 0, 0. One row is
# stretched by an uneven factor, the other is as short as the trained ones.
LONG = (1000, (2345, 900))
LONGER = (3000, (2900, 7777))
PAPER = (124, (244, 124))

CASES = [
    Case("nope", nope),
    Case("rope", rope),
    Case("rand-rope", rope),
    Case("fire", fire),
    # |l_multiplier| x 2 lies within the sequence: queries before it are normalized by it.
    Case("fire:init_l=2", fire),
    Case("tape", tape),
    Case("tape-heads", tape_heads),
    Case("rope+yarn", yarn(naive.RoPE, naive.index_ramp), *LONG),
    Case("rope+yarn", yarn(naive.RoPE, naive.index_ramp), *LONGER),
    Case("rope+yarn:ramp=paper", yarn(naive.RoPE, naive.paper_ramp), *PAPER),
    Case("tape+yarn", yarn(naive.TAPE, naive.index_ramp), *LONG),
    Case("tape+yarn:ramp=paper", yarn(naive.TAPE, naive.paper_ramp), *PAPER),
    Case("tape-heads+yarn", yarn(naive.TAPEHeads, naive.index_ramp), *LONG),
]


def perturbed(case: Case) -> Decoder:
    setting = Setting(
        num_layers=SHAPE.num_layers,
        num_heads=SHAPE.num_heads,
        head_dim=SHAPE.head_dim,
        hidden_size=12,
        trained_length=case.trained_length,
        max_length=max(2 * case.trained_length, *case.final_lengths),
        digit_ids=tuple(range(4, 14)),
        separator_ids=(14, 17),
        end_id=3,
    )
    config = DecoderConfig(VOCABULARY, SHAPE.num_layers, 12, SHAPE.num_heads, SHAPE.head_dim, 10)
    torch.manual_seed(7)
    # An extrapolation acts in evaluation only; nothing else here depends on the mode.
    decoder = Decoder(config, build(case.name, setting)).double().eval()
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
            # FIRE takes c and L by their size, so one layer has them negative.
            if name in ("pe.layers.1.c", "pe.layers.1.l_multiplier"):
                parameter.copy_(-parameter.abs())
    return decoder


def error(ours: Tensor, theirs: Tensor, least: float = 0.0) -> float:
    """Largest difference, relative to the largest of `theirs` and not to less than `least`."""
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=max(least, 1e-300)))


@pytest.mark.parametrize("offset", [5, 0])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.trained_length}")
def test_logits_and_gradients_equal_the_loops(case: Case, offset: int) -> None:
    decoder = perturbed(case)
    generator = torch.Generator().manual_seed(11)
    tokens = torch.randint(3, VOCABULARY, (2, max(LENGTHS)), generator=generator)
    real = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    tokens[~real] = PAD
    seqs = Sequences(tokens, torch.tensor(case.final_lengths), torch.tensor([5, 1234]), offset)
    projection = torch.randn(*tokens.shape, VOCABULARY, generator=generator, dtype=torch.float64)

    logits = decoder(seqs)
    torch.autograd.backward((logits * projection)[real].sum())

    weights = {n: p.detach().clone().requires_grad_() for n, p in decoder.named_parameters()}
    index = decoder.pe.indices(seqs).expand(2, -1)
    total = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(LENGTHS):
        oracle = case.oracle(
            weights, index[row, :length].tolist(), case.final_lengths[row], decoder.pe
        )
        expected = naive.decode(weights, SHAPE, tokens[row, :length].tolist(), oracle)
        assert error(logits[row, :length].detach(), expected.detach()) < LOGITS_TOLERANCE
        total = total + (expected * projection[row, :length]).sum()
    torch.autograd.backward(total)

    # What no branch of the loops came by (FIRE's L, where every query lies beyond it) is zero.
    zero = torch.zeros(())
    gradients = {n: zero.expand_as(w) if w.grad is None else w.grad for n, w in weights.items()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in decoder.named_parameters():
        ours, theirs = parameter.grad, gradients[name]
        assert ours is not None, f"{name} has no gradient"
        # FIRE's last bias moves all scores of a row alike, so that its gradient is rounding on
        # both sides: all is compared to a hundred-thousandth of the largest gradient at least.
        assert error(ours, theirs, 1e-5 * largest) < GRADIENT_TOLERANCE, name


def test_the_oracle_sees_each_encoding() -> None:
    """The loops themselves tell the encodings apart, or agreement would mean little."""
    decoder = perturbed(Case("tape", tape))
    weights = dict(decoder.named_parameters())
    tokens = [9, 4, 15, 7, 8, 17]
    index = list(range(len(tokens)))
    nothing = naive.NoPE(weights, SHAPE, index)
    rotation = naive.RoPE(weights, SHAPE, index)
    contextual = naive.TAPE(weights, SHAPE, index)
    with torch.no_grad():
        logits = [
            naive.decode(weights, SHAPE, tokens, pe) for pe in (nothing, rotation, contextual)
        ]
    assert error(logits[0], logits[1]) > 0.01
    assert error(logits[1], logits[2]) > 0.01
