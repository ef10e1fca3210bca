"""Randomized positions: other indices, and nothing else.

Legend: B batch, T tokens, H heads.
"""

import dataclasses

import pytest
import torch

from tape_arith.models import contract
from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder
from tape_arith.models.encodings.rand_fire import RandFIRE
from tape_arith.models.errors import UsageError
from tape_arith.models.families.learned_table import LearnedTable
from tape_arith.models.families.randomized import Randomized
from tape_arith.models.flops import Workload
from tape_arith.models.names.locate import known_names
from tape_arith.models.sequences import Sequences
from tests.models.encodings.test_bias import setting

NAMES = [name for name in known_names("encoding") if name.startswith("rand-")]


def plain(decoder: Decoder, name: str) -> Decoder:
    """The decoder of the same weights whose positions are not randomized."""
    twin = contract.decoder_for(name.removeprefix("rand-"))
    weights = decoder.state_dict()
    if "pe.table" in weights:
        weights["pe.table"] = weights["pe.table"][: len(twin.state_dict()["pe.table"])]
    twin.load_state_dict(weights)
    return twin


def test_there_are_five() -> None:
    assert NAMES == ["rand-alibi", "rand-fire", "rand-learned", "rand-rope", "rand-sinusoidal"]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_not_its_plain_twin(name: str) -> None:
    """In a published suite RandPE is RoPE, bit for bit."""
    decoder, seqs = contract.decoder_for(name), contract.example_batch()
    change = contract.forward(decoder, seqs) - contract.forward(plain(decoder, name), seqs)
    assert float(change.abs().amax((1, 2)).min()) > 0.01


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("training", [True, False])
def test_two_draws_differ(name: str, training: bool) -> None:
    decoder, seqs = contract.decoder_for(name).train(training), contract.example_batch(rows=1)
    other = dataclasses.replace(seqs, key=seqs.key + 1)
    first, second, again = (contract.forward(decoder, s) for s in (seqs, other, seqs))
    assert float((first - second).abs().max()) > 0.01
    assert torch.equal(first, again)


@pytest.mark.parametrize("name", NAMES)
def test_all_is_in_the_indices(name: str) -> None:
    """With plain indices it is its plain twin, which sees nothing else of the draw."""
    decoder, seqs = contract.decoder_for(name), contract.example_batch()
    twin = plain(decoder, name)
    decoder.pe.indices = twin.pe.indices  # type: ignore[method-assign]
    assert torch.equal(contract.forward(decoder, seqs), contract.forward(twin, seqs))


@pytest.mark.parametrize("name", NAMES)
def test_a_sorted_subset_for_each_row(name: str) -> None:
    pe = build(name, setting())
    assert isinstance(pe, Randomized) and pe.l_max == 104
    seqs = contract.example_batch(20)
    index = pe.indices(seqs)
    assert index.shape == seqs.tokens.shape
    assert int(index.min()) >= 0 and int(index.max()) < 104 and bool((index.diff(dim=1) > 0).all())
    assert len({tuple(row) for row in index.tolist()}) == len(index)
    assert int(build(f"{name}:l_max=60", setting()).indices(seqs).max()) < 60


@pytest.mark.parametrize("name", NAMES)
def test_too_few_positions(name: str) -> None:
    with pytest.raises(UsageError, match="l_max=51 is less than the longest tested sequence, 52"):
        build(f"{name}:l_max=51", setting())
    pe = build(f"{name}:l_max=60", setting())
    with pytest.raises(UsageError, match="may grow to 61 tokens") as caught:
        pe.indices(contract.example_batch(final_length=61))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("rand-alibi", True),
        ("rand-rope", True),
        # Every index is below its threshold, whatever the perturbation made of L.
        ("rand-fire:init_l=100000", True),
        ("fire:init_l=100000", True),
        ("rand-fire:init_l=2", False),
        ("fire:init_l=2", False),
        ("rand-sinusoidal", False),
    ],
)
def test_a_shift_of_all_indices(name: str, same: bool) -> None:
    """Nothing to relative encodings, but to FIRE once t > L."""
    decoder, seqs = contract.decoder_for(name), contract.example_batch()
    shifted = contract.forward(decoder, dataclasses.replace(seqs, offset=500))
    change = float((shifted - contract.forward(decoder, seqs)).abs().max())
    assert change < 1e-11 if same else change > 1e-3


def test_alibi_of_a_row_is_that_of_its_indices() -> None:
    pe = build("rand-alibi", setting(num_heads=8))
    seqs = contract.example_batch(12)
    index = pe.indices(seqs)
    bias = pe.start(torch.zeros(3, 12, 16, dtype=torch.float64), index, seqs).bias
    assert bias.shape == (3, 8, 12, 12)
    for row in range(3):
        for h in range(8):
            for t in range(12):
                for i in range(t + 1):
                    expected = -(2.0 ** -(h + 1)) * int(index[row, t] - index[row, i])
                    assert float(bias[row, h, t, i]) == expected


def test_fire_makes_its_distances_for_every_row() -> None:
    """Its plain twin makes them once a batch: ten rows cost ten times as much here."""
    pe = build("rand-fire", setting())
    assert isinstance(pe, RandFIRE)
    one, ten = Workload(20, 400, 400), Workload(200, 4000, 400)
    numbers = 32 + 32 * 4
    assert [p.multiply_adds for p in pe.products(one)] == [400 * numbers] * 3
    assert [p.multiply_adds for p in pe.products(ten)] == [4000 * numbers] * 3
    fire = build("fire", setting())
    assert [p.multiply_adds for p in fire.products(ten)] == [400 * numbers] * 3


def test_options_of_fire_reach_it() -> None:
    pe = build("rand-fire:width=7:init_l=9:l_max=99", setting())
    assert isinstance(pe, RandFIRE)
    assert (pe.width, pe.init_l, pe.l_max) == (7, 9, 99)
    with pytest.raises(UsageError, match="width must be 1 or more"):
        build("rand-fire:width=0", setting())


def test_a_row_for_each_position() -> None:
    pe = build("rand-learned:l_max=60", setting())
    assert isinstance(pe, LearnedTable) and pe.table.shape == (60, 16)
    tokens = torch.zeros(200, 52, dtype=torch.int64)
    seqs = Sequences(tokens, torch.full((200,), 52), torch.arange(200))
    pe.embed(torch.zeros(200, 52, 16), pe.indices(seqs), seqs).sum().backward()
    assert pe.table.grad is not None and bool((pe.table.grad > 0).all())
    shifted = dataclasses.replace(seqs, offset=1)
    with pytest.raises(UsageError, match="index 60 lies past the end") as caught:
        pe.embed(torch.zeros(200, 52, 16), pe.indices(shifted), shifted)
    assert "\n" not in str(caught.value)
