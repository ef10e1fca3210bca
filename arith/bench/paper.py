"""The paper's Tables 3 and 4, in the paper's setting: parameters, FLOPs, MACs and time.

Of its language model the paper (Zhu et al. 2025, Sec. 4.2 and 4.4) gives 12 layers, hidden 768, 12
heads, an MLP of 3072 and 1024 tokens in a batch of 1. A gated MLP and 32,000 tokens of vocabulary
are our reading: with them the MACs of Table 3 come out to its last digit, and the parameters too,
if its "M" is 2^20. TAPE's are those of `tape-heads` with e stored twice, as the authors' code does,
and updated in the last layer, where nobody reads it; ours does neither. The paper's FLOPs are more
than twice its MACs: it counted more than matrix products.

Legend: B batch, T tokens, D hidden.
"""

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import torch

from tape_arith.arith.bench.attention import lacking
from tape_arith.arith.bench.measure import Measurement, Options, Timing, interleaved, not_measured
from tape_arith.arith.errors import UsageError
from tape_arith.arith.training.flops import counted, forward_flops, matmuls, padded
from tape_arith.models import backends
from tape_arith.models.backends.backend import Backend
from tape_arith.models.build import build, build_decoder
from tape_arith.models.decoder import Block, Decoder, DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, PositionalLayer, Setting, State
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import parse
from tape_arith.models.sequences import Sequences

STAGE = "paper"
TAKES = frozenset({"encodings"})

ENCODINGS = ("rope", "tape", "tape-heads", "fire", "t5")
TOKENS, QUICK_TOKENS = 1024, 16
SIZES = DecoderConfig(32_000, 12, 768, 12, 64, 3072)
QUICK_SIZES = DecoderConfig(50, 3, 16, 2, 8, 24)
STEPS = 100
MEBI = 2**20
FUSED = "fused"


class Published(NamedTuple):
    """A column of Tables 3 and 4: parameters in M, FLOPs and MACs in G, and 1e-4 s of the
    attention layers on one A100."""

    parameters: float | None = None
    flops: float | None = None
    macs: float | None = None
    time: float | None = None
    time_fused: float | None = None


TAPE = Published(155.33, 365.65, 180.69, 5.63, 2.56)
TABLES = {
    "tape": TAPE,
    "tape-heads": TAPE,
    "rope": Published(154.89, 321.10, 160.46, 2.08),
    "fire": Published(154.90, 331.97, 165.69, 5.56),
    "t5": Published(154.90, 321.10, 160.46, 6.90),
}
TABLE_3, TABLE_4 = "the paper's Table 3", "the paper's Table 4, A100"


class Variant(NamedTuple):
    """An encoding and one way to compute its attention; the label tells two of them apart."""

    name: str
    label: str
    backend: Backend

    @property
    def published(self) -> float | None:
        """The paper's seconds for it; None for what it did not measure."""
        column = TABLES.get(self.name, Published())
        fused = self.backend.name == FUSED and column.time_fused is not None
        time = column.time_fused if fused else column.time
        return None if time is None else 1e-4 * time


def measure(options: Options) -> Iterator[Measurement]:
    """Table 3 (by formula and by torch's counter), then Table 4."""
    hardware = detect()
    sizes, tokens = (QUICK_SIZES, QUICK_TOKENS) if options.quick else (SIZES, TOKENS)
    setting = setting_of(sizes, tokens)
    # One body for all encodings: they differ in nothing else.
    decoder = build_decoder(sizes, "nope", setting, seed=0).eval().to(hardware.device)
    encodings: dict[str, PositionalEncoding] = {}
    for name in [str(name) for name in options.names()] or ENCODINGS:
        try:
            parsed = parse(name)
        except UsageError as error:
            yield not_measured(STAGE, name, "", f"not there yet: {error}")
            continue
        encodings[name] = build(parsed, setting).eval().to(hardware.device)
    for name, pe in encodings.items():
        decoder.pe = pe
        yield from table_3(name, decoder, tokens)
    yield from table_4(decoder, encodings, tokens, hardware, options)


def setting_of(sizes: DecoderConfig, tokens: int) -> Setting:
    """What an encoding may know of a language model: no digits, and no length but one."""
    return Setting(
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
        head_dim=sizes.head_dim,
        hidden_size=sizes.hidden_size,
        trained_length=tokens,
        max_length=tokens,
        digit_ids=tuple(range(10)),
        separator_ids=(10, 11),
        end_id=12,
    )


def row(decoder: Decoder, tokens: int) -> Sequences:
    """A batch of one row, whatever its tokens."""
    device = decoder.head.weight.device
    one = torch.ones(1, dtype=torch.int64, device=device)
    ids = torch.arange(tokens, device=device)[None] % decoder.config.vocabulary_size
    return Sequences(ids, tokens * one, one)


def table_3(name: str, decoder: Decoder, tokens: int) -> Iterator[Measurement]:
    """Parameters, and MACs and FLOPs of a forward. The counter watches plain attention: it sees
    nothing inside a kernel."""
    published = TABLES.get(name, Published())

    def line(
        what: str, value: int, unit: str, theirs: float | None, scale: float, note: str = ""
    ) -> Measurement:
        beside = "" if theirs is None else f", the paper {theirs:.2f}"
        return Measurement(
            STAGE,
            f"{name}: {what}",
            value,
            unit,
            None if theirs is None else theirs * scale,
            None if theirs is None else TABLE_3,
            f"{value / scale:.2f}{note}{beside}",
        )

    parameters = decoder.num_parameters()
    flops = forward_flops(matmuls(decoder.config, decoder.pe, padded(1, tokens)))
    yield line("parameters", parameters, "", published.parameters, MEBI, " x 2^20")
    yield line("MACs by formula", flops // 2, "MAC", published.macs, 1e9, " G")
    yield line("FLOPs by formula", flops, "FLOP", published.flops, 1e9, " G of matrix products")
    decoder.attend_with(backends.load("eager"))
    device = decoder.head.weight.device
    # Plain, on a CPU, is what the formula counts: a GPU has narrower products in TAPE.
    seqs = row(decoder.cpu(), tokens)
    with torch.no_grad():
        seen = counted(lambda: decoder(seqs))
    decoder.to(device)
    yield Measurement(
        STAGE,
        f"{name}: FLOPs by torch's counter",
        seen,
        "FLOP",
        flops,
        "the formula",
        "equal" if seen == flops else f"DIFFERS from the formula by {seen - flops:+,}",
    )


def table_4(
    decoder: Decoder,
    encodings: dict[str, PositionalEncoding],
    tokens: int,
    hardware: Hardware,
    options: Options,
) -> Iterator[Measurement]:
    """Inference steps of one attention layer, as the paper's, and of the whole model."""
    variants: list[Variant] = []
    for name, pe in encodings.items():
        if pe.needs.values == 1:
            # Nothing to fuse besides the attention that all have.
            variants.append(Variant(name, "", backends.choose("auto", pe.needs, hardware)))
            continue
        try:
            variants.append(Variant(name, ", fused", fused(pe, hardware)))
        except UsageError as error:
            yield not_measured(STAGE, f"{name}, fused: time", "s", str(error))
        variants.append(Variant(name, ", not fused", not_fused(pe, hardware)))
    for what, work, theirs in (
        ("an attention layer", attention_layer, True),
        ("a step of the whole model", whole_model, False),
    ):
        with torch.no_grad(), hardware.autocast():
            functions = {
                variant: work(decoder, encodings[variant.name], variant.backend, tokens)
                for variant in variants
            }
            times = interleaved(
                functions,
                device=hardware.device,
                repeats=2 if options.quick else STEPS,
                seconds=options.seconds / 2,
            )
        yield from lines(what, times, theirs)


def fused(pe: PositionalEncoding, hardware: Hardware) -> Backend:
    """Errors: UsageError saying why it cannot be measured."""
    backend = backends.load(FUSED)
    if (reason := lacking(backend, pe.needs, hardware)) is not None:
        raise UsageError(f"{FUSED} {reason}")
    return backend


def not_fused(pe: PositionalEncoding, hardware: Hardware) -> Backend:
    """What `auto` would take if there were no fused one."""
    others = (name for name in backends.PREFERENCE[hardware.device] if name != FUSED)
    return next(
        b for b in map(backends.load, others) if b.why_unsupported(pe.needs, hardware) is None
    )


def attention_layer(
    decoder: Decoder, pe: PositionalEncoding, backend: Backend, tokens: int
) -> Callable[[], object]:
    """The second block's attention with its projections, and the encoding's update of its state,
    whose input is as large as the MLP's output. The state is what the first layer left: what it
    was at first, all rows and heads share."""
    decoder.pe = pe
    decoder.attend_with(backend)
    seqs = row(decoder, tokens)
    first, second = (
        (cast(Block, decoder.blocks[i]), cast(PositionalLayer, pe.layers[i])) for i in (0, 1)
    )
    # A copy, so that another variant may set another backend.
    second = (second[0], copy.deepcopy(second[1]))
    index = pe.indices(seqs)
    x = pe.embed(decoder.embedding(seqs.tokens), index, seqs)
    x = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)

    def attend(block: Block, layer: PositionalLayer, state: State) -> State:
        heads = (3, decoder.config.num_heads, decoder.config.head_dim)
        q, k, v = block.qkv(x).unflatten(-1, heads).unbind(-3)
        mixed, state = layer.attend(x, q, k, v, state, seqs)
        return layer.update(block.output(mixed.flatten(-2)), state, seqs)

    state = attend(*first, pe.start(x, index, seqs))
    return lambda: attend(*second, state)


def whole_model(
    decoder: Decoder, pe: PositionalEncoding, backend: Backend, tokens: int
) -> Callable[[], object]:
    """Logits of all tokens."""
    seqs = row(decoder, tokens)

    def work() -> object:
        decoder.pe = pe
        decoder.attend_with(backend)
        return decoder(seqs)

    return work


def lines(what: str, times: dict[Variant, Timing], theirs: bool) -> Iterator[Measurement]:
    """Seconds, and their ratio to rope's, beside the paper's where it has them."""
    rope = next((variant for variant in times if variant.name == "rope"), None)
    for variant, timing in times.items():
        label = f"{variant.name}{variant.label}"
        published = variant.published if theirs else None
        yield Measurement(
            STAGE,
            f"{label}: {what}",
            timing.median,
            "s",
            published,
            None if published is None else TABLE_4,
            f"inference, attention by {variant.backend.name}, not compiled",
            timing.spread,
            timing.repeats,
        )
        if rope is None or variant is rope:
            continue
        ratio = published and rope.published and published / rope.published
        yield Measurement(
            STAGE,
            f"{label}: {what} / rope's",
            timing.median / times[rope].median,
            "x",
            ratio,
            None if ratio is None else TABLE_4,
        )
