"""What encodings start from, what their options default to, and what decays.

The other tests move the weights first, so that nothing else would notice another start.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.names.locate import known_names
from tests.helpers.small_decoders import setting

WIDE = setting(num_layers=3, num_heads=8, head_dim=16, hidden_size=128, max_length=64)
FROM_NORMAL = {
    "path": ("down", "up", "taps", "beta.weight"),
    "selective-rope": ("down.weight", "up.weight", "taps"),
    "fox": ("gate.weight",),
    "tape-heads": ("wx", "wd"),
    "t5": ("table",),
    "abacus": ("table",),
    "coupling": ("table",),
    "bipe": ("table",),
    "learned": ("table",),
    "learned-offset": ("table",),
    "rand-learned": ("table",),
}


def drawn(name: str, parameter: str, **changes: Any) -> Tensor:
    """A parameter of all layers that have it, one after another."""
    torch.manual_seed(0)
    pe = build(name, replace(WIDE, **changes))
    values = [p for key, p in pe.named_parameters() if f".{key}".endswith(f".{parameter}")]
    assert values
    return torch.cat([p.detach().flatten() for p in values])


@pytest.mark.parametrize(
    ("name", "parameter"), [(name, p) for name, parts in FROM_NORMAL.items() for p in parts]
)
def test_weights_from_the_decoder_s_own_distribution(name: str, parameter: str) -> None:
    values = drawn(name, parameter, num_heads=8 if name != "t5" else 64)
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
        ("fire", "output.bias", 32),
        ("dape", "mlp_hidden.weight", 16),
        ("dape", "mlp_output.weight", 32),
        ("tape", "psi.weight", 16),
        ("tape", "psi.bias", 16),
    ],
)
def test_weights_from_torch_s_uniform_distribution(name: str, parameter: str, inputs: int) -> None:
    """They start as torch's linear maps do, uniform within 1/sqrt(inputs)."""
    values, bound = drawn(name, parameter), inputs**-0.5
    few = 3 / len(values) ** 0.5
    assert float(values.abs().max()) <= bound
    assert float(values.abs().max()) > bound * (1 - few)
    assert float(values.std()) == pytest.approx(bound / 3**0.5, rel=few)


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("fire", "c", 0.1),
        ("fire", "l_multiplier", 1.0),
        ("path", "beta.bias", 0.0),
        ("fox", "gate.bias", 0.0),
        ("fox:b_f=5", "gate.bias", 5.0),
        ("cope", "table", 0.0),
        ("pope", "phase", 0.0),
        ("tape", "w2", 0.0),
        ("tape-heads", "wu", 0.0),
        ("tape-heads", "s", 0.0),
    ],
)
def test_constant_starts(name: str, parameter: str, value: float) -> None:
    assert drawn(name, parameter).unique().tolist() == pytest.approx([value])


def test_other_starts() -> None:
    """Kerple's p ~ U(0, 2) and a ~ U(0, 1), Shaw's N(0, K^-1/2), PoPE's phases in [-2 pi, 0]."""
    for name in ("kerple-log", "kerple-power"):
        p, a = drawn(name, "p", num_heads=500), drawn(name, "a", num_heads=500)
        assert 0.0099 < float(p.min()) < 0.1 and 1.9 < float(p.max()) <= 2
        assert 0.0099 < float(a.min()) < 0.05 and 0.95 < float(a.max()) <= 1
    assert float(drawn("shaw:kmax=999", "keys").std()) == pytest.approx(16**-0.5, rel=0.05)
    phases = drawn("pope:phase=uniform", "phase")
    assert -6.2832 <= float(phases.min()) < -5.5 and -0.8 < float(phases.max()) <= 0


@pytest.mark.parametrize(
    ("name", "parameter", "shape"),
    [
        ("path", "layers.0.down", (32, 128)),
        ("selective-rope", "layers.0.down.weight", (32, 128)),
        ("cope", "layers.0.table", (64, 16)),
        ("dape", "layers.0.mlp_hidden.weight", (32, 16)),
        ("dape", "base.p", (8,)),
        ("fire", "layers.0.hidden.weight", (32, 1)),
        ("shaw", "layers.0.keys", (29, 16)),
        ("t5", "table", (32, 8)),
        ("learned", "table", (64, 128)),
        ("learned-offset", "table", (64, 128)),
        ("rand-learned", "table", (128, 128)),
        ("bipe", "table", (28, 128)),
        ("bipe:rows=5:k=2", "table", (7, 128)),
        # K = 1.25 x the digits of the longest tested operand, here 20, and L1 + 1 more rows.
        ("abacus", "table", (25 + 64 + 1, 128)),
        ("coupling", "table", (25 + 64 + 1, 128)),
        ("abacus:k=0", "table", (65, 128)),
    ],
)
def test_defaults_of_options(name: str, parameter: str, shape: tuple[int, ...]) -> None:
    """A recorded name without options keeps its meaning."""
    pe = build(name, WIDE)
    assert tuple(pe.get_parameter(parameter).shape) == shape


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("fire", "init_l", 28.0),
        ("xpos", "scale_base", 14.0),
        ("p-rope", "turning", 6),
        ("rope-partial", "rotated", 4),
        ("hard-alibi", "windowed", 4),
        ("sandwich", "width", 128),
        ("rand-rope", "l_max", 128),
        ("tape", "width", 48),
        ("tape-heads", "width", 48),
    ],
)
def test_defaults_without_a_parameter(name: str, attribute: str, value: float) -> None:
    assert getattr(build(name, WIDE), attribute) == value


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


DECAYS = {
    "fire": ("hidden.weight", "output.weight"),
    "rand-fire": ("hidden.weight", "output.weight"),
    "dape": ("mlp_hidden.weight", "mlp_output.weight"),
    "tape": ("psi.weight", "w1", "w2"),
    "tape-heads": ("wx", "wu", "wd"),
    "fox": ("gate.weight",),
    "path": ("down", "up", "taps", "beta.weight"),
    "selective-rope": ("down.weight", "up.weight", "taps"),
}


@pytest.mark.parametrize("name", known_names("encoding"))
def test_matrices_decay_and_nothing_else(name: str) -> None:
    """Scalars, biases and tables do not."""
    pe = build(name, WIDE)
    spared = {id(p) for p, options in pe.parameter_groups() if options.get("weight_decay") == 0}
    for path, parameter in pe.named_parameters():
        assert path.endswith(DECAYS.get(name, ("nothing",))) == (id(parameter) not in spared), path


@pytest.mark.parametrize("name", ["t5", "kerple-log", "kerple-power"])
def test_one_set_of_parameters_for_all_layers(name: str) -> None:
    """Published copies have one a layer."""
    assert not list(build(name, WIDE).layers.parameters())


@pytest.mark.parametrize(
    "name",
    [
        *("nope", "alibi", "nape", "hard-alibi", "sandwich", "sinusoidal", "rope", "rope-partial"),
        *("p-rope", "xpos", "rand-rope", "rand-alibi", "rand-sinusoidal"),
    ],
)
def test_nothing_is_learned(name: str) -> None:
    """A known slip keeps frequencies as a Parameter: they are trained, with weight decay."""
    pe = build(name, WIDE)
    assert not list(pe.parameters()) and not pe.state_dict()
