"""Rotary encodings: what each one promises, and the slips of published code.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.arith.training.flops import counted, matmuls, padded, training_flops
from tape_arith.models.backends.backend import Backend
from tape_arith.models.build import build
from tape_arith.models.contract import decoder_for
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.encodings.pope import PoPE
from tape_arith.models.encodings.selective_rope import SelectiveRoPELayer
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences
from tests.models import small
from tests.models.small import VOCABULARY, error, logits_of, redrawn

NUM_HEADS, HEAD_DIM, TOKENS, TRAINED = 2, 16, 30, 28
HIDDEN, FREQUENCIES = NUM_HEADS * HEAD_DIM, HEAD_DIM // 2
RELATIVE = ("rope-partial", "p-rope", "xpos", "pope", "tape:start=fourier", "selective-rope")
FULL = [10_000.0 ** (-f / FREQUENCIES) for f in range(FREQUENCIES)]
CONTEXTUAL = ("tape", "tape-heads")


def setting(head_dim: int = HEAD_DIM, max_length: int = 4 * TRAINED) -> Setting:
    return small.setting(
        head_dim=head_dim, hidden_size=HIDDEN, trained_length=TRAINED, max_length=max_length
    )


def sequences(tokens: int = TOKENS, offset: int = 0, seed: int = 2) -> Sequences:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY, (2, tokens), generator=generator)
    return Sequences(ids, torch.full((2,), tokens + 2), torch.arange(2), offset)


def small_decoder(pe: PositionalEncoding, std: float = 0.3) -> Decoder:
    """Its parameters are moved by as much whatever encoding it is."""
    return redrawn(pe, lambda path, parameter: parameter.ndim != 1, std)


class Watching(Backend):
    """Keeps the queries and keys that attention was given."""

    def __call__(
        self, q: Tensor, k: Tensor, values: tuple[Tensor, ...], *others: object, **options: object
    ) -> tuple[Tensor, ...]:
        scale = options.get("scale") or q.shape[-1] ** -0.5
        assert isinstance(scale, float)
        self.q, self.k, self.scale = q, k, scale
        return tuple(torch.zeros_like(q) for _ in values)


@torch.no_grad()
def scores(
    pe: PositionalEncoding, q: Tensor, k: Tensor, offset: int = 0, x: Tensor | None = None
) -> Tensor:
    """Scores [B, H, T, T] of given q, k [B, T, H, K] in the first layer."""
    rows, tokens = q.shape[:2]
    seqs = Sequences(
        torch.zeros(rows, tokens, dtype=torch.int64),
        torch.full((rows,), tokens),
        torch.arange(rows),
        offset,
    )
    layer = pe.layers[0]
    watching = Watching()
    layer.attention = watching  # type: ignore[assignment]
    if x is None:
        x = torch.zeros(rows, tokens, HIDDEN, dtype=q.dtype)
    state = pe.start(x, pe.indices(seqs), seqs)
    layer.attend(x, q, k, torch.zeros_like(q), state, seqs)  # type: ignore[operator]
    return torch.einsum("bthk,bihk->bhti", watching.q, watching.k) * watching.scale


def random_pair(tokens: int = TOKENS, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    q, k = torch.randn(2, 1, tokens, NUM_HEADS, HEAD_DIM, generator=generator, dtype=dtype)
    return q, k


def by_frequency(name: str) -> Tensor:
    """cos of what each pair (f, f + F) turns by in one token, [F]: from scores of unit vectors."""
    turned = []
    for f in range(FREQUENCIES):
        q = torch.zeros(1, 2, NUM_HEADS, HEAD_DIM, dtype=torch.float64)
        q[..., f] = 1
        turned.append(scores(build(name, setting()), q, q)[0, 0, 1, 0] * HEAD_DIM**0.5)
    return torch.stack(turned)


# ---- partial rotations -------------------------------------------------------------------------


def test_p_rope_keeps_the_highest_frequencies_of_the_full_schedule() -> None:
    turned = by_frequency("p-rope")
    expected = [math.cos(theta) for theta in FULL[:6]] + [1.0, 1.0]
    assert turned.tolist() == pytest.approx(expected, abs=1e-12)


def test_rope_partial_has_a_schedule_of_its_own() -> None:
    """The first d dimensions, paired (f, f + d/2), over the whole range of frequencies."""
    q, k = random_pair()
    ours = scores(build("rope-partial:fraction=0.5", setting()), q, k)
    d = HEAD_DIM // 2
    narrow = scores(build("rope", setting(d)), q[..., :d], k[..., :d]) * d**0.5
    rest = torch.einsum("bthk,bihk->bhti", q[..., d:], k[..., d:])
    assert error(ours, (narrow + rest) * HEAD_DIM**-0.5) < 1e-12


def test_the_two_partial_rotations_differ() -> None:
    """At the same share of frequencies: own schedule or the full one."""
    q, k = random_pair()
    pairs = [
        scores(build(name, setting()), q[..., order], k[..., order])
        for name, order in (
            ("rope-partial:fraction=0.5", [0, 1, 2, 3, 8, 9, 10, 11, *range(4, 8), *range(12, 16)]),
            ("p-rope:p=0.5", [*range(16)]),
        )
    ]
    assert error(*pairs) > 0.05


@pytest.mark.parametrize("name", ["rope-partial:fraction=1", "p-rope:p=1"])
def test_all_of_it_is_rope(name: str) -> None:
    q, k = random_pair()
    assert error(scores(build(name, setting()), q, k), scores(build("rope", setting()), q, k)) == 0


@pytest.mark.parametrize("name", ["rope-partial", "p-rope"])
def test_the_rest_carries_no_position(name: str) -> None:
    """Only dimensions that stand: scores are those of the content, at any distance."""
    q, k = random_pair()
    standing = torch.zeros(HEAD_DIM, dtype=torch.float64)
    standing[[14, 15] if name == "p-rope" else slice(4, None)] = 1
    plain = torch.einsum("bthk,bihk->bhti", q * standing, k) * HEAD_DIM**-0.5
    assert error(scores(build(name, setting()), q * standing, k), plain) < 1e-12


# ---- xPos --------------------------------------------------------------------------------------


def xpos_by_hand(q: Tensor, k: Tensor, scale_base: float) -> Tensor:
    """RoPE's scores frequency by frequency, each times zeta_f^((t - i)/S)."""
    tokens = q.shape[1]
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None]
    total = torch.zeros(q.shape[0], NUM_HEADS, tokens, tokens, dtype=torch.float64)
    for f in range(FREQUENCIES):
        only = torch.zeros(HEAD_DIM, dtype=torch.float64)
        only[[f, f + FREQUENCIES]] = 1
        zeta = (2 * f + 0.4 * HEAD_DIM) / (1.4 * HEAD_DIM)
        rope = scores(build("rope", setting()), q * only, k)
        total += rope * zeta ** (distance.to(torch.float64) / scale_base)
    return total


@pytest.mark.parametrize("scale_base", [None, 512.0])
def test_xpos_is_rope_times_its_decay(scale_base: float | None) -> None:
    q, k = random_pair()
    name = "xpos" if scale_base is None else f"xpos:scale_base={scale_base}"
    expected = xpos_by_hand(q, k, scale_base or TRAINED / 2)
    assert error(scores(build(name, setting()), q, k), expected) < 1e-12


def test_xpos_is_finite_and_exact_at_four_times_the_trained_length() -> None:
    q, k = random_pair(4 * TRAINED, torch.float32)
    ours = scores(build("xpos", setting()), q, k)
    exact = scores(build("xpos", setting()), q.double(), k.double())
    assert ours.isfinite().all()
    seen = torch.ones(4 * TRAINED, 4 * TRAINED, dtype=torch.bool).tril()
    assert error(ours[..., seen].double(), exact[..., seen]) < 1e-5


def test_the_center_of_xpos_is_not_the_middle_of_the_present_length() -> None:
    """A key once stored must fit later queries: the first tokens' rotations never change."""
    pe = build("xpos", setting()).double()
    parts = []
    for tokens in (10, 20):
        seqs = sequences(tokens)
        x = torch.zeros(2, tokens, HIDDEN, dtype=torch.float64)
        parts.append(pe.start(x, pe.indices(seqs), seqs).key.diagonal[:, :10])
    assert torch.equal(*parts)


# ---- PoPE --------------------------------------------------------------------------------------


def test_pope_is_content_times_position() -> None:
    q, k = random_pair()
    torch.manual_seed(0)
    pe = build("pope:phase=uniform", setting()).double()
    phase = next(pe.layers[0].parameters()).detach()
    assert -2 * math.pi <= phase.min() < -5 and -1 < phase.max() <= 0
    theta = 10_000.0 ** (-torch.arange(HEAD_DIM, dtype=torch.float64) / HEAD_DIM)
    index = torch.arange(TOKENS, dtype=torch.float64)
    angle = (index[None, :, None] - index[:, None, None]) * theta  # key minus query
    magnitudes = [torch.log1p(x.exp()) for x in (q, k)]
    expected = torch.einsum(
        "bthk,bihk,htik->bhti", *magnitudes, (angle[None] + phase[:, None, None]).cos()
    )
    assert error(scores(pe, q, k), expected * HEAD_DIM**-0.5) < 1e-12


def test_a_phase_that_left_its_range_comes_back() -> None:
    """A clamp in the forward alone would never let it: there is no gradient outside."""
    pe = build("pope", setting())
    assert isinstance(pe, PoPE)
    phase = pe.layers[0].phase
    assert isinstance(phase, torch.nn.Parameter)
    with torch.no_grad():
        phase.add_(0.1)
        phase[0, 0] = -7
    pe.after_step()
    kept = phase.detach()
    assert float(kept.max()) == 0 and float(kept.min()) == pytest.approx(-2 * math.pi)
    decoder = decoder_for("pope")
    with torch.no_grad():
        for parameter in decoder.pe.parameters():
            parameter.zero_()
    decoder(sequences()).square().sum().backward()
    gradients = [p.grad for p in decoder.pe.parameters()]
    assert all(g is not None and bool((g != 0).all()) for g in gradients)


def test_phases_get_no_weight_decay() -> None:
    pe = build("pope", setting())
    groups = list(pe.parameter_groups())
    assert [p.shape for p, _ in groups] == [(NUM_HEADS, HEAD_DIM)] * 2
    assert all(options == {"weight_decay": 0.0} for _, options in groups)


# ---- Selective RoPE ----------------------------------------------------------------------------


def selective_layer() -> SelectiveRoPELayer:
    torch.manual_seed(0)
    pe = build("selective-rope", setting()).double()
    layer = pe.layers[0]
    assert isinstance(layer, SelectiveRoPELayer)
    return layer


def test_the_angle_accumulates() -> None:
    """The code's skip_conv takes a difference before the sum, which leaves phi_t itself."""
    layer = selective_layer()
    x = torch.randn(1, 1, HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    same = x.expand(1, TOKENS, HIDDEN)  # every token says the same: the steps settle
    with torch.no_grad():
        total = layer.cumulative_angles(same, sequences())
    steps = total.diff(dim=1)[:, 3:]
    assert error(steps, steps[:, :1].expand_as(steps)) < 1e-10
    assert float(total[0, -1].abs().max()) > 5 * float(steps.abs().max())


def test_a_token_reaches_four_tokens_of_phi_and_all_later_angles() -> None:
    layer = selective_layer()
    x = torch.randn(1, TOKENS, HIDDEN, dtype=torch.float64)
    other = x.clone()
    other[:, 10] += 1
    with torch.no_grad():
        change = layer.cumulative_angles(other, sequences()) - layer.cumulative_angles(
            x, sequences()
        )
    assert not change[:, :10].any()
    steps = change.diff(dim=1, prepend=torch.zeros_like(change[:, :1])).abs().amax((0, 2, 3))
    assert bool((steps[10:14] > 1e-6).all()) and float(steps[14:].max()) < 1e-12
    assert float(change[:, -1].abs().max()) > 1e-6


def test_the_size_of_x_does_not_matter_but_its_direction_does() -> None:
    layer = selective_layer()
    x = torch.randn(1, TOKENS, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        ours, larger = (
            layer.cumulative_angles(x, sequences()),
            layer.cumulative_angles(9 * x, sequences()),
        )
        turned = layer.cumulative_angles(-x, sequences())
    assert error(larger, ours) < 1e-5
    assert error(turned, -ours) < 1e-12


def test_the_sum_is_kept_out_of_bfloat16() -> None:
    """A thousand tokens: a sum in bfloat16 would stop growing at 256 steps."""
    layer = selective_layer().bfloat16()
    seqs = sequences(1000)
    same = torch.ones(1, 1000, HIDDEN, dtype=torch.bfloat16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        total = layer.cumulative_angles(same, seqs)
    assert total.dtype == torch.float32
    steps = total.diff(dim=1)[:, 3:]
    assert error(steps, steps[:, :1].expand_as(steps)) < 1e-2


# ---- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [3, 1000])
@pytest.mark.parametrize("name", RELATIVE)
def test_a_shift_changes_nothing(name: str, shift: int) -> None:
    torch.manual_seed(0)
    decoder = small_decoder(build(name, setting()))
    logits = logits_of(decoder, sequences())
    assert error(logits_of(decoder, sequences(offset=shift)), logits) < 1e-9


@pytest.mark.parametrize("name", RELATIVE)
def test_a_longer_call_between_leaves_nothing_behind(name: str) -> None:
    torch.manual_seed(0)
    decoder = small_decoder(build(name, setting()))
    first = logits_of(decoder, sequences())
    logits_of(decoder, sequences(4 * TRAINED))
    assert torch.equal(logits_of(decoder, sequences()), first)


@pytest.mark.parametrize("name", ["rope-partial", "p-rope", "xpos", "pope"])
def test_far_positions_stay_apart_in_bfloat16(name: str) -> None:
    """3000 and 3001 are one number in bfloat16."""
    q, _ = random_pair(2, torch.bfloat16)
    pe = build(name, setting()).bfloat16()
    near = scores(pe, q, q)
    far = scores(pe, q, q, offset=3000)
    assert error(far.double(), near.double()) < 0.05
    q = q[:, :1].expand(-1, 2, -1, -1)  # alike but for their positions
    apart = scores(pe, q, q, offset=3000).double()
    assert float((apart[..., 1, 0] - apart[..., 0, 0]).abs().max()) > 0.05


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rope-partial:fraction=0", "fraction must be in"),
        ("rope-partial:fraction=1.5", "fraction must be in"),
        ("p-rope:p=0", "p must be in"),
        ("p-rope:p=0.01", "keep a frequency"),
        ("p-rope:p=2", "p must be in"),
        ("xpos:scale_base=0", "scale_base must be more than 0"),
        ("selective-rope:rank=0", "rank must be 1 or more"),
    ],
)
def test_bad_options(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        build(name, setting())
    assert "\n" not in str(caught.value)


def test_odd_heads_are_refused() -> None:
    for name in ("rope-partial", "p-rope", "xpos", "pope", "selective-rope"):
        with pytest.raises(UsageError, match="even head_dim"):
            build(name, setting(head_dim=7))


# ---- where TAPE starts -------------------------------------------------------------------------


def turned(e: Tensor, angles: Tensor) -> Tensor:
    """e turned by an angle a frequency: columns of e [..., L, 2F], or z [..., 2F]."""
    cos, sin = angles.cos(), angles.sin()
    a, b = e.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


@pytest.mark.parametrize("start", ["rope", "fourier", "learned"])
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_every_start_keeps_the_symmetry_of_the_layers(
    name: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turn all of e by an angle of its own for each frequency (tape: and reflect every other one):
    the logits stay."""
    torch.manual_seed(0)
    pe = build(f"{name}:start={start}", setting())
    decoder = small_decoder(pe, std=0.2)
    logits = logits_of(decoder, sequences())
    angles = torch.linspace(0.3, 3, FREQUENCIES, dtype=torch.float64)
    honest: Callable[..., Any] = pe.start

    def changed(x: Tensor, index: Tensor, seqs: Sequences) -> Any:
        state = honest(x, index, seqs)
        e = turned(state.e, angles)
        if name == "tape":
            e[..., FREQUENCIES::2] *= -1
            return type(state).from_matrix(e)
        return type(state)(e)

    monkeypatch.setattr(pe, "start", changed)
    assert error(logits_of(decoder, sequences()), logits) < 1e-11


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_shifts_are_kept_by_all_but_a_learned_start(name: str) -> None:
    for start, least, most in (("rope", 0, 1e-9), ("fourier", 0, 1e-9), ("learned", 1e-2, 1e9)):
        torch.manual_seed(0)
        decoder = small_decoder(build(f"{name}:start={start}", setting()), std=0.2)
        logits = logits_of(decoder, sequences())
        assert least <= error(logits_of(decoder, sequences(offset=3)), logits) <= most, start


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_fourier_frequencies_are_a_draw_that_no_type_rounds(name: str) -> None:
    torch.manual_seed(1)
    pe = build(f"{name}:start=fourier", setting(head_dim=512))
    theta = pe.frequencies()  # type: ignore[operator]
    assert torch.equal(theta, pe.bfloat16().frequencies())  # type: ignore[operator]
    assert (theta.diff() <= 0).all() and theta.min() > 0
    assert float(theta.square().mean()) == pytest.approx(1, abs=0.3)
    assert float((theta < 0.6745).double().mean()) == pytest.approx(0.5, abs=0.1)
    torch.manual_seed(2)
    other = build(f"{name}:start=fourier", setting(head_dim=512))
    assert not torch.equal(other.frequencies(), theta)  # type: ignore[operator]
    other.load_state_dict(pe.state_dict())
    assert torch.equal(other.frequencies(), theta)  # type: ignore[operator]


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_learned_start_ends_with_its_table(name: str) -> None:
    decoder = small_decoder(build(f"{name}:start=learned", setting(max_length=20)))
    logits_of(decoder, sequences(20))
    for seqs in (sequences(21), sequences(20, offset=1)):
        with pytest.raises(UsageError, match="table of 20 states") as caught:
            logits_of(decoder, seqs)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_learned_start_is_trained_without_decay(name: str) -> None:
    decoder = small_decoder(build(f"{name}:start=learned", setting()))
    decoder(sequences()).square().sum().backward()
    table = decoder.pe.table
    assert isinstance(table, torch.nn.Parameter) and table.grad is not None
    reached = table.grad.abs().flatten(1).amax(1) > 0
    assert bool(reached[:TOKENS].all()) and not bool(reached[TOKENS:].any())
    options = [o for p, o in decoder.pe.parameter_groups() if p is table]
    assert options == [{"weight_decay": 0.0}]


@pytest.mark.parametrize("start", ["fourier", "learned"])
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_the_flops_of_every_start(name: str, start: str) -> None:
    """A learned first e needs a gradient, so the first layer's product has one more."""
    decoder = small_decoder(build(f"{name}:start={start}", setting()))
    parameters = list(decoder.parameters())

    def step() -> object:
        return torch.autograd.grad(decoder(sequences()).sum(), parameters)

    formula = matmuls(decoder.config, decoder.pe, padded(2, TOKENS))
    assert training_flops(formula) == counted(step)


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_the_default_start_is_ropes(name: str) -> None:
    rope = small_decoder(build("rope", setting()))
    ours = build(f"{name}:start=rope", setting())
    assert not list(ours.buffers())
    decoder = Decoder(rope.config, ours).double().eval()
    decoder.load_state_dict(rope.state_dict(), strict=False)
    assert error(logits_of(decoder, sequences()), logits_of(rope, sequences())) < 1e-12


@pytest.mark.parametrize("name", ["rope", "rope-partial", "p-rope", "xpos", "rand-rope"])
def test_frequencies_are_not_trained(name: str) -> None:
    """Known slip: kept as a Parameter they are, and with weight decay."""
    assert not list(build(name, setting()).parameters())


@pytest.mark.parametrize("name", ["tape", "tape:start=fourier", "tape-heads"])
def test_nor_are_those_of_a_state(name: str) -> None:
    half = setting().head_dim // 2
    shapes = [tuple(p.shape) for p in build(name, setting()).parameters()]
    assert shapes and (half,) not in shapes
