"""Relative biases: what they do to distances, and the slips that are made with them.

Legend: B batch, T tokens, H heads, K head dim.
"""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from tape_arith.models import contract
from tape_arith.models.attention import attention
from tape_arith.models.build import build
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.encodings.alibi import ALiBi, alibi_slopes
from tape_arith.models.encodings.hard_alibi import HardALiBi
from tape_arith.models.encodings.nape import NAPE
from tape_arith.models.encodings.shaw import Shaw, ShawLayer
from tape_arith.models.encodings.t5 import T5, first_distances
from tape_arith.models.errors import UsageError
from tape_arith.models.families.kerple import Kerple
from tape_arith.models.sequences import Sequences
from tests.models import small

RELATIVE = [
    "alibi",
    "nape",
    "nape:slopes=geometric",
    "hard-alibi",
    "hard-alibi:windowed=2:windows=consecutive",
    "t5",
    "t5:max_distance=40",
    "kerple-log",
    "kerple-power",
    "sandwich",
    "sandwich:width=6",
    "shaw",
    "shaw:kmax=3",
]


def setting(num_heads: int = 4, num_layers: int = 3) -> Setting:
    return small.setting(num_layers=num_layers, num_heads=num_heads, hidden_size=16)


def bias_of(pe: PositionalEncoding, index: list[int], dtype: torch.dtype = torch.float64) -> Tensor:
    """What `pe` adds to the scores of tokens numbered by `index`: [H, T, T]."""
    tokens = torch.zeros(1, len(index), dtype=torch.int64)
    seqs = Sequences(tokens, torch.tensor([len(index)]), torch.tensor([0]))
    x = torch.zeros(1, len(index), 16, dtype=dtype)
    bias: Tensor = pe.start(x, torch.tensor([index]), seqs).bias
    assert bias.shape == (1, pe.setting.num_heads, len(index), len(index))
    return bias[0].detach()


def of_distance(pe: PositionalEncoding, distance: int) -> list[float]:
    """What each head adds to the score of a key so far behind."""
    return bias_of(pe, [5, 5 + distance])[:, 1, 0].tolist()


@pytest.mark.parametrize("name", RELATIVE)
def test_a_shift_of_all_indices_changes_nothing(name: str) -> None:
    decoder, seqs = contract.decoder_for(name), contract.example_batch(40)
    shifted = contract.forward(decoder, dataclasses.replace(seqs, offset=1001))
    contract.assert_close(shifted, contract.forward(decoder, seqs), "shifted", 1e-12)


@pytest.mark.parametrize("name", RELATIVE)
def test_it_is_not_nope(name: str) -> None:
    """Far from it, once parameters are off their start."""
    seqs = contract.example_batch(40)
    decoder, nope = contract.decoder_for(name), contract.decoder_for("nope")
    nope.load_state_dict({n: w for n, w in decoder.state_dict().items() if n[:3] != "pe."})
    change = contract.forward(decoder, seqs) - contract.forward(nope, seqs)
    assert float(change.abs().max()) > 0.01


@pytest.mark.parametrize("name", ["alibi", "nape", "kerple-log", "kerple-power", "sandwich"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_positions_are_never_bfloat16(name: str, dtype: torch.dtype) -> None:
    """There 3000 and 3001 are one number."""
    pe = build(name, setting()).to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        bias = bias_of(pe, [0, 3000, 3001], dtype)
    assert bias.dtype == torch.float32
    positioned = pe.slopes().index(0.0) if isinstance(pe, NAPE) else pe.setting.num_heads
    assert bool((bias[:positioned, 1, 0] != bias[:positioned, 2, 0]).all())
    assert bool((bias[:positioned, 2, 1] != bias[:positioned, 2, 2]).all())


@pytest.mark.parametrize("name", ["t5", "kerple-log", "kerple-power"])
def test_one_set_of_parameters_for_all_layers(name: str) -> None:
    """Published copies have one a layer."""
    one, many = (build(name, setting(num_layers=layers)) for layers in (1, 6))
    shapes = [{n: tuple(p.shape) for n, p in pe.named_parameters()} for pe in (one, many)]
    assert shapes[0] == shapes[1]
    assert not list(many.layers.parameters())


@pytest.mark.parametrize(
    ("name", "which"),
    [
        *((name, "") for name in ("t5", "kerple-log", "kerple-power", "shaw", "cope", "pope")),
        # FIRE's MLP decays as any other; what it scales distances with does not.
        *((name, part) for name in ("fire", "rand-fire") for part in ("c", "l_multiplier")),
    ],
)
def test_no_weight_decay(name: str, which: str) -> None:
    pe = build(name, setting())
    groups = {id(parameter): options for parameter, options in pe.parameter_groups()}
    found = [p for path, p in pe.named_parameters() if path.split(".")[-1].startswith(which)]
    assert found
    for parameter in found:
        assert groups[id(parameter)]["weight_decay"] == 0


def test_where_fire_and_path_start() -> None:
    fire = dict(build("fire", setting()).named_parameters())
    (c,) = {float(p.detach()) for path, p in fire.items() if path.split(".")[-1] == "c"}
    assert c == pytest.approx(0.1)
    path = dict(build("path", setting()).named_parameters())
    biases = [p for name, p in path.items() if "beta" in name and name.endswith("bias")]
    assert biases and all(bool((p == 0).all()) for p in biases)


def test_what_is_fixed_has_no_parameters() -> None:
    for name in ("alibi", "nape", "hard-alibi", "sandwich"):
        pe = build(name, setting())
        assert pe.needs.bias == "fixed" and not list(pe.parameters())
        assert not pe.state_dict()


# ---- ALiBi, NAPE and Hard-ALiBi ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (4, [2, 4, 6, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (16, [0.5 * h for h in range(1, 17)]),
    ],
)
def test_slopes_of_alibi(num_heads: int, exponents: list[float]) -> None:
    assert alibi_slopes(num_heads) == pytest.approx([2.0**-e for e in exponents], rel=1e-14)
    pe = build("alibi", setting(num_heads))
    # Less for a key that lies farther behind: the sign is right, and no head is left out.
    assert of_distance(pe, 3) == pytest.approx([-3 * 2.0**-e for e in exponents], rel=1e-14)


def test_nape_has_positions_in_half_of_its_heads() -> None:
    for num_heads, slopes in {
        1: [1.0],
        3: [1.0, 0, 0],
        4: [1.0, 1 / 2, 0, 0],
        8: [1.0, 1 / 2, 1 / 3, 1 / 4, 0, 0, 0, 0],
    }.items():
        pe = build("nape", setting(num_heads))
        assert of_distance(pe, 6) == pytest.approx([-6 * m for m in slopes])
    rule = build("nape:slopes=geometric", setting(8))
    assert isinstance(rule, NAPE) and rule.slopes() == [*alibi_slopes(4), 0, 0, 0, 0]


def test_windows_of_hard_alibi() -> None:
    pe = build("hard-alibi", setting(16))
    assert isinstance(pe, HardALiBi)
    assert pe.windows() == [1, 2, 4, 8, 16, 32, 64, 128] + [math.inf] * 8
    pe = build("hard-alibi", setting(4))
    nothing = -math.inf
    assert of_distance(pe, 0) == [0, 0, 0, 0]
    assert of_distance(pe, 1) == [nothing, 0, 0, 0]
    assert of_distance(pe, 2) == [nothing, nothing, 0, 0]
    assert of_distance(pe, 10_000) == [nothing, nothing, 0, 0]
    pe = build("hard-alibi:windowed=4:windows=consecutive", setting(4))
    assert of_distance(pe, 2) == [nothing, nothing, 0, 0]
    assert of_distance(pe, 3) == [nothing, nothing, nothing, 0]


def test_no_row_of_hard_alibi_is_empty() -> None:
    bias = bias_of(build("hard-alibi:windowed=4", setting(4)), list(range(30)))
    assert bool((bias.diagonal(dim1=1, dim2=2) == 0).all())


# ---- T5 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_distance", [128, 52, 124, 244, 17])
def test_buckets_of_t5(max_distance: int) -> None:
    pe = build(f"t5:max_distance={max_distance}", setting())
    assert isinstance(pe, T5)
    distances = torch.arange(400, dtype=torch.float64)
    for distance, bucket in enumerate(pe.buckets(distances).tolist()):
        expected = distance
        if distance >= 16:
            # The small number is for logarithms whose ratio is whole but for rounding.
            steps = 16 * math.log(distance / 16) / math.log(max_distance / 16) + 1e-12
            expected = min(16 + math.floor(steps), 31)
        assert bucket == expected, distance


def test_t5_looks_back_with_all_its_buckets() -> None:
    """With the bidirectional default of published code 16 of them would be left."""
    pe = build("t5", setting())
    assert isinstance(pe, T5)
    used = pe.buckets(torch.arange(128.0))
    assert used.unique().tolist() == list(range(32))
    assert used.diff().min() >= 0
    assert pe.buckets(torch.tensor([112.0, 113.0, 1e6])).tolist() == [30, 31, 31]
    assert len(first_distances(128)) == 32


def test_every_bucket_is_learned() -> None:
    pe = build("t5", setting())
    assert isinstance(pe, T5)
    seqs = Sequences(torch.zeros(1, 130, dtype=torch.int64), torch.tensor([130]), torch.tensor([0]))
    state = pe.start(torch.zeros(1, 130, 16), torch.arange(130)[None], seqs)
    state.bias.tril().sum().backward()
    assert pe.table.grad is not None and bool((pe.table.grad > 0).all())


def test_a_key_of_t5_gets_the_number_of_its_bucket() -> None:
    pe = build("t5", setting())
    assert isinstance(pe, T5)
    for distance, bucket in {0: 0, 15: 15, 16: 16, 18: 16, 19: 17, 200: 31}.items():
        assert of_distance(pe, distance) == pe.table[bucket].tolist()


def test_start_of_t5() -> None:
    pe = build("t5", setting(num_heads=64))
    assert isinstance(pe, T5)
    assert float(pe.table.detach().std()) == pytest.approx(0.02, rel=0.1)


# ---- KERPLE ------------------------------------------------------------------------------------


def kerple(name: str, num_heads: int, p: float, a: float) -> Kerple:
    pe = build(name, setting(num_heads)).double()
    assert isinstance(pe, Kerple)
    torch.nn.init.constant_(pe.p, p)
    torch.nn.init.constant_(pe.a, a)
    return pe


def test_kernels() -> None:
    (value,) = of_distance(kerple("kerple-log", 1, 1.5, 0.25), 8)
    assert value == pytest.approx(-1.5 * math.log(3))
    (value,) = of_distance(kerple("kerple-power", 1, 0.5, 0.25), 9)
    assert value == pytest.approx(-0.75)
    for name in ("kerple-log", "kerple-power"):
        assert of_distance(kerple(name, 1, 0.01, 3.0), 0) == [0]


def test_power_one_is_alibi() -> None:
    """But for its slope of 2^-8, which is below the least a."""
    pe = kerple("kerple-power", 4, 1.0, 1.0)
    alibi = build("alibi", setting(4))
    assert isinstance(alibi, ALiBi)
    pe.a.data = torch.tensor(alibi.slopes(), dtype=torch.float64)
    index = list(range(20))
    assert torch.allclose(bias_of(pe, index)[:3], bias_of(alibi, index)[:3], rtol=0, atol=1e-15)


@pytest.mark.parametrize("p", [0.01, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", ["kerple-log", "kerple-power"])
def test_gradients_are_numbers_at_distance_zero(name: str, p: float) -> None:
    pe = kerple(name, 2, p, 0.3)
    seqs = Sequences(torch.zeros(1, 9, dtype=torch.int64), torch.tensor([9]), torch.tensor([0]))
    x = torch.zeros(1, 9, 16, dtype=torch.float64)
    pe.start(x, torch.arange(9)[None], seqs).bias.sum().backward()
    for parameter in (pe.p, pe.a):
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all())
        assert bool((parameter.grad != 0).all())


@pytest.mark.parametrize(("name", "most"), [("kerple-log", 5.0), ("kerple-power", 2.0)])
def test_kerple_is_kept_in_range(name: str, most: float) -> None:
    pe = kerple(name, 3, 0.0, 0.0)
    pe.p.data = torch.tensor([-1.0, 1.5, 5.0], dtype=torch.float64)
    pe.a.data = torch.tensor([-1.0, 0.0, 7.0], dtype=torch.float64)
    before = bias_of(pe, [0, 1, 2, 30])
    pe.after_step()
    assert pe.p.tolist() == [0.01, 1.5, most] and pe.a.tolist() == [0.01, 0.01, 7.0]
    # What was out of range acted as if it were not, and it still learns.
    assert torch.equal(bias_of(pe, [0, 1, 2, 30]), before)
    seqs = Sequences(torch.zeros(1, 9, dtype=torch.int64), torch.tensor([9]), torch.tensor([0]))
    x = torch.zeros(1, 9, 16, dtype=torch.float64)
    pe.start(x, torch.arange(9)[None], seqs).bias.sum().backward()
    for parameter in (pe.p, pe.a):
        assert parameter.grad is not None and bool((parameter.grad != 0).all())


def test_start_of_kerple() -> None:
    for name in ("kerple-log", "kerple-power"):
        pe = build(name, setting(num_heads=500))
        assert isinstance(pe, Kerple)
        p, a = pe.p.detach(), pe.a.detach()
        assert 0.0099 < float(p.min()) < 0.1 and 1.9 < float(p.max()) <= 2
        assert 0.0099 < float(a.min()) < 0.05 and 0.95 < float(a.max()) <= 1


# ---- Sandwich ----------------------------------------------------------------------------------


def test_sandwich_is_an_inner_product_of_sinusoids() -> None:
    pe = build("sandwich", setting(num_heads=12))
    index = torch.arange(40, dtype=torch.float64)
    angles = index[:, None] * 10000.0 ** (-torch.arange(64, dtype=torch.float64) / 64)
    embedding = torch.cat((angles.sin(), angles.cos()), -1)
    product = embedding @ embedding.T - 64
    bias = bias_of(pe, list(range(40)))
    for h in range(12):
        expected = product / ((h + 1) * 8 / 12)
        assert torch.allclose(bias[h].tril(), expected.tril(), rtol=0, atol=1e-10)


def test_sandwich_falls_with_the_distance() -> None:
    bias = bias_of(build("sandwich", setting(num_heads=4)), list(range(200)))
    assert bool((bias.diagonal(dim1=1, dim2=2) == 0).all())
    assert bool((bias[:, 100, 90:100].diff() > 0).all())
    # The first head falls the fastest.
    assert bool((bias[:, 199, 0].diff() > 0).all())
    assert bias[0, 9, 0] / bias[3, 9, 0] == pytest.approx(4)


# ---- Shaw --------------------------------------------------------------------------------------


def test_shaw_adds_a_key_for_each_distance() -> None:
    """Against keys that are laid out for each pair of tokens."""
    pe = build("shaw:kmax=3", setting(num_heads=2)).double()
    layer = pe.layers[0]
    assert isinstance(layer, ShawLayer) and layer.keys.shape == (4, 8)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 6, 2, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    seqs = Sequences(torch.zeros(2, 6, dtype=torch.int64), torch.tensor([6, 6]), torch.zeros(2))
    x = torch.zeros(2, 6, 16, dtype=torch.float64)
    heads, _ = layer.attend(x, q, k, v, pe.start(x, torch.arange(6)[None], seqs), seqs)
    for t in range(6):
        distance = torch.tensor([min(t - i, 3) for i in range(t + 1)])
        keys = k[:, : t + 1] + layer.keys[distance][None, :, None]
        scores = (q[:, t, None] * keys).sum(-1) / math.sqrt(8)
        expected = (scores.softmax(1)[..., None] * v[:, : t + 1]).sum(1)
        assert torch.allclose(heads[:, t], expected, rtol=0, atol=1e-12)


def test_shaw_is_nope_without_its_keys() -> None:
    pe = build("shaw", setting(num_heads=2)).double()
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 6, 2, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    seqs = Sequences(torch.zeros(1, 6, dtype=torch.int64), torch.tensor([6]), torch.zeros(1))
    x = torch.zeros(1, 6, 16, dtype=torch.float64)
    layer = pe.layers[1]
    assert isinstance(layer, ShawLayer)
    torch.nn.init.zeros_(layer.keys)
    heads, _ = layer.attend(x, q, k, v, pe.start(x, torch.arange(6)[None], seqs), seqs)
    assert torch.allclose(heads, attention(q, k, (v,))[0])


def test_start_of_shaw() -> None:
    pe = build("shaw:kmax=999", setting())
    tables = list(pe.parameters())
    assert [tuple(table.shape) for table in tables] == [(1000, 8)] * 3
    for table in tables:
        assert float(table.detach().std()) == pytest.approx(8**-0.5, rel=0.05)
    default = build("shaw", setting())
    assert isinstance(default, Shaw) and default.kmax == 28


# ---- what cannot be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("t5:max_distance=16", "t5: max_distance must be more than 16, not 16"),
        ("hard-alibi:windowed=0", r"hard-alibi: windowed must be 1 to 4 \(heads\), not 0"),
        ("hard-alibi:windowed=5", "not 5"),
        ("hard-alibi:windows=so", "one of doubling, consecutive"),
        ("nape:slopes=so", "one of linear, geometric"),
        ("sandwich:width=7", "sandwich: width must be even and 2 or more, not 7"),
        ("sandwich:width=0", "not 0"),
        ("shaw:kmax=0", "shaw: kmax must be 1 or more, not 0"),
        ("alibi+yarn", "ALiBi has none"),
    ],
)
def test_bad_options(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        build(name, setting())
    assert "\n" not in str(caught.value)


# ---- the packages ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_t5_is_that_of_transformers() -> None:
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    configuration = pytest.importorskip("transformers.models.t5.configuration_t5")
    pe = build("t5", setting())
    assert isinstance(pe, T5)
    config = configuration.T5Config(d_model=32, d_kv=8, num_heads=4, is_decoder=True)
    theirs = modeling.T5Attention(config, has_relative_attention_bias=True)
    theirs.relative_attention_bias.weight.data = pe.table.data
    for max_distance in (128, 244):
        ours = build(f"t5:max_distance={max_distance}", setting())
        assert isinstance(ours, T5)
        buckets = theirs._relative_position_bucket(
            -torch.arange(600), bidirectional=False, num_buckets=32, max_distance=max_distance
        )
        assert torch.equal(ours.buckets(torch.arange(600.0)), buckets)
    expected = theirs.compute_bias(150, 150)[0].detach()
    assert torch.equal(bias_of(pe, list(range(150)), torch.float32), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num_heads", [4, 8, 12, 16, 20])
def test_alibi_is_that_of_transformers(num_heads: int) -> None:
    """Theirs is a number a key, which differs by one of each row."""
    modeling = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = modeling.build_alibi_tensor(torch.ones(1, 30), num_heads, torch.float64)
    ours = bias_of(build("alibi", setting(num_heads)), list(range(30)))
    difference = (theirs.view(num_heads, 1, 30) - ours).tril()
    last = difference.diagonal(dim1=1, dim2=2)[..., None]
    assert torch.allclose(difference, last.expand_as(difference).tril(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num_heads", [4, 8, 12, 16, 20])
def test_alibi_is_that_of_x_transformers(num_heads: int) -> None:
    package = pytest.importorskip("x_transformers.x_transformers")
    theirs = package.AlibiPositionalBias(num_heads)(30, 30).tril()
    ours = bias_of(build("alibi", setting(num_heads)), list(range(30)), torch.float32).tril()
    assert torch.allclose(ours, theirs.expand_as(ours), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_t5_is_that_of_x_transformers() -> None:
    package = pytest.importorskip("x_transformers.x_transformers")
    pe = build("t5", setting())
    assert isinstance(pe, T5)
    theirs = package.RelativePositionBias(scale=1.0, causal=True, heads=4)
    theirs.relative_attention_bias.weight.data = pe.table.data
    ours = bias_of(pe, list(range(150)), torch.float32).tril()
    assert torch.equal(ours, theirs(150, 150).detach().tril())
