"""Encodings in training and after an optimizer's step."""

import pytest
import torch

from tape_arith.arith.contracts.examples import decoder_for, example_batch, forward
from tape_arith.arith.registry.locate import known_names
from tape_arith.models.encodings.t5 import T5
from tests.helpers.oracles.biases import t5_bucket
from tests.helpers.small_decoders import build, setting


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
