"""What encodings start from, where their authors' code says it: nothing else would notice another
start, for all other tests move the weights first."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.encodings.fire import FIRE
from tape_arith.models.families.rotary import Rotary
from tests.models.encodings.test_bias import setting

WIDE = replace(setting(), num_layers=3, num_heads=8, head_dim=16, hidden_size=128, max_length=64)
FROM_NORMAL = {
    "path": ("down", "up", "taps", "beta.weight"),
    "selective-rope": ("down.weight", "up.weight", "taps"),
    "fox": ("gate.weight",),
    "tape-heads": ("wx", "wd"),
}


def drawn(name: str, parameter: str) -> Tensor:
    """A parameter of all layers that have it, one after another."""
    torch.manual_seed(0)
    found = [p for key, p in build(name, WIDE).named_parameters() if key.endswith(f".{parameter}")]
    assert found
    return torch.cat([p.detach().flatten() for p in found])


@pytest.mark.parametrize(
    ("name", "parameter"), [(name, p) for name, of in FROM_NORMAL.items() for p in of]
)
def test_weights_from_the_decoder_s_own_distribution(name: str, parameter: str) -> None:
    values = drawn(name, parameter)
    few = 4 / len(values) ** 0.5
    assert float(values.std()) == pytest.approx(0.02, rel=few)
    assert abs(float(values.mean())) < 0.02 * few
    # No uniform one of that deviation, whose values end at 0.035.
    assert float(values.abs().max()) > 0.045


@pytest.mark.parametrize(
    ("name", "parameter", "inputs"),
    [
        ("fire", "hidden.weight", 1),
        ("fire", "output.weight", 32),
        ("dape", "mlp_hidden.weight", 16),
        ("dape", "mlp_output.weight", 32),
        ("tape", "psi.weight", 16),
    ],
)
def test_weights_from_torch_s_uniform_distribution(name: str, parameter: str, inputs: int) -> None:
    """They start as torch's linear maps do, uniform within 1/sqrt(inputs)."""
    values, bound = drawn(name, parameter), inputs**-0.5
    few = 3 / len(values) ** 0.5
    assert float(values.abs().max()) <= bound
    assert float(values.abs().max()) > bound * (1 - few)
    assert float(values.std()) == pytest.approx(bound / 3**0.5, rel=few)


def test_defaults_of_options() -> None:
    """A recorded name without options must keep its meaning."""
    rank_of_path = build("path", WIDE).get_parameter("layers.0.down").shape[0]
    rank_of_selective_rope = build("selective-rope", WIDE).get_parameter("layers.0.down.weight")
    assert (rank_of_path, len(rank_of_selective_rope)) == (32, 32)
    assert build("cope", WIDE).get_parameter("layers.0.table").shape[0] == 64
    dape = build("dape", WIDE)
    assert dape.get_parameter("layers.0.mlp_hidden.weight").shape[0] == 32
    kerple = build("dape:base=kerple-log", WIDE)
    assert [n for n, _ in dape.named_parameters()] == [n for n, _ in kerple.named_parameters()]
    for other in ("alibi", "fire"):
        names = [n for n, _ in build(f"dape:base={other}", WIDE).named_parameters()]
        assert [n for n, _ in dape.named_parameters()] != names


@pytest.mark.parametrize(
    ("name", "turning"),
    # Of 16 dimensions 0.49 and 0.72 are 7.8 and 11.5, rounded down to an even number; of 8
    # frequencies 0.7 and 0.99 are 5.6 and 7.9.
    [
        ("rope-partial:fraction=0.49", 3),
        ("rope-partial:fraction=0.72", 5),
        ("p-rope:p=0.7", 5),
        ("p-rope:p=0.99", 7),
    ],
)
def test_a_part_of_the_frequencies_rounds_down(name: str, turning: int) -> None:
    pe = build(name, WIDE)
    assert isinstance(pe, Rotary)
    assert int((pe.spread(pe.frequencies()) > 0).sum()) == turning


@pytest.mark.parametrize("name", ["path", "fox"])
def test_gates_begin_half_open(name: str) -> None:
    assert not drawn(name, "beta.bias" if name == "path" else "gate.bias").any()


@pytest.mark.parametrize("trained_length", [28, 124])
def test_fire_interpolates_from_the_trained_length_on(trained_length: int) -> None:
    pe = build("fire", replace(setting(), trained_length=trained_length, max_length=244))
    assert isinstance(pe, FIRE) and pe.init_l == trained_length


@pytest.mark.parametrize("name", ["tape", "tape-heads", "tape:form=vector"])
def test_a_learned_start_turns_hardly(name: str) -> None:
    """The first state of every index is the identity and a little of its own."""
    torch.manual_seed(0)
    pe = build(f"{name}:start=learned", WIDE)
    table = pe.get_parameter("table").detach()
    half = WIDE.head_dim // 2
    rows = table if table.ndim == 3 else table[:, None]
    identity = torch.zeros_like(rows)
    identity[:, 0, :half] = 1
    if rows.shape[1] == 2:
        identity[:, 1, half:] = 1
    assert float((rows - identity).std()) == pytest.approx(0.02, rel=0.1)
    assert float((rows - identity).mean((0, 2)).abs().max()) < 0.002
