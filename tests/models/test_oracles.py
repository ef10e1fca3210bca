"""Every encoding equals the oracles of tests/helpers/oracles: logits and gradients, in float64.

All parameters are perturbed first: a fresh TAPE is RoPE, a fresh CoPE is NoPE, and without the
perturbation much of what is compared would be zero on both sides. If training draws something from
the keys of sequences, the oracles take the number that the encoding reports; test_draws.py tests
how it is drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.arith.registry.declarations import Declaration
from tape_arith.arith.registry.locate import declarations, known_names, split_modifier
from tape_arith.arith.registry.names import parse
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.sequences import Sequences, random_words
from tests.helpers.oracles import biases, content, rotary, tables
from tests.helpers.oracles.decoder import PAD, NoPE, Row, decode
from tests.helpers.small_decoders import NUMBERINGS, VOCABULARY, build, error, setting, setting_of

named, split = cache(parse), cache(split_modifier)  # each looks for files
HIDDEN, END, PLUS, EQUALS = 12, 3, 14, 17
LOGITS_TOLERANCE, GRADIENT_TOLERANCE = 1e-10, 1e-8
# 53+7=81$ and 9+24=6, digits any: two numbers of unequal length, one row shorter than the other.
ROWS: tuple[tuple[int, ...], ...] = (
    (9, 7, PLUS, 11, EQUALS, 12, 5, END),
    (13, PLUS, 6, 8, EQUALS, 10),
)
# 537=735$ and 10=01$, of another task.
MIRRORED_ROWS = ((9, 7, 11, EQUALS, 11, 7, 9, END), (5, 4, EQUALS, 4, 5, END))


@dataclass(frozen=True)
class Case:
    """A decoder and its rows. Indices begin with `offset`, which relative encodings ignore.

    By default it has two layers where they differ or pass on a state, else one.
    """

    name: str
    training: bool = False
    offset: int = 2
    trained_length: int = 28
    final_lengths: tuple[int, int] = (11, 9)
    layers: int = 0
    heads: int = 2
    head_dim: int = 8
    # So many tokens instead of ROWS, to reach far.
    length: int = 0
    # The decoder's norm, loops, input_injection and attention_scale.
    variant: tuple[Any, ...] = ("pre", 1, False)
    coupled: str = "alike"
    # Whether the rows are packed end to end.
    packed: bool = False
    # How many of ROWS: a second one has another length, key and scale.
    rows: int = 2

    def __str__(self) -> str:
        mode = "training" if self.training else "evaluation"
        name = f"{self.name}-{mode}-{self.offset}-{self.trained_length}-{self.heads}"
        name = f"{name}-packed" if self.packed else name
        return name if self.variant == ("pre", 1, False) else f"{name}-{self.variant}"


def decoder_for(case: Case) -> Decoder:
    layers = case.layers or 1 + any(part in case.name for part in ("tape", "hybrid", "fire"))
    sizes = VOCABULARY, layers, HIDDEN, case.heads, case.head_dim, 10
    config = DecoderConfig(*sizes, *case.variant)
    setting = setting_of(
        config,
        trained_length=case.trained_length,
        max_length=max(2 * case.trained_length, *case.final_lengths, case.length),
        coupled=case.coupled,
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
    rows = (MIRRORED_ROWS if case.coupled == "mirrored" else ROWS)[: case.rows]
    if case.length:
        rows = (tuple(4 + (7 * t * t + 3 * t) % 11 for t in range(case.length)),)
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    keys = torch.tensor((5, 1234))[: len(rows)]
    return Sequences(tokens, torch.tensor(case.final_lengths)[: len(rows)], keys, case.offset)


def packed(seqs: Sequences) -> Sequences:
    """The same rows end to end, without padding."""
    real = seqs.tokens != PAD
    lengths = real.sum(1)
    starts = torch.cat((lengths[:1] * 0, lengths.cumsum(0))).to(torch.int32)
    return replace(seqs, tokens=seqs.tokens[real][None], starts=starts, longest=int(lengths.max()))


# ---- the oracle of each encoding ---------------------------------------------------------------


def drawn(oracle: Callable[[Row, list[int]], NoPE]) -> Callable[[Row], NoPE]:
    return lambda row: oracle(row, row.drawn())


def offset(row: Row) -> list[int]:
    index = row.drawn()
    first = index[0] if row.pe.training else row.seqs.offset
    assert index == [first + t for t in range(len(index))]
    return index


def abacus(row: Row, pe: PositionalEncoding | None = None) -> list[int]:
    """Number by the loop, in training from the k that the encoding drew."""
    index = row.drawn(pe)
    start = index[0] - 1 if row.pe.training else 0
    assert index == tables.abacus_indices(row.tokens, range(4, 14), start)
    return index


def coupling(row: Row) -> list[int]:
    index = row.drawn()
    if row.pe.setting.coupled == "mirrored":
        start, n = index[0] if row.pe.training else 1, row.tokens.index(EQUALS)
        rest = len(row.tokens) - 2 * n - 1
        assert index == tables.mirrored_indices(n, n, rest, start)
        return index
    start = index[0] - 1 if row.pe.training else 1
    assert index == tables.coupling_indices(row.tokens, range(4, 14), (PLUS, EQUALS), start)
    return index


ORACLES: dict[str, Callable[[Row], NoPE]] = {
    "nope": NoPE,
    "alibi": biases.ALiBi,
    "rand-alibi": drawn(biases.ALiBi),
    "t5": biases.T5,
    "kerple-log": biases.KerpleLog,
    "kerple-power": biases.KerplePower,
    "sandwich": biases.Sandwich,
    "hard-alibi": biases.HardALiBi,
    "nape": biases.NAPE,
    "shaw": biases.Shaw,
    "fire": biases.FIRE,
    "rand-fire": drawn(biases.FIRE),
    "sinusoidal": tables.Sinusoidal,
    "rand-sinusoidal": drawn(tables.Sinusoidal),
    "learned": tables.Table,
    "learned-offset": lambda row: tables.Table(row, offset(row)),
    "rand-learned": drawn(tables.Table),
    "rope": rotary.RoPE,
    "rand-rope": drawn(rotary.RoPE),
    "rope-partial": rotary.RoPEPartial,
    "p-rope": rotary.PRoPE,
    "xpos": rotary.XPos,
    "pope": rotary.PoPE,
    "hybrid": rotary.Hybrid,
    "repo": rotary.RePo,
    "selective-rope": rotary.SelectiveRoPE,
    "tape": rotary.TAPE,
    "tape-heads": rotary.TAPEHeads,
    "fox": content.FoX,
    "wall": content.Wall,
    "canon": content.Canon,
    "cope": content.CoPE,
    "stick-breaking": content.StickBreaking,
    "path": content.PaTH,
    "dape": content.DAPE,
    "abacus": lambda row: tables.Table(row, abacus(row)),
    "coupling": lambda row: tables.Table(row, coupling(row)),
    "bipe": tables.BiPE,
}


SCALED = (
    *("rope", "p-rope", "rope-partial", "xpos", "pope", "tape", "tape-heads", "sinusoidal"),
    *("fire", "alibi", "kerple-log", "kerple-power", "hard-alibi", "nape", "sandwich"),
    *("dape", "bipe", "hybrid", "repo"),
)


def is_scaled(name: str) -> bool:
    return build(name, setting()).computes_with_index


def has_base(declared: Declaration) -> bool:
    """Tell whether an option `base` is a number: dape's is the name of an encoding."""
    return "base" in declared.options and declared.options["base"].annotation == "float"


def scaled(row: Row) -> Row:
    """The row whose indices PosAug multiplies in training, by a number that its key alone tells."""
    if not row.pe.training:
        return row
    (word,) = random_words(row.seqs.key[row.row][None] ^ int.from_bytes(b"aug"), 1)[0].tolist()
    return replace(row, scale=1 + (row.options.get("a", 2) - 1) * (word / 2**32))


def oracle_of(row: Row) -> NoPE:
    """The oracle of the name; of `abacus+x` x with Abacus in its embeddings; of `aug-x` scaled."""
    *embedding, last = row.name.encoding.parts
    modifier, plain = split(last.name)
    row = scaled(row) if modifier else row
    if not embedding:
        return ORACLES[plain](row)
    part, table = row.pe.get_submodule("parts.0"), row.weights["pe.parts.0.table"]
    assert isinstance(part, PositionalEncoding) and embedding[0].name == "abacus"
    index = abacus(row, part)
    alone = {name.replace("pe.parts.1.", "pe."): weight for name, weight in row.weights.items()}
    oracle: Any = ORACLES[plain](replace(row, weights=alone))
    embed = oracle.embed
    oracle.embed = lambda t, x: embed(t, x + table[index[t]])
    joined: NoPE = oracle
    return joined


# ---- the cases ---------------------------------------------------------------------------------

# One row longer than the trained ones by an uneven factor, the other as short as they. At a head of
# 8 channels YaRN's index ramp of 1,000 tokens is 1, 2/3, 1/3, 0 and that of 3,000 tokens starts at
# the second frequency; the paper's ramp of 124 tokens is 0.60, 0.03, 0, 0.
LONG: dict[str, Any] = {"trained_length": 1000, "final_lengths": (2345, 900)}
LONGER: dict[str, Any] = {"trained_length": 3000, "final_lengths": (2900, 7777)}
PAPER: dict[str, Any] = {"trained_length": 124, "final_lengths": (244, 124)}
# To compare what grows with distance or heads.
FOUR: dict[str, Any] = {"heads": 4, "head_dim": 2}
SIX: dict[str, Any] = {"heads": 6, "head_dim": 2}
# More than one loop after the first, where x0 is added again and TAPE's state continues.
VARIANTS = (("post", 1, False), ("pre", 3, True), ("deepnorm", 3, True))
# sqrt 2 is the norm of a rotation, 1 that of a vector, so that a clamp acts.
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
# Scalable-Softmax, of encodings of each kind; `fire` adds a bias, `shaw` and `cope` products of q.
LOG = ("pre", 2, False, "log")
SCALED_SCORES = (
    *("nope", "rope", "xpos", "pope", "selective-rope", "tape", "tape-heads"),
    *("alibi", "fire", "shaw", "fox", "cope", "path", "dape", "abacus+rope", "sinusoidal"),
)
RESCALED = (
    *("rope+yarn", "rope+pi", "rope+ntk", "rope+ntk-dynamic", "rope+ntk-dynamic:factor=3.5"),
    *("rope+pi:scale=static", "rope+ntk:scale=static", "rope-partial:fraction=0.75+ntk"),
    *("p-rope+pi", "p-rope+ntk", "xpos:scale_base=500+yarn", "pope+yarn", "tape+yarn"),
    *("tape:start=fourier+pi", "tape:form=vector+yarn", "tape-heads+ntk"),
    *("rope:base=400+yarn", "rope:base=50+ntk", "tape:base=400+yarn", "hybrid+yarn"),
)
BASED = (
    *("rope", "rand-rope", "p-rope", "rope-partial", "xpos", "pope", "tape", "tape-heads"),
    *("hybrid", "repo"),
)
PLAIN = (
    *(f"{name}:base=50" for name in BASED),
    *("alibi", "t5", "shaw:kmax=3", "shaw", "fire", "rand-fire:init_l=2:l_max=200", "learned"),
    *("learned-offset", "rand-sinusoidal", "rand-rope", "rope-partial:fraction=0.75"),
    *("rope-partial", "p-rope:p=0.6", "xpos", "xpos:scale_base=3", "pope:phase=uniform"),
    *("selective-rope", "fox:b_f=5", "cope", "stick-breaking", "path", "abacus", "coupling"),
    *("canon", "wall", "wall:b=0", "hybrid:offset=0", "abacus+canon"),
    *("abacus+rand-rope", "abacus+sinusoidal", "abacus+tape", "aug-rope:a=4"),
    *("tape:start=fourier", "tape-heads:start=fourier", "tape:start=learned"),
    *("tape:form=vector:start=learned", "tape:form=non-equivariant:start=learned"),
    "tape-heads:start=learned",
    "cope:positions=4",  # positions run into the last one
    "bipe:rows=2",  # places beyond the second share its row
    "fire:init_l=2",  # |l_multiplier| x 2 lies within the sequence: it divides queries before it
)
TRAINED = (
    *("rand-alibi", "learned-offset", "dape", "abacus:k=7", "coupling:s=3", "bipe:k=3"),
    *("abacus+rope", "abacus+fire", "abacus+cope", "aug-tape:a=4"),
    *(f"abacus+aug-{name}" for name in ("rope", "fire", "sinusoidal")),
    *(f"aug-{name}" for name in SCALED),
)
# They take the same lines as others of these lists.
LIKE_OTHERS = (
    *("aug-nape", "aug-kerple-log", "aug-hard-alibi", "aug-p-rope", "aug-rope-partial"),
    *("aug-hybrid", "nope", "tape", "alibi", "sinusoidal"),
)
CASES = [
    *(Case(name, rows=1) for name in PLAIN),
    *(Case(name, training=True) for name in TRAINED if name not in LIKE_OTHERS),
    *(Case("coupling:s=3", training=training, coupled="mirrored") for training in (True, False)),
    *(Case(name, layers=3, heads=1) for name in ("nope", "rope", "tape")),
    *(Case(name, rows=1) for name in ("tape-heads", *ABLATIONS, *CLAMPED)),
    # One layer without RoPE in the middle, at both ends, and two among five.
    *(Case(f"hybrid:{options}", layers=3) for options in ("period=3:offset=1", "offset=0")),
    Case("hybrid:period=3:offset=1", layers=5, heads=1, head_dim=4),
    *(Case(name, layers=3, training=True) for name in ("repo", "aug-repo", "abacus+aug-hybrid")),
    Case("repo", layers=7, heads=1, head_dim=4),  # floor(7 / 3) = 2 plain ones
    *(Case(name, length=13) for name in ("wall", "canon")),  # parts of 2 and 3 tokens
    Case("rand-learned", offset=0),
    *(Case(f"rand-{name}:draw=float") for name in ("rope", "fire", "alibi", "sinusoidal")),
    Case("rand-rope:draw=float", packed=True, training=True),
    Case("sinusoidal", offset=3000),
    # All 32 buckets and beyond, and distances on the edge of a bucket.
    Case("t5:max_distance=32", heads=1, head_dim=2, length=40),
    *(Case(name, **FOUR) for name in ("sandwich", "nape:slopes=geometric")),
    *(Case(name, **FOUR, length=12) for name in ("kerple-log", "kerple-power")),
    *(Case(name, **SIX) for name in ("alibi", "nape", "hard-alibi")),
    Case("hard-alibi:windows=consecutive", **SIX),
    Case("hard-alibi:windowed=4", **SIX, length=20),
    Case("hard-alibi", heads=1),
    Case("sandwich:width=16", **SIX, length=12),
    *(Case(f"dape:base={base}:width=5", layers=1) for base in ("alibi", "fire")),
    *(Case(name, **LONG) for name in RESCALED),
    Case("abacus+rope+pi", trained_length=6),
    Case("rope+yarn", **LONGER),
    Case("rope+yarn:ramp=paper", **PAPER),
    Case("rope+ntk", training=True, **LONG),  # in training an extrapolation does nothing
    *(Case(name, heads=1, variant=v) for name in ("rope", "tape") for v in VARIANTS),
    *(Case(name, heads=1, variant=("pre", 2, True)) for name in ("hybrid", "fire", "tape-heads")),
    *(Case(name, heads=1, variant=("pre", 2, True)) for name in ("selective-rope", "canon")),
    Case("repo", layers=3, heads=1, variant=("pre", 2, True)),
    Case("tape", layers=1, variant=("pre", 3, False)),
    Case("abacus+tape", training=True, variant=("deepnorm", 2, True)),
    Case("tape:clamp=1.5", variant=("deepnorm", 1, False)),
    *(Case(name, variant=LOG, rows=1) for name in SCALED_SCORES if name not in LIKE_OTHERS),
    *(Case(name, variant=LOG, packed=True) for name in ("nope", "pope", "tape", "tape-heads")),
    Case("abacus+rand-rope", packed=True, training=True, variant=LOG),
    *(Case(f"{name}+logn", trained_length=3) for name in ("pope", "fire", "abacus+rope")),
    Case("tape-heads+logn", trained_length=3, packed=True),
    Case("tape+logn", trained_length=3, training=True),
]
SLOW_CASES = [
    *(Case(name, training=True) for name in TRAINED if name in LIKE_OTHERS),
    *(Case(name, variant=LOG) for name in SCALED_SCORES if name in LIKE_OTHERS),
]


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW_CASES)],
    ids=str,
)
def test_logits_and_gradients_equal_the_oracle(case: Case) -> None:
    decoder, seqs = decoder_for(case), sequences(case)
    generator = torch.Generator().manual_seed(11)
    projection = torch.randn(*seqs.tokens.shape, VOCABULARY, generator=generator).double()
    real = seqs.tokens != PAD
    logits = decoder(packed(seqs))[0] if case.packed else decoder(seqs)[real]
    assert logits.dtype == torch.float64
    torch.autograd.backward((logits * projection[real]).sum())

    weights = {n: p.detach().clone().requires_grad_() for n, p in decoder.named_parameters()}
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(seqs.tokens)):
        row = Row(named(case.name), weights, decoder.pe, seqs, i)
        expected = decode(row, oracle_of(row), *case.variant)
        of_row = logits[int(real[:i].sum()) :][: len(expected)]
        assert error(of_row.detach(), expected.detach()) < LOGITS_TOLERANCE, i
        total = total + (expected * projection[i, : len(expected)]).sum()
    torch.autograd.backward(total)

    # A parameter that no branch of an oracle used (FIRE's L, if every query lies beyond it) has no
    # gradient; that of an inert bias, which moves all scores of a row alike, is rounding.
    zero = torch.zeros(())
    gradients = {n: zero.expand_as(w) if w.grad is None else w.grad for n, w in weights.items()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in decoder.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert error(gradient, gradients[name], 1e-5 * largest) < GRADIENT_TOLERANCE, name


def test_every_encoding_and_extrapolation_has_an_oracle() -> None:
    assert sorted(ORACLES) == known_names("encoding")
    names = [named(case.name) for case in (*CASES, *SLOW_CASES)]
    held = {split(name.encoding.parts[-1].name) for name in names}
    assert {plain for _, plain in held} == set(known_names("encoding"))
    assert {plain for modifier, plain in held if modifier} == set(SCALED)
    assert set(BASED) == {d.name for d in declarations("encoding") if has_base(d)}
    assert set(SCALED) == {name for name in known_names("encoding") if is_scaled(name)}
    extrapolations = {name.extrapolation.name for name in names if name.extrapolation}
    assert extrapolations | set(NUMBERINGS) == set(known_names("extrapolation"))


def test_oracles_differ() -> None:
    """An encoding that did nothing would agree with loops that did nothing.

    Without the MLP both forms of TAPE are one, e + s_h A e, and learned-offset is learned.
    """
    twins = {name: name.replace("-heads", "") for name in (ABLATIONS[-1], CLAMPED[-1])}
    twins["learned-offset"] = "learned"
    seen: list[tuple[str, Tensor]] = []
    for name in (*ORACLES, *ABLATIONS, *CLAMPED):
        case = Case(name, layers=2)
        decoder, generator = decoder_for(case), torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parts in (decoder.blocks, decoder.embedding, decoder.pe):
                for part in parts.parameters():
                    part.copy_(torch.randn(part.shape, generator=generator))
        weights = {n: p.detach() for n, p in decoder.named_parameters()}
        row = Row(named(name), weights, decoder.pe, sequences(case), 0)
        logits = decode(row, oracle_of(row))
        for other, different in seen:
            same = other == twins.get(name)
            assert (error(logits, different) < 1e-10) == same, (name, other)
        seen.append((name, logits))
