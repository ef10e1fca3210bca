"""More encodings equal their naive loops: logits and gradients, float64, all parameters perturbed.

The loops stand in naive_bias, naive_rotary, naive_content and naive_task; here it is said which
parameters of an encoding they are given. Where training draws something from the sequences' keys,
the loops take the drawn number that the encoding reports, and the draws have tests of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.sequences import Sequences
from tests.models import naive, naive_bias, naive_content, naive_rotary, naive_task
from tests.models.test_against_naive import LOGITS_TOLERANCE, error

SHAPE = naive.Shape(num_layers=2, num_heads=2, head_dim=8)
# Where only what grows with distance or heads is looked at, the rest is kept small.
FOUR_HEADS = naive.Shape(num_layers=1, num_heads=4, head_dim=2)
SIX_HEADS = naive.Shape(num_layers=1, num_heads=6, head_dim=2)
ONE_HEAD = naive.Shape(num_layers=1, num_heads=1, head_dim=2)
HIDDEN = 12
GRADIENT_TOLERANCE = 1e-8
VOCABULARY = 19
PAD, END, PLUS, EQUALS = 0, 3, 14, 17
DIGITS = tuple(range(4, 14))
# 53+7=851$ and 9+24=61, digits any: two numbers of unequal length, one row shorter than the other.
ROWS: tuple[tuple[int, ...], ...] = (
    (9, 7, PLUS, 11, EQUALS, 12, 9, 5, END),
    (13, PLUS, 6, 8, EQUALS, 10, 5),
)
KEYS = (5, 1234)


@dataclass(frozen=True)
class Row:
    """What an oracle may know of one row: its inputs, and what the encoding drew for it."""

    weights: naive.Weights
    shape: naive.Shape
    pe: PositionalEncoding
    seqs: Sequences
    row: int

    @property
    def tokens(self) -> list[int]:
        tokens: list[int] = self.seqs.tokens[self.row].tolist()
        return [token for token in tokens if token != PAD]

    @property
    def final(self) -> int:
        return int(self.seqs.final_length[self.row])

    def drawn(self, pe: PositionalEncoding | None = None) -> list[int]:
        """The index that `pe` reports for each token, which training may have drawn."""
        index = (pe or self.pe).indices(self.seqs)
        drawn: list[int] = index.expand(len(self.seqs.tokens), -1)[self.row].tolist()
        return drawn[: len(self.tokens)]

    @property
    def counted(self) -> list[int]:
        """The index of each token where nothing is drawn."""
        return [self.seqs.offset + t for t in range(len(self.tokens))]

    def layers(self, name: str) -> list[Tensor]:
        """A parameter of each layer."""
        return [self.weights[f"pe.layers.{i}.{name}"] for i in range(self.shape.num_layers)]


Oracle = Callable[[Row], naive.NoPE]


@dataclass(frozen=True)
class Case:
    name: str
    oracle: Oracle
    training: bool = False
    offset: int = 0
    trained_length: int = 28
    final_lengths: tuple[int, int] = (11, 9)
    shape: naive.Shape = SHAPE
    # So many tokens instead of ROWS, to reach far.
    length: int = 0

    def __str__(self) -> str:
        mode = "training" if self.training else "evaluation"
        sizes = f"{self.shape.num_heads}x{self.shape.head_dim}"
        return f"{self.name}-{mode}-{self.offset}-{self.trained_length}-{sizes}-{self.length}"


def decoder_for(case: Case) -> Decoder:
    shape = case.shape
    setting = Setting(
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        hidden_size=HIDDEN,
        trained_length=case.trained_length,
        max_length=max(2 * case.trained_length, *case.final_lengths, case.length),
        digit_ids=DIGITS,
        separator_ids=(PLUS, EQUALS),
        end_id=END,
    )
    config = DecoderConfig(
        VOCABULARY, shape.num_layers, HIDDEN, shape.num_heads, shape.head_dim, 10
    )
    torch.manual_seed(7)
    decoder = Decoder(config, build(case.name, setting)).double().train(case.training)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    # What training keeps within a range is within it here as well.
    decoder.pe.after_step()
    return decoder


def sequences(case: Case) -> Sequences:
    rows = ROWS
    if case.length:
        rows = (tuple(4 + (7 * t * t + 3 * t) % 11 for t in range(case.length)),)
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    final_lengths = torch.tensor(case.final_lengths)[: len(rows)]
    return Sequences(tokens, final_lengths, torch.tensor(KEYS)[: len(rows)], case.offset)


def without_positions(case: Case, decoder: Decoder) -> Decoder:
    """The same decoder with NoPE: what would agree, too, if an encoding did nothing."""
    plain = decoder_for(replace(case, name="nope"))
    plain.load_state_dict(
        {n: p for n, p in decoder.state_dict().items() if not n.startswith("pe.")}
    )
    return plain


def assert_equal_to_its_loop(case: Case) -> None:
    decoder, seqs = decoder_for(case), sequences(case)
    generator = torch.Generator().manual_seed(11)
    projection = torch.randn(*seqs.tokens.shape, VOCABULARY, generator=generator).double()
    real = seqs.tokens != PAD
    logits = decoder(seqs)
    assert logits.dtype == torch.float64
    with torch.no_grad():
        plain = without_positions(case, decoder)(seqs)[real]
    assert error(logits[real].detach(), plain) > 1e-3, "the encoding does not act"
    torch.autograd.backward((logits * projection)[real].sum())

    weights = {n: p.detach().clone().requires_grad_() for n, p in decoder.named_parameters()}
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(seqs.tokens)):
        known = Row(weights, case.shape, decoder.pe, seqs, row)
        n = len(known.tokens)
        expected = naive.decode(weights, case.shape, known.tokens, case.oracle(known))
        off = error(logits[row, :n].detach(), expected.detach())
        assert off < LOGITS_TOLERANCE, f"logits of row {row} differ by {off:.1e}"
        total = total + (expected * projection[row, :n]).sum()
    torch.autograd.backward(total)

    zero = torch.zeros(())
    gradients = {n: zero.expand_as(w) if w.grad is None else w.grad for n, w in weights.items()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in decoder.named_parameters():
        ours = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        off = error(ours, gradients[name], 1e-5 * largest)
        assert off < GRADIENT_TOLERANCE, f"the gradient of {name} differs by {off:.1e}"


def each(cases: list[Case]) -> pytest.MarkDecorator:
    """Each case a test; the first of every encoding and of every extrapolation is a fast one."""
    seen: set[str] = set()
    parameters = []
    for case in cases:
        names = {part.split(":")[0] for part in case.name.split("+")}
        marks = [pytest.mark.slow] if names <= seen else []
        seen |= names
        parameters.append(pytest.param(case, id=str(case), marks=marks))
    return pytest.mark.parametrize("case", parameters)


# ---- relative biases ---------------------------------------------------------------------------


def alibi(r: Row) -> naive.NoPE:
    slopes = naive_bias.alibi_slopes(r.shape.num_heads)
    return naive_bias.ALiBi(r.weights, r.shape, r.counted, slopes)


def t5(max_distance: int) -> Oracle:
    return lambda r: naive_bias.T5(
        r.weights, r.shape, r.counted, r.weights["pe.table"], max_distance
    )


def kerple_log(r: Row) -> naive.NoPE:
    p, a = r.weights["pe.p"], r.weights["pe.a"]
    return naive_bias.KerpleLog(r.weights, r.shape, r.counted, p, a)


def kerple_power(r: Row) -> naive.NoPE:
    p, a = r.weights["pe.p"], r.weights["pe.a"]
    return naive_bias.KerplePower(r.weights, r.shape, r.counted, p, a)


def sandwich(width: int) -> Oracle:
    return lambda r: naive_bias.Sandwich(r.weights, r.shape, r.counted, width)


def hard_alibi(*windows: int | None) -> Oracle:
    return lambda r: naive_bias.HardALiBi(r.weights, r.shape, r.counted, windows)


def nape(*slopes: float | None) -> Oracle:
    return lambda r: naive_bias.Mixed(r.weights, r.shape, r.counted, slopes)


def shaw(r: Row) -> naive.NoPE:
    return naive_bias.Shaw(r.weights, r.shape, r.counted, r.layers("keys"))


BIASES = [
    Case("alibi", alibi),
    Case("alibi", alibi, offset=5),
    Case("alibi", alibi, shape=SIX_HEADS),
    Case("t5", t5(128)),
    Case("t5", t5(128), offset=5),
    # Distances up to 149: all 32 buckets, and the last beyond max_distance.
    Case("t5", t5(128), shape=ONE_HEAD, length=150),
    Case("t5:max_distance=40", t5(40), shape=ONE_HEAD, length=50),
    # Distances 32 and 64 stand on the edge of a bucket: ln 2 / ln 16 and ln 4 / ln 16 of the way.
    Case("t5:max_distance=256", t5(256), shape=ONE_HEAD, length=70),
    Case("kerple-log", kerple_log),
    Case("kerple-log", kerple_log, offset=5),
    Case("kerple-log", kerple_log, shape=FOUR_HEADS, length=30),
    Case("kerple-power", kerple_power),
    Case("kerple-power", kerple_power, offset=5),
    Case("kerple-power", kerple_power, shape=FOUR_HEADS, length=30),
    Case("sandwich", sandwich(128)),
    Case("sandwich", sandwich(128), offset=5),
    Case("sandwich:width=16", sandwich(16), shape=SIX_HEADS, length=30),
    Case("hard-alibi", hard_alibi(1, None)),
    Case("hard-alibi", hard_alibi(1, 2, 4, None, None, None), shape=SIX_HEADS, offset=5),
    Case("hard-alibi:windows=consecutive", hard_alibi(1, 2, 3, None, None, None), shape=SIX_HEADS),
    Case("hard-alibi:windowed=4", hard_alibi(1, 2, 4, 8, None, None), shape=SIX_HEADS, length=20),
    Case("nape", nape(1.0, None)),
    Case("nape", nape(1.0, 1.0 / 2.0, 1.0 / 3.0, None, None, None), shape=SIX_HEADS, offset=5),
    Case("nape:slopes=geometric", nape(2.0**-4, 2.0**-8, None, None), shape=FOUR_HEADS),
    Case("shaw", shaw),
    Case("shaw", shaw, offset=5),
    Case("shaw:kmax=3", shaw),
]


@each(BIASES)
def test_relative_biases(case: Case) -> None:
    assert_equal_to_its_loop(case)


# ---- absolute, and randomized ------------------------------------------------------------------


def sinusoidal(r: Row) -> naive.NoPE:
    return naive_task.Sinusoidal(r.weights, r.shape, r.counted)


def learned(r: Row) -> naive.NoPE:
    return naive_task.Table(r.weights, r.shape, r.counted, r.weights["pe.table"])


def learned_offset(r: Row) -> naive.NoPE:
    drawn = r.drawn()
    start = drawn[0] if r.pe.training else r.seqs.offset
    assert drawn == [start + t for t in range(len(drawn))]
    return naive_task.Table(r.weights, r.shape, drawn, r.weights["pe.table"])


def rand_alibi(r: Row) -> naive.NoPE:
    slopes = naive_bias.alibi_slopes(r.shape.num_heads)
    return naive_bias.ALiBi(r.weights, r.shape, r.drawn(), slopes)


def rand_fire(r: Row) -> naive.NoPE:
    init_l = r.pe.init_l
    assert isinstance(init_l, int | float)
    return naive.FIRE(r.weights, r.shape, r.drawn(), init_l)


def rand_sinusoidal(r: Row) -> naive.NoPE:
    return naive_task.Sinusoidal(r.weights, r.shape, r.drawn())


def rand_learned(r: Row) -> naive.NoPE:
    return naive_task.Table(r.weights, r.shape, r.drawn(), r.weights["pe.table"])


ABSOLUTE = [
    Case("sinusoidal", sinusoidal),
    Case("sinusoidal", sinusoidal, offset=3000),
    Case("learned", learned),
    Case("learned", learned, offset=5),
    Case("learned:rows=70", learned, training=True),
    Case("learned-offset", learned_offset),
    Case("learned-offset", learned_offset, offset=5),
    Case("learned-offset", learned_offset, training=True),
    *(
        Case(name, oracle, training=training)
        for name, oracle in (
            ("rand-alibi", rand_alibi),
            ("rand-fire", rand_fire),
            ("rand-fire:init_l=2:l_max=200", rand_fire),
            ("rand-sinusoidal", rand_sinusoidal),
            ("rand-learned", rand_learned),
        )
        for training in (False, True)
    ),
]


@each(ABSOLUTE)
def test_absolute_and_randomized(case: Case) -> None:
    assert_equal_to_its_loop(case)


# ---- rotary ------------------------------------------------------------------------------------

# What an extrapolation makes of the frequencies 10000^(-2f/d), f < d/2: new ones, and a magnitude.
Stretch = Callable[[Row, int], tuple[list[float], float]]


def per_problem(r: Row) -> float:
    return max(1.0, r.final / r.pe.setting.trained_length)


def static(r: Row) -> float:
    return max(1.0, r.pe.setting.max_length / r.pe.setting.trained_length)


def unchanged(r: Row, d: int) -> tuple[list[float], float]:
    return naive.frequencies(d), 1.0


def pi(scale: Callable[[Row], float]) -> Stretch:
    return lambda r, d: (naive_rotary.interpolated(d, scale(r)), 1.0)


def ntk(scale: Callable[[Row], float]) -> Stretch:
    return lambda r, d: (naive_rotary.ntk_aware(d, scale(r)), 1.0)


def ntk_dynamic(factor: float | None) -> Stretch:
    def stretch(r: Row, d: int) -> tuple[list[float], float]:
        trained = r.pe.setting.trained_length
        a = static(r) if factor is None else factor
        return naive_rotary.ntk_dynamic(d, a, max(r.final, trained), trained), 1.0

    return stretch


def yarn(ramp: Callable[[int, int], list[float]]) -> Stretch:
    return lambda r, d: naive.yarn(d, ramp(d, r.pe.setting.trained_length), per_problem(r))


def rope(stretch: Stretch = unchanged) -> Oracle:
    return lambda r: naive.RoPE(r.weights, r.shape, r.counted, *stretch(r, r.shape.head_dim))


def rope_partial(turned: int, stretch: Stretch = unchanged) -> Oracle:
    return lambda r: naive_rotary.RoPEPartial(
        r.weights, r.shape, r.counted, turned, *stretch(r, turned)
    )


def p_rope(p: float, stretch: Stretch = unchanged) -> Oracle:
    """An extrapolation acts on the whole schedule; then the lowest frequencies stop."""

    def oracle(r: Row) -> naive.NoPE:
        kept = naive_rotary.p_rope_frequencies(r.shape.head_dim, p)
        stretched, magnitude = stretch(r, r.shape.head_dim)
        thetas = [new if old else 0.0 for old, new in zip(kept, stretched, strict=True)]
        return naive.RoPE(r.weights, r.shape, r.counted, thetas, magnitude)

    return oracle


def xpos(scale_base: float, stretch: Stretch = unchanged) -> Oracle:
    return lambda r: naive_rotary.XPos(
        r.weights, r.shape, r.counted, scale_base, *stretch(r, r.shape.head_dim)
    )


def pope(stretch: Stretch = unchanged) -> Oracle:
    """K frequencies 10000^(-c/K): those of RoPE in a head twice as wide."""
    return lambda r: naive_rotary.PoPE(
        r.weights, r.shape, r.counted, r.layers("phase"), *stretch(r, 2 * r.shape.head_dim)
    )


def selective_rope(r: Row) -> naive.NoPE:
    return naive_rotary.SelectiveRoPE(
        r.weights,
        r.shape,
        r.counted,
        w1=r.layers("down.weight"),
        w2=r.layers("up.weight"),
        conv=r.layers("taps"),
        temperature=1.0,
        base=500_000.0,
        epsilon=1e-6,
    )


def tape(stretch: Stretch) -> Oracle:
    return lambda r: naive.TAPE(r.weights, r.shape, r.counted, *stretch(r, r.shape.head_dim))


def tape_heads(stretch: Stretch) -> Oracle:
    return lambda r: naive.TAPEHeads(r.weights, r.shape, r.counted, *stretch(r, r.shape.head_dim))


def fourier(r: Row, d: int) -> tuple[list[float], float]:
    """The frequencies that were drawn when the encoding was made; their draw has its own test."""
    assert isinstance(r.pe, Rotary)
    drawn: list[float] = r.pe.frequencies().tolist()
    assert len(drawn) == d // 2
    return drawn, 1.0


def fourier_pi(r: Row, d: int) -> tuple[list[float], float]:
    return [theta / per_problem(r) for theta in fourier(r, d)[0]], 1.0


def tape_table(r: Row) -> naive.NoPE:
    return naive_rotary.TAPEFromTable(r.weights, r.shape, r.counted, r.weights["pe.table"])


def tape_heads_table(r: Row) -> naive.NoPE:
    return naive_rotary.TAPEHeadsFromTable(r.weights, r.shape, r.counted, r.weights["pe.table"])


ROTARY = [
    Case("tape:start=fourier", tape(fourier)),
    Case("tape:start=learned", tape_table),
    Case("tape:start=learned", tape_table, offset=5, training=True),
    Case("tape-heads:start=fourier", tape_heads(fourier), offset=5),
    Case("tape-heads:start=learned", tape_heads_table),
    Case("rope-partial", rope_partial(2)),
    Case("rope-partial:fraction=0.5", rope_partial(4), offset=5),
    Case("rope-partial:fraction=0.75", rope_partial(6), training=True),
    Case("p-rope", p_rope(0.75)),
    Case("p-rope:p=0.6", p_rope(0.6), offset=5),
    Case("p-rope:p=0.25", p_rope(0.25), training=True),
    Case("xpos", xpos(14.0)),
    Case("xpos", xpos(14.0), offset=5),
    Case("xpos:scale_base=3", xpos(3.0), training=True),
    Case("pope", pope()),
    Case("pope:phase=uniform", pope(), offset=5),
    Case("selective-rope", selective_rope),
    Case("selective-rope:rank=5", selective_rope, offset=5, training=True),
]

# One row longer than the trained ones by an uneven factor, the other as short as they.
LONG = (1000, (2345, 900))
PAPER = (124, (244, 124))

STRETCHED = [
    Case(name, oracle, trained_length=trained, final_lengths=finals)
    for name, oracle, (trained, finals) in (
        ("rope+pi", rope(pi(per_problem)), LONG),
        ("rope+pi:scale=static", rope(pi(static)), LONG),
        ("rope+ntk", rope(ntk(per_problem)), LONG),
        ("rope+ntk:scale=static", rope(ntk(static)), LONG),
        ("rope+ntk-dynamic", rope(ntk_dynamic(None)), LONG),
        ("rope+ntk-dynamic:factor=3", rope(ntk_dynamic(3.0)), LONG),
        ("rope-partial:fraction=0.75+pi", rope_partial(6, pi(per_problem)), LONG),
        ("rope-partial:fraction=0.75+ntk", rope_partial(6, ntk(per_problem)), LONG),
        ("rope-partial:fraction=0.75+yarn", rope_partial(6, yarn(naive.index_ramp)), LONG),
        ("p-rope+pi", p_rope(0.75, pi(per_problem)), LONG),
        ("p-rope+ntk", p_rope(0.75, ntk(per_problem)), LONG),
        ("p-rope+yarn:ramp=paper", p_rope(0.75, yarn(naive.paper_ramp)), PAPER),
        ("xpos+pi", xpos(500.0, pi(per_problem)), LONG),
        ("xpos+yarn", xpos(500.0, yarn(naive.index_ramp)), LONG),
        ("pope+pi", pope(pi(per_problem)), LONG),
        ("pope+ntk-dynamic", pope(ntk_dynamic(None)), LONG),
        ("pope+yarn", pope(yarn(naive.index_ramp)), LONG),
        ("tape+pi", tape(pi(per_problem)), LONG),
        ("tape+ntk", tape(ntk(per_problem)), LONG),
        ("tape+ntk-dynamic", tape(ntk_dynamic(None)), LONG),
        ("tape:start=fourier+pi", tape(fourier_pi), LONG),
        ("tape-heads+pi", tape_heads(pi(per_problem)), LONG),
        ("tape-heads+ntk", tape_heads(ntk(per_problem)), LONG),
    )
]


# In training an extrapolation does nothing.
NOT_YET = [
    Case("rope+ntk", rope(), training=True, trained_length=1000, final_lengths=(2345, 900)),
    Case("pope+pi", pope(), training=True, trained_length=1000, final_lengths=(2345, 900)),
]


@each(ROTARY + STRETCHED + NOT_YET)
def test_rotary(case: Case) -> None:
    assert_equal_to_its_loop(case)


# ---- content-dependent -------------------------------------------------------------------------


def fox(r: Row) -> naive.NoPE:
    w, b = r.layers("gate.weight"), r.layers("gate.bias")
    return naive_content.FoX(r.weights, r.shape, r.counted, w, b)


def cope(r: Row) -> naive.NoPE:
    return naive_content.CoPE(r.weights, r.shape, r.counted, r.layers("table"))


def stick_breaking(r: Row) -> naive.NoPE:
    return naive_content.StickBreaking(r.weights, r.shape, r.counted)


def path(r: Row) -> naive.NoPE:
    return naive_content.PaTH(
        r.weights,
        r.shape,
        r.counted,
        w1=r.layers("down"),
        w2=r.layers("up"),
        conv=r.layers("taps"),
        wb=r.layers("beta.weight"),
        b=r.layers("beta.bias"),
        epsilon=1e-6,
    )


def dape(base: Callable[[Row], naive_bias.Bias]) -> Oracle:
    return lambda r: naive_content.DAPE(
        r.weights,
        r.shape,
        r.counted,
        base(r),
        w1=r.layers("mlp_hidden.weight"),
        b1=r.layers("mlp_hidden.bias"),
        w2=r.layers("mlp_output.weight"),
        b2=r.layers("mlp_output.bias"),
    )


def alibi_base(r: Row) -> naive_bias.Bias:
    slopes = naive_bias.alibi_slopes(r.shape.num_heads)
    return naive_bias.ALiBi(r.weights, r.shape, r.counted, slopes)


def kerple_base(r: Row) -> naive_bias.Bias:
    p, a = r.weights["pe.base.p"], r.weights["pe.base.a"]
    return naive_bias.KerpleLog(r.weights, r.shape, r.counted, p, a)


def fire_base(r: Row) -> naive_bias.Bias:
    weights = {n.replace(".base.", "."): w for n, w in r.weights.items()}
    # FIRE's L starts at the trained length.
    init_l = float(r.pe.setting.trained_length)
    return naive_bias.FIREBias(naive.FIRE(weights, r.shape, r.counted, init_l))


CONTENT = [
    Case("dape", dape(kerple_base)),
    Case("dape:base=alibi", dape(alibi_base), offset=5),
    Case("dape:base=alibi:width=5", dape(alibi_base), shape=SIX_HEADS, training=True),
    Case("dape:base=fire:width=5", dape(fire_base)),
    Case("fox", fox),
    Case("fox:b_f=5", fox, offset=5, training=True),
    Case("cope", cope),
    # Positions run into the last one.
    Case("cope:positions=4", cope),
    Case("cope:positions=2", cope, offset=5, training=True),
    Case("stick-breaking", stick_breaking),
    Case("stick-breaking", stick_breaking, offset=5, training=True),
    Case("path", path),
    Case("path:rank=5", path, offset=5, training=True),
]


@each(CONTENT)
def test_content(case: Case) -> None:
    assert_equal_to_its_loop(case)


# ---- task-structured ---------------------------------------------------------------------------


def abacus_index(r: Row, pe: PositionalEncoding) -> list[int]:
    """Numbered by the loop; in training from the k that the encoding drew."""
    drawn = r.drawn(pe)
    index = naive_task.abacus_indices(r.tokens, DIGITS, drawn[0] - 1 if pe.training else 0)
    assert drawn == index
    return index


def abacus(r: Row) -> naive.NoPE:
    return naive_task.Table(r.weights, r.shape, abacus_index(r, r.pe), r.weights["pe.table"])


def abacus_and(attention: Oracle) -> Oracle:
    """Abacus in the embeddings, numbered by itself, and another encoding in attention."""

    def oracle(r: Row) -> naive.NoPE:
        part = r.pe.get_submodule("parts.0")
        assert isinstance(part, PositionalEncoding)
        table = r.weights["pe.parts.0.table"]
        embedding = naive_task.Table(r.weights, r.shape, abacus_index(r, part), table)
        return naive_task.Joined(embedding, attention(r))

    return oracle


def fire(r: Row) -> naive.NoPE:
    """FIRE as the second part; its L starts at the trained length."""
    weights = {n.replace("pe.parts.1.", "pe."): w for n, w in r.weights.items()}
    return naive.FIRE(weights, r.shape, r.counted, float(r.pe.setting.trained_length))


def coupling(r: Row) -> naive.NoPE:
    drawn = r.drawn()
    start = drawn[0] - 1 if r.pe.training else 1
    index = naive_task.coupling_indices(r.tokens, DIGITS, (PLUS, EQUALS), start)
    assert drawn == index
    return naive_task.Table(r.weights, r.shape, index, r.weights["pe.table"])


def bipe_shift(pe: PositionalEncoding, seqs: Sequences, row: int) -> int:
    """Which row of the table the first token of a row is given: its place, 0, and the shift."""
    table = pe.get_parameter("table").detach()
    nothing = torch.zeros(*seqs.tokens.shape, HIDDEN, dtype=table.dtype)
    first = pe.embed(nothing, pe.indices(seqs), seqs)[row, 0].detach()
    (shift,) = [p for p in range(len(table)) if torch.equal(table[p], first)]
    return shift


def bipe(r: Row) -> naive.NoPE:
    pairs = naive_task.bipe_indices(r.tokens, (PLUS, EQUALS))
    if r.pe.training:
        shift = bipe_shift(r.pe, r.seqs, r.row)
        pairs = [(segment, place + shift) for segment, place in pairs]
    return naive_task.BiPE(r.weights, r.shape, pairs, r.weights["pe.table"])


TASK = [
    Case("abacus", abacus),
    Case("abacus", abacus, training=True),
    Case("abacus:k=7", abacus, training=True),
    Case("abacus+rope", abacus_and(rope())),
    Case("abacus+rope", abacus_and(rope()), training=True),
    Case("abacus+rope", abacus_and(rope()), offset=5),
    Case("abacus+rope+pi", abacus_and(rope(pi(per_problem))), trained_length=6),
    Case("abacus+fire", abacus_and(fire), training=True),
    Case("coupling", coupling),
    Case("coupling", coupling, training=True),
    Case("coupling:s=3", coupling, training=True),
    Case("bipe", bipe),
    Case("bipe", bipe, training=True),
    # Places beyond the second share its row.
    Case("bipe:rows=2", bipe),
    Case("bipe:k=3", bipe),
    Case("bipe:k=3", bipe, training=True),
]


@each(TASK)
def test_task_structured(case: Case) -> None:
    assert_equal_to_its_loop(case)


# ---- what is drawn from keys -------------------------------------------------------------------

DRAWS = 4000


def drawn_values(name: str, first: Callable[[PositionalEncoding, Sequences], Tensor]) -> list[int]:
    """What training draws for DRAWS keys that follow on one another, int64 [DRAWS]."""
    case = Case(name, abacus, training=True)
    decoder = decoder_for(case)
    rows = torch.tensor(ROWS[:1]).expand(DRAWS, -1)
    finals = torch.full((DRAWS,), case.final_lengths[0])
    seqs = Sequences(rows, finals, torch.arange(DRAWS))
    drawn: list[int] = first(decoder.pe, seqs).tolist()
    # The same key gives the same number, wherever its row stands and whatever torch's own state.
    torch.manual_seed(99)
    backwards = Sequences(rows, finals, torch.arange(DRAWS).flip(0))
    assert first(decoder.pe, backwards).flip(0).tolist() == drawn
    return drawn


def assert_uniform(drawn: list[int], low: int, high: int) -> None:
    """Every number of low .. high equally often, none outside: chi squared, at five deviations."""
    assert min(drawn) == low and max(drawn) == high
    cells = high - low + 1
    expected = len(drawn) / cells
    statistic = sum((drawn.count(v) - expected) ** 2 / expected for v in range(low, high + 1))
    assert statistic < cells - 1 + 5 * (2 * (cells - 1)) ** 0.5
    # No pattern from key to key: neighbours are equal as often as chance has it.
    equal = sum(a == b for a, b in pairwise(drawn))
    assert abs(equal - expected) < 5 * expected**0.5


def test_abacus_draws_k_uniformly_from_0_to_k() -> None:
    drawn = drawn_values("abacus:k=9", lambda pe, seqs: pe.indices(seqs)[:, 0] - 1)
    assert_uniform(drawn, 0, 9)


def test_coupling_draws_its_start_uniformly_from_1_to_s() -> None:
    drawn = drawn_values("coupling:s=9", lambda pe, seqs: pe.indices(seqs)[:, 0] - 1)
    assert_uniform(drawn, 1, 9)


def test_learned_offset_draws_its_start_uniformly_over_the_table() -> None:
    """0 .. rows - N, N = 11 the bound on the sequence's length, so that it always fits."""
    drawn = drawn_values("learned-offset:rows=60", lambda pe, seqs: pe.indices(seqs)[:, 0])
    assert_uniform(drawn, 0, 49)


def test_bipe_draws_its_shift_uniformly_from_0_to_k() -> None:
    def first(pe: PositionalEncoding, seqs: Sequences) -> Tensor:
        table = pe.get_parameter("table").detach()
        nothing = torch.zeros(*seqs.tokens.shape, HIDDEN, dtype=table.dtype)
        rows = pe.embed(nothing, pe.indices(seqs), seqs)[:, 0].detach()
        return (rows[:, None] == table).all(-1).int().argmax(1)

    assert_uniform(drawn_values("bipe:k=9", first), 0, 9)


@pytest.mark.parametrize(
    "name", ["rand-alibi", "rand-fire", "rand-learned", "rand-rope", "rand-sinusoidal"]
)
@pytest.mark.parametrize("training", [True, False])
def test_randomized_indices_are_a_uniform_subset(name: str, training: bool) -> None:
    """All 56 subsets of 3 of 0 .. 7 are drawn equally often, in training and at test time."""
    case = Case(f"{name}:l_max=8", alibi, training, trained_length=3, final_lengths=(3, 3))
    pe = decoder_for(case).pe
    tokens = torch.tensor([[9, PLUS, 6]]).expand(DRAWS, -1)
    seqs = Sequences(tokens, torch.full((DRAWS,), 3), torch.arange(DRAWS))
    subsets = [tuple(row) for row in pe.indices(seqs).tolist()]
    assert all(a < b < c for a, b, c in subsets)
    numbers = {subset: n for n, subset in enumerate(sorted(set(subsets)))}
    assert len(numbers) == 56
    assert_uniform([numbers[subset] for subset in subsets], 0, 55)
    # A prefix keeps its numbers: they hang on the bound that is known from the prompt.
    prefix = Sequences(tokens[:, :2], seqs.final_length, seqs.key)
    assert pe.indices(prefix).tolist() == [list(subset[:2]) for subset in subsets]


@pytest.mark.parametrize("name", ["tape:start=fourier", "tape-heads:start=fourier"])
def test_fourier_frequencies_are_half_normal(name: str) -> None:
    """|N(0, 1)| radians a token: those of the kernel exp(-distance^2 / 2)."""
    wide = Case(name, alibi, shape=naive.Shape(1, 1, 4000))
    pe = decoder_for(wide).pe
    assert isinstance(pe, Rotary)
    theta = pe.frequencies()
    assert theta.dtype == torch.float64 and len(theta) == 2000 and bool((theta >= 0).all())
    for distance in (0.5, 1.0, 2.0):
        kernel = float(torch.cos(theta * distance).mean())
        assert abs(kernel - 2.718281828459045 ** (-(distance**2) / 2)) < 0.06
