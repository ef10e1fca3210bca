"""Encodings start from the laws of their papers, with the defaults of their options.

The other tests move the weights first, so that nothing else would notice another start.
"""

import pytest
import torch
from torch import Tensor

from tape_arith.arith.registry.locate import known_names
from tests.helpers.small_decoders import build, setting

WIDE = setting(
    num_layers=3, num_heads=8, head_dim=16, hidden_size=128, max_length=64, longest_number=21
)
Law = tuple[str, float]
Starts = dict[str, tuple[tuple[int, ...], Law]]
NORMAL, ZERO = ("normal", 0.02), ("constant", 0.0)
FIRE: Starts = {
    "layers.c": ((), ("constant", 0.1)),
    "layers.l_multiplier": ((), ("constant", 1.0)),
    # torch's linear maps: uniform within 1/sqrt(inputs).
    "layers.hidden.weight": ((32, 1), ("uniform", 1.0)),
    "layers.hidden.bias": ((32,), ("uniform", 1.0)),
    "layers.output.weight": ((8, 32), ("uniform", 32**-0.5)),
    "layers.output.bias": ((8,), ("uniform", 32**-0.5)),
}
KERPLE: Starts = {"p": ((8,), ("range", 2.0)), "a": ((8,), ("range", 1.0))}


def tape(rows: int) -> Starts:
    """Return the starts of G, which acts on so many rows of e."""
    return {
        "layers.psi.weight": ((48, 16), ("uniform", 0.25)),
        "layers.psi.bias": ((48,), ("uniform", 0.25)),
        "layers.w1": ((48, rows), ("uniform", rows**-0.5)),
        "layers.w2": ((rows, 48), ZERO),
    }


#: Shape and law of every parameter of every encoding that has any; one of each layer is "layers.".
STARTS: dict[str, Starts] = {
    # K = 1.25 x the digits of the longest tested operand, here 20, and L1 + 1 more rows.
    "abacus": {"table": ((25 + 64 + 1, 128), NORMAL)},
    "abacus:k=0": {"table": ((65, 128), NORMAL)},
    "bipe": {"table": ((28, 128), NORMAL)},
    "bipe:rows=5:k=2": {"table": ((7, 128), NORMAL)},
    "canon": {"layers.taps": ((4, 3, 8, 16), ("uniform", 0.5))},
    "cope": {"layers.table": ((64, 16), ZERO)},
    "coupling": {"table": ((25 + 64 + 1, 128), NORMAL)},
    "dape": {
        "layers.mlp_hidden.weight": ((32, 16), ("uniform", 0.25)),
        "layers.mlp_hidden.bias": ((32,), ("uniform", 0.25)),
        "layers.mlp_output.weight": ((8, 32), ("uniform", 32**-0.5)),
        "layers.mlp_output.bias": ((8,), ("uniform", 32**-0.5)),
        **{f"base.{name}": start for name, start in KERPLE.items()},
    },
    "fire": FIRE,
    **{
        name: {"layers.gate.weight": ((8, 128), NORMAL), "layers.gate.bias": ((8,), start)}
        for name, start in (("fox", ZERO), ("fox:b_f=5", ("constant", 5.0)))
    },
    "kerple-log": KERPLE,
    "kerple-power": KERPLE,
    "learned": {"table": ((64, 128), NORMAL)},
    "learned-offset": {"table": ((64, 128), NORMAL)},
    "path": {
        "layers.down": ((32, 128), NORMAL),
        "layers.up": ((128, 32), NORMAL),
        "layers.taps": ((128, 3), NORMAL),
        "layers.beta.weight": ((8, 128), NORMAL),
        "layers.beta.bias": ((8,), ZERO),
    },
    "pope": {"layers.phase": ((8, 16), ZERO)},
    "pope:phase=uniform": {"layers.phase": ((8, 16), ("range", -2 * torch.pi))},
    "rand-fire": FIRE,
    "rand-learned": {"table": ((128, 128), NORMAL)},
    "repo": {
        "layers.gate.weight": ((16, 128), NORMAL),
        "layers.content.weight": ((16, 128), NORMAL),
        "layers.position.weight": ((8, 16), NORMAL),
    },
    "selective-rope": {
        "layers.down.weight": ((32, 128), NORMAL),
        "layers.up.weight": ((64, 32), NORMAL),
        "layers.taps": ((64, 4), NORMAL),
    },
    "shaw": {"layers.keys": ((29, 16), ("normal", 16**-0.5))},
    "t5": {"table": ((32, 8), NORMAL)},
    "tape": tape(2),
    "tape:form=vector": tape(1),
    "tape:form=non-equivariant": tape(4),
    "tape:context=no-mlp": {"layers.s": ((8,), ZERO)},
    "tape-heads": {
        "layers.s": ((8,), ZERO),
        "layers.wx": ((48, 128), NORMAL),
        "layers.wu": ((48, 8), ZERO),
        "layers.wd": ((8, 48), NORMAL),
    },
    "tape-heads:context=no-mlp": {"layers.s": ((8,), ZERO)},
    **{
        name: {"layers.gate.weight": ((128, 128), NORMAL), "layers.gate.bias": ((128,), start)}
        for name, start in (("wall", ("constant", 8.0)), ("wall:b=0", ZERO))
    },
}
#: The matrices that decay; scalars, biases and tables do not.
DECAYING = (
    *("hidden.weight", "output.weight", "psi.weight", "w1", "w2", "wx", "wu", "wd"),
    *("gate.weight", "down", "up", "taps", "beta.weight", "down.weight", "up.weight"),
    *("content.weight", "position.weight"),
)


def assert_follows(values: Tensor, law: Law) -> None:
    """Check the moments and ends of a distribution at four deviations."""
    (kind, size), few = law, 4 / len(values) ** 0.5
    if kind == "constant":
        assert values.unique().tolist() == pytest.approx([size])
    elif kind == "normal":
        assert float(values.std()) == pytest.approx(size, rel=few)
        assert abs(float(values.mean())) < size * few
        # A uniform one of that deviation ends at 1.7 of them.
        assert len(values) < 200 or float(values.abs().max()) > 2 * size
    else:  # uniform within -size .. size, or 0 .. size
        low = -size if kind == "uniform" else 0.0
        share = (values - low) / (size - low)
        assert float(share.min()) >= 0 and float(share.max()) <= 1 + 1e-6
        assert float(share.mean()) == pytest.approx(0.5, abs=0.3 * few)
        assert float(share.std()) == pytest.approx(12**-0.5, rel=few)


@pytest.mark.parametrize("name", sorted({*known_names("encoding"), *STARTS}))
def test_parameters_start_as_their_papers_say(name: str) -> None:
    """Shapes are those of the defaults: a recorded name without options keeps its meaning.

    What is not in the table has no parameters: a known slip trains frequencies, with weight decay.
    """
    starts: dict[str, list[Tensor]] = {}
    for seed in range(8):
        torch.manual_seed(seed)
        pe = build(name, WIDE)
        for path, parameter in pe.named_parameters():
            first, _, rest = path.partition(".")
            key = f"layers.{rest.partition('.')[2]}" if first == "layers" else path
            starts.setdefault(key, []).append(parameter.detach())
    expected = STARTS.get(name, {})
    assert starts.keys() == expected.keys()
    for key, (shape, law) in expected.items():
        fewer = "tape" in name or name == "repo"
        layers = (2 if fewer else 3) if key.startswith("layers.") else 1
        assert [tuple(one.shape) for one in starts[key]] == [shape] * 8 * layers, key
        assert_follows(torch.stack(starts[key]).flatten(), law)
    spared = {id(p) for p, options in pe.parameter_groups() if options.get("weight_decay") == 0}
    for path, parameter in pe.named_parameters():
        assert (id(parameter) not in spared) == path.endswith(DECAYING), path
    assert pe.state_dict().keys() == dict(pe.named_parameters()).keys()


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("fire", "init_l", 28.0),
        ("xpos", "scale_base", 14.0),
        ("p-rope", "turning", 6),
        ("rope-partial", "rotated", 4),
        # Parts of 8 frequencies and of 16 dimensions, rounded down (to an even number of those).
        ("p-rope:p=0.7", "turning", 5),
        ("p-rope:p=0.99", "turning", 7),
        ("rope-partial:fraction=0.49", "rotated", 6),
        ("rope-partial:fraction=0.72", "rotated", 10),
        ("hard-alibi", "windowed", 4),
        ("sandwich", "width", 128),
        ("rand-rope", "l_max", 128),
        ("hybrid", "offset", 1),
        ("hybrid:period=3", "offset", 2),
        ("repo", "first", 1),
    ],
)
def test_sizes_without_a_parameter(name: str, attribute: str, value: float) -> None:
    assert getattr(build(name, WIDE), attribute) == value
