"""How encodings relate to each other, to shifts of all indices, and to their neutral parameters."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models import contract
from tape_arith.models.build import build
from tape_arith.models.contract import decoder_for, example_batch, forward
from tape_arith.models.decoder import Decoder
from tape_arith.models.encodings.kerple_log import KerpleLog
from tape_arith.models.names.locate import known_names
from tests.helpers.small_decoders import error, setting

SHIFTED = (
    *("alibi", "nape", "nape:slopes=geometric", "hard-alibi", "t5", "t5:max_distance=40", "shaw"),
    *("kerple-log", "kerple-power", "sandwich", "rand-alibi", "rand-rope"),
    *("rope", "rope-partial", "p-rope", "xpos", "pope", "selective-rope"),
    *("fox", "cope", "stick-breaking", "path", "dape", "dape:base=alibi"),
    # Every index is below its threshold, whatever the perturbation made of L.
    *("fire:init_l=100000", "rand-fire:init_l=100000"),
)
NOT_SHIFTED = (
    *("sinusoidal", "learned:rows=200", "learned-offset:rows=200", "rand-sinusoidal"),
    *("fire:init_l=2", "rand-fire:init_l=2"),
)


@pytest.mark.parametrize("name", [*SHIFTED, *NOT_SHIFTED])
def test_a_shift_of_all_indices(name: str) -> None:
    """Nothing to relative encodings, but to FIRE once t > L."""
    decoder, seqs = decoder_for(name), example_batch(40)
    far = 11 if "learned" in name else 1001
    change = error(forward(decoder, replace(seqs, offset=far)), forward(decoder, seqs))
    assert change < 1e-9 if name in SHIFTED else change > 1e-4


def fill(**values: float) -> Callable[[Decoder], None]:
    """Set parameters whose path ends with a key; two underscores stand for a dot."""

    def act(decoder: Decoder) -> None:
        for ending, value in values.items():
            paths = [n for n, _ in decoder.pe.named_parameters()]
            chosen = [n for n in paths if n.endswith(ending.replace("__", "."))]
            assert chosen
            with torch.no_grad():
                for path in chosen:
                    decoder.pe.get_parameter(path).fill_(value)

    return act


@pytest.mark.parametrize(
    ("name", "neutral", "other"),
    [
        ("fox", fill(gate__weight=0, gate__bias=1e4), "nope"),  # forgets nothing
        ("cope", fill(table=0), "nope"),
        ("path", fill(beta__weight=0, beta__bias=-1e4), "nope"),  # no steps
        ("shaw", fill(keys=0), "nope"),
        ("abacus", fill(table=0), "nope"),
        ("coupling", fill(table=0), "nope"),
        ("learned", fill(table=0), "nope"),
        ("t5", fill(table=0), "nope"),
        ("fire", fill(output__weight=0), "nope"),
        ("dape:base=alibi", fill(mlp_output__weight=0), "alibi"),
        ("rope-partial:fraction=1", None, "rope"),
        ("p-rope:p=1", None, "rope"),
        ("tape", fill(w2=0), "rope"),
        ("tape-heads", fill(wu=0, s=0), "rope"),
    ],
)
def test_with_neutral_parameters_it_is_another(
    name: str, neutral: Callable[[Decoder], None] | None, other: str
) -> None:
    decoder, seqs = decoder_for(name), example_batch(40)
    plain = decoder_for(other)
    plain.load_state_dict({n: p for n, p in decoder.state_dict().items() if n[:3] != "pe."})
    if neutral is not None:
        assert error(forward(decoder, seqs), forward(plain, seqs)) > 1e-3
        neutral(decoder)
    assert error(forward(decoder, seqs), forward(plain, seqs)) < 1e-12


@pytest.mark.parametrize("base", ["kerple-log", "fire"])
def test_dape_that_adapts_nothing_is_its_base(base: str) -> None:
    """With the base's own parameters, those of a layer inside that layer."""
    decoder, alone = decoder_for(f"dape:base={base}"), decoder_for(base)
    names: dict[str, Any] = dict(decoder.pe.named_parameters())
    with torch.no_grad():
        for name, parameter in alone.pe.named_parameters():
            layer, dot, rest = name.partition(".")[2].partition(".")
            names[f"layers.{layer}.base.{rest}" if dot else f"base.{name}"].copy_(parameter)
    fill(mlp_output__weight=0)(decoder)
    seqs = example_batch(2 * contract.TRAINED_LENGTH)
    assert error(forward(decoder, seqs), forward(alone, seqs)) < 1e-12


@pytest.mark.parametrize("name", ["fox", "cope", "stick-breaking", "path", "dape"])
def test_one_layer_sees_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike NoPE, for which the same check fails: a single layer gathers a bag of tokens."""
    monkeypatch.setattr(contract, "decoder_for", lambda name: decoder_for(name, num_layers=1))
    contract.check_order(name)
    with pytest.raises(AssertionError, match="order"):
        contract.check_order("nope")


NO_MODE = [n for n in known_names("encoding") if n not in ("abacus", "coupling", "learned-offset")]


@pytest.mark.parametrize("name", NO_MODE)
def test_training_computes_what_evaluation_does(name: str) -> None:
    decoder, seqs = decoder_for(name), example_batch()
    assert torch.equal(forward(decoder.train(), seqs), forward(decoder.eval(), seqs))


@pytest.mark.parametrize(("name", "most"), [("kerple-log", 5.0), ("kerple-power", 2.0)])
def test_kerple_is_kept_in_range(name: str, most: float) -> None:
    """What is out of range acts as if it were not, and it still learns, at distance 0 too."""
    pe = build(name, setting(num_heads=3)).double()
    assert isinstance(pe, KerpleLog)
    pe.p.data = torch.tensor([-1.0, 1.5, 5.0], dtype=torch.float64)
    pe.a.data = torch.tensor([-1.0, 0.0, 7.0], dtype=torch.float64)

    def bias() -> Tensor:
        seqs = example_batch(9, rows=1)
        x = torch.zeros(1, 9, pe.setting.hidden_size, dtype=torch.float64)
        total: Tensor = pe.start(x, pe.indices(seqs), seqs).bias
        return total

    before = bias().detach()
    pe.after_step()
    assert pe.p.tolist() == [0.01, 1.5, most] and pe.a.tolist() == [0.01, 0.01, 7.0]
    after = bias()
    assert torch.equal(after.detach(), before)
    after.sum().backward()
    for parameter in (pe.p, pe.a):
        assert parameter.grad is not None and bool((parameter.grad != 0).all())
        assert bool(parameter.grad.isfinite().all())


def test_phases_of_pope_come_back_into_their_range() -> None:
    """A clamp in the forward alone would never let them: there is no gradient outside."""
    decoder = decoder_for("pope")
    fill(phase=0.1)(decoder)
    decoder.pe.after_step()
    decoder(example_batch()).square().sum().backward()
    for phase in decoder.pe.parameters():
        assert not phase.any() and phase.grad is not None and bool((phase.grad != 0).all())


def test_dape_lets_its_base_clamp() -> None:
    decoder = decoder_for("dape")
    fill(p=-1, a=-1)(decoder)
    decoder.pe.after_step()
    for name in ("base.p", "base.a"):
        assert decoder.pe.get_parameter(name).detach().unique().tolist() == pytest.approx([0.01])
