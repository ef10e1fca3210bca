"""Encodings under shifts of all indices, in training, and after an optimizer's step."""

from dataclasses import replace

import pytest
import torch

from tape_arith.arith.contracts.encoding import decoder_for, example_batch, forward
from tape_arith.arith.registry.locate import known_names
from tape_arith.models.encodings.t5 import T5
from tests.helpers.oracles.biases import t5_bucket
from tests.helpers.small_decoders import build, error, setting

NOT_SHIFTED = (
    *("sinusoidal", "learned:rows=200", "learned-offset:rows=200", "rand-sinusoidal"),
    *("fire:init_l=2", "rand-fire:init_l=2", "tape:form=non-equivariant"),
    *("tape:start=learned", "tape-heads:start=learned"),
)
# Indices below FIRE's threshold, whatever the perturbation made of L. Task-structured encodings
# number digits, and a table of random positions ends.
SHIFTED = (
    *(
        name
        for name in known_names("encoding")
        if name not in ("abacus", "coupling", "bipe", "nope", "rand-learned")
        and not any(other.split(":")[0] == name for other in NOT_SHIFTED[:6])
    ),
    *("fire:init_l=100000", "rand-fire:init_l=100000", "dape:base=alibi", "tape:form=vector"),
)


@pytest.mark.parametrize("name", [*SHIFTED, *NOT_SHIFTED])
def test_a_shift_of_all_indices(name: str) -> None:
    """Nothing to relative encodings, but to FIRE once t > L."""
    decoder, seqs = decoder_for(name), example_batch(40)
    far = 11 if "learned" in name else 1001
    change = error(forward(decoder, replace(seqs, offset=far)), forward(decoder, seqs))
    assert change < 1e-9 if name in SHIFTED else change > 1e-4


@pytest.mark.parametrize(
    "name",
    [n for n in known_names("encoding") if n not in ("abacus", "coupling", "learned-offset")],
)
def test_training_computes_what_evaluation_does(name: str) -> None:
    decoder, seqs = decoder_for(name), example_batch()
    assert torch.equal(forward(decoder.train(), seqs), forward(decoder.eval(), seqs))


@pytest.mark.parametrize(
    ("name", "max_distance"),
    [("t5", 128), ("t5:max_distance=244", 244), ("t5:max_distance=17", 17)],
)
def test_buckets_of_t5(name: str, max_distance: int) -> None:
    """All look back: with the bidirectional default of published code 16 of them would be left."""
    pe = build(name, setting())
    assert isinstance(pe, T5)
    expected = [t5_bucket(distance, 32, max_distance) for distance in range(400)]
    assert pe.buckets(torch.arange(400.0)).tolist() == expected


@pytest.mark.parametrize(("name", "most"), [("kerple-log", 5.0), ("kerple-power", 2.0)])
def test_kerple_is_kept_in_range(name: str, most: float) -> None:
    """Numbers out of range act as if they were not, and still learn, at distance 0 too."""
    pe, seqs = build(name, setting(num_heads=3)).double(), example_batch(9, rows=1)
    p, a = pe.get_parameter("p"), pe.get_parameter("a")
    p.data, a.data = p.new_tensor([-1.0, 1.5, 5.0]), p.new_tensor([-1.0, 0.0, 7.0])
    x = torch.zeros(1, 9, 24, dtype=torch.float64)
    before = pe.start(x, pe.indices(seqs), seqs).bias
    pe.after_step()
    assert p.tolist() == [0.01, 1.5, most] and a.tolist() == [0.01, 0.01, 7.0]
    after = pe.start(x, pe.indices(seqs), seqs).bias
    assert torch.equal(after, before)
    after.sum().backward()
    for parameter in (p, a):
        assert parameter.grad is not None and bool((parameter.grad != 0).all())
        assert bool(parameter.grad.isfinite().all())


def test_what_left_its_range_comes_back_and_learns() -> None:
    """A clamp in the forward alone would never let it: there is no gradient outside."""
    decoder = decoder_for("pope")
    for phase in decoder.pe.parameters():
        phase.data.fill_(0.1)
    decoder.pe.after_step()
    decoder(example_batch()).square().sum().backward()
    for phase in decoder.pe.parameters():
        assert not phase.any() and phase.grad is not None and bool((phase.grad != 0).all())
    dape = decoder_for("dape").pe
    dape.get_parameter("base.p").data.fill_(-1)
    dape.after_step()
    assert dape.get_parameter("base.p").unique().tolist() == pytest.approx([0.01])
