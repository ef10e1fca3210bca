"""Joined encodings: each part embeds as it does alone, and one attends."""

import copy

import pytest
import torch
from torch import Tensor, nn

from tape_arith.arith.contracts.examples import decoder_for, example_batch, forward
from tape_arith.models.combination import Combination
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.encodings.abacus import Abacus
from tape_arith.models.encodings.fire import FIRE
from tape_arith.models.encodings.rope import RoPE
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences


def joined(name: str) -> Combination:
    pe = decoder_for(name).pe
    assert isinstance(pe, Combination)
    return pe


def test_modes_and_names_and_copies() -> None:
    decoder, fresh = decoder_for("abacus+fire"), decoder_for("abacus+fire")
    names = [name for name, _ in decoder.pe.named_parameters()]
    assert len(names) == len(set(names)) == 1 + 3 * 6
    assert names[0] == "parts.0.table" and names[1] == "parts.1.layers.0.c"
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    # Named parameters are all that a checkpoint holds.
    fresh.load_state_dict({name: weight.data for name, weight in decoder.named_parameters()})
    for other in (fresh, copy.deepcopy(decoder)):
        assert torch.equal(forward(other, example_batch()), forward(decoder, example_batch()))
        assert isinstance(other.pe, Combination)
        assert other.pe.layers is other.pe.attending.layers is not decoder.pe.layers
    for training in (True, False):
        decoder.train(training)
        assert all(module.training == training for module in decoder.pe.modules())


def test_needs_are_those_of_the_last_part() -> None:
    assert joined("abacus+tape").needs == decoder_for("tape").pe.needs
    abacus, rope = decoder_for("abacus").pe, decoder_for("rope").pe
    abacus.needs = abacus.needs._replace(packed=False)
    assert Combination({"abacus": abacus, "rope": rope}).needs.packed is False


def test_trained_as_each_part_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    pe = joined("abacus+tape-heads")
    groups = {id(parameter): wish for parameter, wish in pe.parameter_groups()}
    assert groups[id(pe.get_parameter("parts.0.table"))] == {"weight_decay": 0.0}
    names = {n for n, p in pe.named_parameters() if groups.get(id(p), {}).get("lr_factor")}
    assert names == {"parts.1.layers.0.s", "parts.1.layers.1.s"}
    stepped: list[object] = []
    for kind in (Abacus, FIRE):
        monkeypatch.setattr(kind, "after_step", lambda self: stepped.append(self))
    pe = joined("abacus+fire")
    pe.after_step()
    assert stepped == list(pe.parts)


def test_inert_is_inert_in_its_own_part_only() -> None:
    pe = joined("abacus+fire")
    assert pe.inert == tuple(f"parts.1.layers.{i}.output.bias" for i in range(3))

    class Biased(Abacus):
        def __init__(self, setting: Setting) -> None:
            super().__init__(setting)
            self.output = nn.Linear(2, 2)

    setting = pe.setting
    mixed = Combination({"biased": Biased(setting), "fire": FIRE(setting)})
    assert mixed.inert == pe.inert


def test_an_encoding_of_one_s_own() -> None:
    """The part that attends is known from the hooks it overrides, not from a list of names."""

    class Adds(PositionalEncoding):
        def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
            return x + 1

    class Starts(PositionalEncoding):
        def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
            return x

    setting = joined("abacus+rope").setting
    adds, starts, rope = Adds(setting), Starts(setting), RoPE(setting)
    assert Combination({"adds": adds, "rope": rope}).attending is rope
    assert Combination({"adds": adds, "starts": starts}).attending is starts
    with pytest.raises(UsageError, match="starts and rope"):
        Combination({"starts": starts, "rope": rope})
    # Where the text of a file hides that it attends, its name comes too early, and it still works.
    early = Combination({"rope": rope, "adds": adds})
    assert early.attending is rope and early.layers is rope.layers
