"""Every encoding equals the loops of tests/helpers/oracles: logits and gradients, in float64.

All parameters are perturbed first: a fresh TAPE is RoPE, a fresh CoPE is NoPE, and without the
perturbation much of what is compared would be zero on both sides. If training draws something from
the keys of sequences, the loops take the number that the encoding reports; test_draws.py tests how
it is drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import Name, parse
from tape_arith.models.sequences import Sequences
from tests.helpers import small_decoders
from tests.helpers.oracles import biases, content, rotary, tables
from tests.helpers.oracles.decoder import NoPE, Shape, Weights, decode

SHAPE = Shape(num_layers=2, num_heads=2, head_dim=8)
DEEP = Shape(num_layers=3, num_heads=2, head_dim=8)
# Where only what grows with distance or heads is compared, the rest is kept small.
FOUR_HEADS = Shape(num_layers=1, num_heads=4, head_dim=2)
SIX_HEADS = Shape(num_layers=1, num_heads=6, head_dim=2)
ONE_HEAD = Shape(num_layers=1, num_heads=1, head_dim=2)
HIDDEN, VOCABULARY, PAD, END, PLUS, EQUALS = 12, 19, 0, 3, 14, 17
LOGITS_TOLERANCE, GRADIENT_TOLERANCE = 1e-10, 1e-8
# 53+7=851$ and 9+24=61, digits any: two numbers of unequal length, one row shorter than the other.
ROWS: tuple[tuple[int, ...], ...] = (
    (9, 7, PLUS, 11, EQUALS, 12, 9, 5, END),
    (13, PLUS, 6, 8, EQUALS, 10, 5),
)


@dataclass(frozen=True)
class Case:
    name: str
    training: bool = False
    offset: int = 0
    trained_length: int = 28
    final_lengths: tuple[int, int] = (11, 9)
    shape: Shape = SHAPE
    # So many tokens instead of ROWS, to reach far.
    length: int = 0

    def __str__(self) -> str:
        mode = "training" if self.training else "evaluation"
        sizes = f"{self.shape.num_heads}x{self.shape.head_dim}"
        return f"{self.name}-{mode}-{self.offset}-{self.trained_length}-{sizes}-{self.length}"


def decoder_for(case: Case) -> Decoder:
    shape = case.shape
    config = DecoderConfig(
        VOCABULARY, shape.num_layers, HIDDEN, shape.num_heads, shape.head_dim, 10
    )
    setting = small_decoders.setting_of(
        config,
        trained_length=case.trained_length,
        max_length=max(2 * case.trained_length, *case.final_lengths, case.length),
    )
    torch.manual_seed(7)
    decoder = Decoder(config, build(case.name, setting)).double().train(case.training)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
            # FIRE takes c and L by their size, so one layer has them negative.
            if name in ("pe.layers.1.c", "pe.layers.1.l_multiplier"):
                parameter.copy_(-parameter.abs())
    # What training keeps within a range is within it here as well.
    decoder.pe.after_step()
    return decoder


def sequences(case: Case) -> Sequences:
    rows = ROWS
    if case.length:
        rows = (tuple(4 + (7 * t * t + 3 * t) % 11 for t in range(case.length)),)
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    keys = torch.tensor((5, 1234))[: len(rows)]
    return Sequences(tokens, torch.tensor(case.final_lengths)[: len(rows)], keys, case.offset)


@dataclass(frozen=True)
class Row:
    """What an oracle may know of one row: its inputs, and what the encoding drew for it."""

    name: Name
    weights: Weights
    shape: Shape
    pe: PositionalEncoding
    seqs: Sequences
    row: int

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.name.encoding.parts[-1].options)

    @property
    def tokens(self) -> list[int]:
        tokens: list[int] = self.seqs.tokens[self.row].tolist()
        return [token for token in tokens if token != PAD]

    @property
    def counted(self) -> list[int]:
        """The index of each token where nothing is drawn."""
        return [self.seqs.offset + t for t in range(len(self.tokens))]

    def drawn(self, pe: PositionalEncoding | None = None) -> list[int]:
        """The index that `pe` reports for each token, which training may have drawn."""
        index = (pe or self.pe).indices(self.seqs)
        drawn: list[int] = index.expand(len(self.seqs.tokens), -1)[self.row].tolist()
        return drawn[: len(self.tokens)]

    def place(self, index: list[int] | None = None) -> tuple[Weights, Shape, list[int]]:
        """The first three fields of every oracle."""
        return self.weights, self.shape, self.counted if index is None else index

    def rotation(self, width: int, thetas: list[float] | None = None) -> tuple[list[float], float]:
        """Frequencies of `width` rotated channels, and their magnitude, in the case's mode."""
        usual = thetas or rotary.frequencies(width)
        part = self.name.extrapolation
        if part is None or self.pe.training:
            return usual, 1.0
        options, setting = dict(part.options), self.pe.setting
        length = int(self.seqs.final_length[self.row])
        if options.get("scale") == "static":
            length = setting.max_length
        trained = setting.trained_length
        scale = max(1.0, length / trained)
        if part.name == "pi":
            return [theta / scale for theta in usual], 1.0
        if part.name == "ntk":
            return rotary.ntk(width, scale), 1.0
        if part.name == "ntk-dynamic":
            factor = options.get("factor", setting.max_length / trained)
            assert isinstance(factor, float)
            return rotary.ntk(width, factor * scale - (factor - 1.0)), 1.0
        ramp = rotary.paper_ramp if options.get("ramp") == "paper" else rotary.index_ramp
        return rotary.yarn(width, ramp(width, trained), scale)


# ---- which oracle an encoding has, and what it is given ----------------------------------------


def alibi(r: Row, index: list[int] | None = None) -> biases.Bias:
    return biases.ALiBi(*r.place(index), biases.alibi_slopes(r.shape.num_heads))


def fire(r: Row, index: list[int] | None = None, prefix: str = "pe.layers.{}") -> biases.Bias:
    init_l = r.options.get("init_l", float(r.pe.setting.trained_length))
    return biases.FIRE(*r.place(index), init_l, prefix)


def hard_alibi(r: Row) -> NoPE:
    heads = r.shape.num_heads
    windowed = r.options.get("windowed", heads // 2)
    doubling = r.options.get("windows") != "consecutive"
    windows = [2**h if doubling else h + 1 for h in range(windowed)]
    return biases.HardALiBi(*r.place(), [*windows, *[None] * (heads - windowed)])


def nape(r: Row) -> NoPE:
    half = r.shape.num_heads // 2
    linear = r.options.get("slopes") != "geometric"
    slopes = [1.0 / h for h in range(1, half + 1)] if linear else biases.alibi_slopes(half)
    return biases.ALiBi(*r.place(), [*slopes, *[0.0] * (r.shape.num_heads - half)])


def rope(r: Row, index: list[int] | None = None) -> NoPE:
    return rotary.RoPE(*r.place(index), *r.rotation(r.shape.head_dim))


def rope_partial(r: Row) -> NoPE:
    width = 2 * int(r.options.get("fraction", 0.25) * r.shape.head_dim / 2)
    return rotary.RoPE(*r.place(), *r.rotation(width))


def p_rope(r: Row) -> NoPE:
    """An extrapolation acts on the whole schedule; then the lowest frequencies stop."""
    kept = rotary.p_rope_frequencies(r.shape.head_dim, r.options.get("p", 0.75))
    thetas, magnitude = r.rotation(r.shape.head_dim)
    turning = [new if old else 0.0 for old, new in zip(kept, thetas, strict=True)]
    return rotary.RoPE(*r.place(), turning, magnitude)


def xpos(r: Row) -> NoPE:
    scale_base = r.options.get("scale_base", r.pe.setting.trained_length / 2)
    return rotary.XPos(*r.place(), *r.rotation(r.shape.head_dim), scale_base)


def pope(r: Row) -> NoPE:
    """K frequencies 10000^(-c/K): those of RoPE in a head twice as wide."""
    return rotary.PoPE(*r.place(), *r.rotation(2 * r.shape.head_dim))


def tape(kind: type[rotary.Contextual]) -> Callable[[Row], NoPE]:
    def oracle(r: Row) -> NoPE:
        options, thetas = r.options, None
        start = options.pop("start", "rope")
        if start == "learned":
            options["table"] = r.weights["pe.table"][r.counted]
        if start == "fourier":  # drawn when the encoding was built; test_draws.py tests it
            assert isinstance(r.pe, Rotary)
            thetas = r.pe.frequencies().tolist()
        return kind(*r.place(), *r.rotation(r.shape.head_dim, thetas), **options)

    return oracle


def dape(r: Row) -> NoPE:
    base: biases.Bias = {
        "alibi": alibi(r),
        "kerple-log": biases.KerpleLog(*r.place(), "pe.base"),
        "fire": fire(r, prefix="pe.layers.{}.base"),
    }[r.options.get("base", "kerple-log")]
    return content.DAPE(*r.place(), base)


def table(index: Callable[[Row], list[int]]) -> Callable[[Row], NoPE]:
    return lambda r: tables.Table(*r.place(index(r)), r.weights["pe.table"])


def offset_index(r: Row) -> list[int]:
    drawn = r.drawn()
    start = drawn[0] if r.pe.training else r.seqs.offset
    assert drawn == [start + t for t in range(len(drawn))]
    return drawn


def abacus_index(r: Row, pe: PositionalEncoding | None = None) -> list[int]:
    """Numbered by the loop; in training from the k that the encoding drew."""
    drawn = r.drawn(pe)
    index = tables.abacus_indices(r.tokens, range(4, 14), drawn[0] - 1 if r.pe.training else 0)
    assert drawn == index
    return index


def coupling_index(r: Row) -> list[int]:
    drawn = r.drawn()
    start = drawn[0] - 1 if r.pe.training else 1
    index = tables.coupling_indices(r.tokens, range(4, 14), (PLUS, EQUALS), start)
    assert drawn == index
    return index


def bipe(r: Row) -> NoPE:
    pairs = tables.bipe_indices(r.tokens, (PLUS, EQUALS))
    shift = 0
    if r.pe.training:  # the row of the table that the first token, of place 0, is given
        rows = r.pe.get_parameter("table").detach()
        zeros = torch.zeros(*r.seqs.tokens.shape, HIDDEN, dtype=rows.dtype)
        first = r.pe.embed(zeros, r.pe.indices(r.seqs), r.seqs)[r.row, 0].detach()
        (shift,) = [p for p in range(len(rows)) if torch.equal(rows[p], first)]
    segments, places = zip(*pairs, strict=True)
    rotation = r.rotation(r.shape.head_dim)
    return tables.BiPE(*r.place(list(segments)), *rotation, [p + shift for p in places])


ORACLES: dict[str, Callable[[Row], NoPE]] = {
    "nope": lambda r: NoPE(*r.place()),
    "alibi": alibi,
    "rand-alibi": lambda r: alibi(r, r.drawn()),
    "t5": lambda r: biases.T5(*r.place(), r.options.get("max_distance", 128)),
    "kerple-log": lambda r: biases.KerpleLog(*r.place()),
    "kerple-power": lambda r: biases.KerplePower(*r.place()),
    "sandwich": lambda r: biases.Sandwich(*r.place(), r.options.get("width", 128)),
    "hard-alibi": hard_alibi,
    "nape": nape,
    "shaw": lambda r: biases.Shaw(*r.place()),
    "fire": fire,
    "rand-fire": lambda r: fire(r, r.drawn()),
    "sinusoidal": lambda r: tables.Sinusoidal(*r.place()),
    "rand-sinusoidal": lambda r: tables.Sinusoidal(*r.place(r.drawn())),
    "learned": table(lambda r: r.counted),
    "learned-offset": table(offset_index),
    "rand-learned": table(Row.drawn),
    "rope": rope,
    "rand-rope": lambda r: rope(r, r.drawn()),
    "rope-partial": rope_partial,
    "p-rope": p_rope,
    "xpos": xpos,
    "pope": pope,
    "selective-rope": lambda r: rotary.SelectiveRoPE(*r.place()),
    "tape": tape(rotary.TAPE),
    "tape-heads": tape(rotary.TAPEHeads),
    "fox": lambda r: content.FoX(*r.place()),
    "cope": lambda r: content.CoPE(*r.place()),
    "stick-breaking": lambda r: content.StickBreaking(*r.place()),
    "path": lambda r: content.PaTH(*r.place()),
    "dape": dape,
    "abacus": table(abacus_index),
    "coupling": table(coupling_index),
    "bipe": bipe,
}


def oracle_of(r: Row) -> NoPE:
    """The oracle of the name; of `abacus+x` Abacus in the embeddings and x in attention."""
    *embedding, last = r.name.encoding.parts
    if not embedding:
        return ORACLES[last.name](r)
    part = r.pe.get_submodule("parts.0")
    assert isinstance(part, PositionalEncoding) and embedding[0].name == "abacus"
    index, rows = abacus_index(r, part), r.weights["pe.parts.0.table"]
    alone = {n.replace("pe.parts.1.", "pe."): w for n, w in r.weights.items()}
    attention = ORACLES[last.name](replace(r, weights=alone))
    return tables.Joined(*r.place(), tables.Table(*r.place(index), rows), attention)


# ---- the cases: the first of every encoding and extrapolation is a fast one --------------------

# One row longer than the trained ones by an uneven factor, the other as short as they. At a head of
# 8 channels YaRN's index ramp of 1,000 tokens is 1, 2/3, 1/3, 0 and that of 3,000 tokens starts at
# the second frequency; the paper's ramp of 124 tokens is 0.60, 0.03, 0, 0.
LONG: dict[str, Any] = {"trained_length": 1000, "final_lengths": (2345, 900)}
LONGER: dict[str, Any] = {"trained_length": 3000, "final_lengths": (2900, 7777)}
PAPER: dict[str, Any] = {"trained_length": 124, "final_lengths": (244, 124)}
# tape's ablations; sqrt 2 is the norm of a rotation, 1 that of a vector, so that a clamp acts.
ABLATIONS = (
    "tape:context=no-attention",
    "tape:context=no-mlp",
    "tape:form=non-equivariant",
    "tape:context=no-attention:form=non-equivariant",
    "tape:form=vector",
    "tape:context=no-attention:form=vector",
    "tape:context=no-mlp:form=vector",
    "tape-heads:context=no-attention",
    "tape-heads:context=no-mlp",
)
CLAMPED = (
    "tape:clamp=1.5",
    "tape:clamp=1.5:context=no-mlp",
    "tape:clamp=1.5:form=non-equivariant",
    "tape:clamp=1.1:form=vector",
    "tape-heads:clamp=1.5",
    "tape-heads:clamp=1.5:context=no-attention",
    "tape-heads:clamp=1.5:context=no-mlp",
)
FAST = [
    Case("nope", shape=DEEP),
    Case("rope", shape=DEEP, offset=5),
    Case("tape", shape=DEEP, offset=5),
    Case("tape-heads", shape=DEEP, offset=5),
    Case("fire"),
    # |l_multiplier| x 2 lies within the sequence: queries before it are normalized by it.
    Case("fire:init_l=2", offset=5),
    *(Case(name, shape=DEEP, offset=3) for name in (*ABLATIONS, *CLAMPED)),
    Case("tape:start=fourier"),
    Case("tape:start=learned", offset=5, training=True),
    Case("tape-heads:start=learned"),
    Case("rope+yarn", **LONG),
    Case("rope+yarn:ramp=paper", **PAPER),
    Case("rope+pi", **LONG),
    Case("rope+ntk", **LONG),
    Case("rope+ntk-dynamic", **LONG),
    Case("tape+yarn", **LONG),
    Case("rope+ntk", training=True, **LONG),  # in training an extrapolation does nothing
    Case("alibi"),
    Case("alibi", shape=SIX_HEADS, offset=5),
    Case("t5"),
    # All 32 buckets and beyond, and distances on the edge of a bucket.
    Case("t5:max_distance=32", shape=ONE_HEAD, length=40),
    Case("kerple-log", shape=FOUR_HEADS, length=20),
    Case("kerple-power", shape=FOUR_HEADS, length=20),
    Case("sandwich", shape=FOUR_HEADS),
    Case("hard-alibi", shape=SIX_HEADS, offset=5),
    Case("nape", shape=SIX_HEADS, offset=5),
    Case("shaw:kmax=3"),
    Case("sinusoidal", offset=3000),
    Case("learned", offset=5),
    Case("learned-offset", training=True),
    Case("rand-alibi", training=True),
    Case("rand-fire:init_l=2:l_max=200"),
    Case("rand-sinusoidal"),
    Case("rand-learned"),
    Case("rand-rope", offset=5),
    Case("rope-partial:fraction=0.75"),
    Case("p-rope:p=0.6", offset=5),
    Case("xpos:scale_base=3", offset=5),
    Case("pope:phase=uniform"),
    Case("selective-rope", offset=5),
    Case("dape:base=alibi:width=5", shape=FOUR_HEADS),
    Case("dape:width=5"),
    Case("fox:b_f=5"),
    Case("cope"),
    Case("cope:positions=4"),  # positions run into the last one
    Case("stick-breaking"),
    Case("path"),
    Case("abacus:k=7", training=True),
    Case("abacus+rope+pi", trained_length=6),
    Case("coupling"),
    Case("coupling:s=3", training=True),
    Case("bipe:rows=2"),  # places beyond the second share its row
    Case("bipe:k=3", training=True),
]
SLOW = [
    Case("rope", offset=5, training=True),
    Case("rope+yarn", **LONGER),
    Case("t5", shape=ONE_HEAD, length=150),
    Case("t5:max_distance=256", shape=ONE_HEAD, length=70),
    Case("sandwich:width=16", shape=SIX_HEADS, length=30),
    Case("hard-alibi:windows=consecutive", shape=SIX_HEADS),
    Case("hard-alibi:windowed=4", shape=SIX_HEADS, length=20),
    Case("nape:slopes=geometric", shape=FOUR_HEADS),
    Case("shaw", offset=5),
    Case("learned-offset", offset=5),
    Case("rand-fire", training=True),
    Case("rope-partial"),
    Case("p-rope:p=0.25", training=True),
    Case("xpos"),
    Case("pope", offset=5),
    Case("selective-rope:rank=5", training=True),
    Case("tape-heads:start=fourier", offset=5),
    *(Case(f"{name}:start=learned", shape=DEEP) for name in (*ABLATIONS[:5], *ABLATIONS[-2:])),
    *(
        Case(name, **LONG)
        for name in (
            *("rope+pi:scale=static", "rope+ntk:scale=static", "rope+ntk-dynamic:factor=3.5"),
            *(f"rope-partial:fraction=0.75+{change}" for change in ("pi", "ntk", "yarn")),
            *("p-rope+pi", "p-rope+ntk", "xpos:scale_base=500+yarn", "pope+pi", "pope+yarn"),
            *("pope+ntk-dynamic", "tape+pi", "tape+ntk", "tape:start=fourier+pi"),
            *("tape-heads+yarn", "tape-heads+ntk", "tape:form=vector+yarn"),
        )
    ),
    Case("p-rope+yarn:ramp=paper", **PAPER),
    Case("tape+yarn:ramp=paper", **PAPER),
    Case("dape"),
    Case("dape:base=fire:width=5", training=True),
    Case("dape:base=alibi", offset=5),
    Case("fox", offset=5, training=True),
    Case("cope:positions=2", offset=5, training=True),
    Case("path:rank=5", offset=5, training=True),
    Case("abacus", training=True),
    Case("abacus+rope", offset=5, training=True),
    Case("abacus+fire", training=True),
    Case("coupling", training=True),
    Case("bipe", training=True),
]


def error(ours: Tensor, theirs: Tensor, least: float = 0.0) -> float:
    """Largest difference, relative to the largest of `theirs` and not to less than `least`."""
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=max(least, 1e-300)))


@pytest.mark.parametrize(
    "case", [*FAST, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)], ids=str
)
def test_logits_and_gradients_equal_the_loops(case: Case) -> None:
    decoder, seqs = decoder_for(case), sequences(case)
    generator = torch.Generator().manual_seed(11)
    projection = torch.randn(*seqs.tokens.shape, VOCABULARY, generator=generator).double()
    real = seqs.tokens != PAD
    logits = decoder(seqs)
    assert logits.dtype == torch.float64
    torch.autograd.backward((logits * projection)[real].sum())

    weights = {n: p.detach().clone().requires_grad_() for n, p in decoder.named_parameters()}
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(seqs.tokens)):
        known = Row(parse(case.name), weights, case.shape, decoder.pe, seqs, row)
        n = len(known.tokens)
        expected = decode(weights, case.shape, known.tokens, oracle_of(known))
        assert error(logits[row, :n].detach(), expected.detach()) < LOGITS_TOLERANCE, row
        total = total + (expected * projection[row, :n]).sum()
    torch.autograd.backward(total)

    # What no branch of the loops came by (FIRE's L, where every query lies beyond it) is zero; an
    # inert bias moves all scores of a row alike, so that its gradient is rounding on both sides.
    zero = torch.zeros(())
    gradients = {n: zero.expand_as(w) if w.grad is None else w.grad for n, w in weights.items()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in decoder.named_parameters():
        ours = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert error(ours, gradients[name], 1e-5 * largest) < GRADIENT_TOLERANCE, name


def test_every_encoding_and_extrapolation_has_an_oracle() -> None:
    assert sorted(ORACLES) == known_names("encoding")
    names = [parse(case.name) for case in FAST]
    assert {name.encoding.parts[-1].name for name in names} == set(known_names("encoding"))
    extrapolations = {name.extrapolation.name for name in names if name.extrapolation}
    assert extrapolations | set(small_decoders.NUMBERINGS) == set(known_names("extrapolation"))


@pytest.mark.parametrize("name", [name for name in ORACLES if name != "nope"])
def test_every_encoding_acts(name: str) -> None:
    """An encoding that did nothing would agree with loops that did nothing."""
    decoder = decoder_for(Case(name))
    plain = decoder_for(Case("nope"))
    own = {n: p for n, p in decoder.state_dict().items() if not n.startswith("pe.")}
    plain.load_state_dict(own)
    with torch.no_grad():
        assert error(decoder(sequences(Case(name))), plain(sequences(Case(name)))) > 1e-3


def test_the_ablations_of_tape_differ() -> None:
    """In the loops. Without the MLP both forms are one: e + s_h A e."""
    seen: list[tuple[str, Tensor]] = []
    for name in ("tape", "tape-heads", *ABLATIONS, *CLAMPED):
        case = Case(name, shape=DEEP)
        decoder, twin = decoder_for(case), name.replace("tape-heads", "tape")
        with torch.no_grad():
            for part in decoder.blocks.parameters():
                part.copy_(torch.randn(part.shape, generator=torch.Generator().manual_seed(1)))
            for i, part in enumerate(decoder.pe.parameters()):
                part.copy_(torch.randn(part.shape, generator=torch.Generator().manual_seed(i)))
        weights = {n: p.detach() for n, p in decoder.named_parameters()}
        row = Row(parse(name), weights, DEEP, decoder.pe, sequences(case), 0)
        logits = decode(weights, DEEP, row.tokens, oracle_of(row))
        for other, theirs in seen:
            same = "no-mlp" in name and other == twin != name
            assert (error(logits, theirs) < 1e-10) == same, (name, other)
        seen.append((name, logits))
