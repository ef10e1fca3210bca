"""Every encoding of the folder, and every extrapolation on a rotary one, keeps the contract."""

from collections.abc import Callable

import pytest
import torch

from models import catalog, contract
from models.encodings.rope import RoPE
from models.encodings.tape import TapeLayer, TapeState

NAMES = [
    *catalog.names("encoding"),
    *(f"{rotary}+{name}" for name in catalog.names("extrapolation") for rotary in ("rope", "tape")),
]


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str, check: Callable[[str], None]) -> None:
    check(name)


def test_one_layer_of_nope_cannot_see_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception that proves the check of order: a single layer gathers a bag of tokens."""
    build = contract.decoder_for
    monkeypatch.setattr(contract, "decoder_for", lambda name: build(name, num_layers=1))
    with pytest.raises(AssertionError, match="order"):
        contract.check_order("nope")
    contract.check_order("rope")


def test_a_leak_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions in units of the present length know how much follows."""
    honest = RoPE.indices
    monkeypatch.setattr(
        RoPE, "indices", lambda self, seqs: honest(self, seqs) * seqs.tokens.shape[1]
    )
    with pytest.raises(AssertionError, match="prefix"):
        contract.check_prefix("rope")


def test_a_dead_parameter_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """TAPE whose update is thrown away, as in the released arithmetic code."""

    def thrown_away(self: TapeLayer, heads: object, mixed: object, state: TapeState) -> TapeState:
        return state

    monkeypatch.setattr(TapeLayer, "contextualize", thrown_away)
    with pytest.raises(AssertionError, match="gets no gradient"):
        contract.check_no_dead_parameter("tape")


def test_randomness_from_torch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RoPE.indices
    monkeypatch.setattr(
        RoPE, "indices", lambda self, seqs: honest(self, seqs) * int(torch.randint(1, 10**6, ()))
    )
    with pytest.raises(AssertionError):
        contract.check_deterministic("rope")


def test_padding_that_counts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RoPE.indices
    monkeypatch.setattr(
        RoPE, "indices", lambda self, seqs: honest(self, seqs) * seqs.tokens.shape[1]
    )
    with pytest.raises(AssertionError, match="padded"):
        contract.check_rows("rope")
