"""The ablations of TAPE and its clamp: what each is, and what it starts as.

What they keep and break of TAPE's symmetries is in `test_equivariance.py`, what they multiply in
`tests/bench/test_flops.py`.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models import contract
from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.encodings.tape_heads import TapeHeadsState
from tape_arith.models.errors import UsageError
from tape_arith.models.families.contextual import DEFAULT_WIDTH, clamp_norm
from tape_arith.models.names.declarations import declaration
from tape_arith.models.names.parse import parse
from tape_arith.models.sequences import Sequences
from tests.models import naive
from tests.models.naive_ablations import AblatedTAPE, AblatedTAPEHeads
from tests.models.small import assert_holds
from tests.models.test_equivariance import error

SHAPE = naive.Shape(num_layers=3, num_heads=2, head_dim=8)
LENGTHS, FINAL_LENGTHS = (6, 4), (47, 40)
HIDDEN, VOCABULARY, PAD, TRAINED = 12, 19, 0, 28
LOGITS_TOLERANCE, GRADIENT_TOLERANCE = 1e-10, 1e-8

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
# sqrt 2 is the norm of a rotation, 1 that of a vector.
CLAMPED = (
    "tape:clamp=1.5",
    "tape:clamp=1.5:context=no-mlp",
    "tape:clamp=1.5:form=non-equivariant",
    "tape:clamp=1.1:form=vector",
    "tape-heads:clamp=1.5",
    "tape-heads:clamp=1.5:context=no-attention",
    "tape-heads:clamp=1.5:context=no-mlp",
)
# Where rows share a first e that needs a gradient.
LEARNED = tuple(f"{name}:start=learned" for name in (*ABLATIONS[:5], *ABLATIONS[-2:]))
STRETCHED = ("tape:context=no-attention+yarn", "tape:form=vector+yarn", "tape-heads:clamp=1.5+yarn")


def setting(num_layers: int = SHAPE.num_layers) -> Setting:
    return Setting(
        num_layers=num_layers,
        num_heads=SHAPE.num_heads,
        head_dim=SHAPE.head_dim,
        hidden_size=HIDDEN,
        trained_length=TRAINED,
        max_length=4 * TRAINED,
        digit_ids=tuple(range(4, 14)),
        separator_ids=(14, 17),
        end_id=3,
    )


def fresh(pe: PositionalEncoding | str) -> Decoder:
    """In float64 and in evaluation, the decoder's own weights large and always the same."""
    layers = SHAPE.num_layers
    config = DecoderConfig(VOCABULARY, layers, HIDDEN, SHAPE.num_heads, SHAPE.head_dim, 10)
    torch.manual_seed(7)
    decoder = Decoder(config, build(pe, setting()) if isinstance(pe, str) else pe).double().eval()
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for path, weight in decoder.named_parameters():
            if not path.startswith("pe."):
                drawn = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
                weight.copy_(0.4 * drawn)
    return decoder


def perturbed(pe: PositionalEncoding | str) -> Decoder:
    decoder = fresh(pe)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for weight in decoder.pe.parameters():
            drawn = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.add_(drawn, alpha=0.4)
    return decoder


def sequences(offset: int = 3) -> Sequences:
    """Two rows of LENGTHS, padded."""
    generator = torch.Generator().manual_seed(11)
    tokens = torch.randint(3, VOCABULARY, (2, max(LENGTHS)), generator=generator)
    tokens[1, LENGTHS[1] :] = PAD
    return Sequences(tokens, torch.tensor(FINAL_LENGTHS), torch.tensor([5, 1234]), offset)


def logits_and_gradients(decoder: Decoder) -> list[Tensor]:
    logits: Tensor = decoder(sequences())
    generator = torch.Generator().manual_seed(12)
    (logits * torch.randn(logits.shape, generator=generator)).sum().backward()
    return [logits.detach(), *(p.grad for p in decoder.parameters() if p.grad is not None)]


# ---- the loops ---------------------------------------------------------------------------------


def oracle(name: str, weights: naive.Weights, index: list[int], final: int) -> naive.NoPE:
    """The loops of `name`, with its options and, for `+yarn`, its frequencies."""
    asked = parse(name)
    (part,) = asked.encoding.parts
    options: dict[str, Any] = dict(part.options)
    if options.pop("start", "rope") == "learned":
        options["table"] = weights["pe.table"][index]
    if asked.extrapolation is not None:
        ramp = naive.index_ramp(SHAPE.head_dim, TRAINED)
        scale = max(1.0, final / TRAINED)
        options["thetas"], options["magnitude"] = naive.yarn(SHAPE.head_dim, ramp, scale)
    kind = AblatedTAPE if part.name == "tape" else AblatedTAPEHeads
    return kind(weights, SHAPE, index, **options)


@pytest.mark.parametrize("name", ["tape", "tape-heads", *ABLATIONS, *CLAMPED, *LEARNED, *STRETCHED])
def test_logits_and_gradients_equal_the_loops(name: str) -> None:
    """In float64, all parameters perturbed, and e so far from its start that a clamp acts."""
    decoder, seqs = perturbed(name), sequences()
    generator = torch.Generator().manual_seed(13)
    shape = (*seqs.tokens.shape, VOCABULARY)
    projection = torch.randn(shape, generator=generator, dtype=torch.float64)
    projection[1, LENGTHS[1] :] = 0
    logits = decoder(seqs)
    torch.autograd.backward((logits * projection).sum())

    weights = {n: p.detach().clone().requires_grad_() for n, p in decoder.named_parameters()}
    total = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(LENGTHS):
        index = list(range(seqs.offset, seqs.offset + length))
        loops = oracle(name, weights, index, FINAL_LENGTHS[row])
        expected = naive.decode(weights, SHAPE, seqs.tokens[row, :length].tolist(), loops)
        assert error(logits[row, :length].detach(), expected.detach()) < LOGITS_TOLERANCE
        total = total + (expected * projection[row, :length]).sum()
    torch.autograd.backward(total)

    for path, parameter in decoder.named_parameters():
        ours, theirs = parameter.grad, weights[path].grad
        assert ours is not None and theirs is not None, path
        assert error(ours, theirs) < GRADIENT_TOLERANCE, path


def test_the_loops_tell_the_ablations_apart() -> None:
    """Or agreement would mean little. Without the MLP both forms are one: e + s_h A e."""
    found: list[tuple[str, Tensor]] = []
    for name in ("tape", "tape-heads", *ABLATIONS, *CLAMPED):
        twin = name.replace("tape-heads", "tape") if "no-mlp" in name else None
        decoder = perturbed(name)
        weights = {n: p.detach() for n, p in decoder.named_parameters()}
        pe = oracle(name, weights, [3, 4, 5, 6, 7], 9)
        logits = naive.decode(weights, SHAPE, [9, 4, 15, 7, 8], pe)
        for other, theirs in found:
            off = error(logits, theirs)
            if other == twin and other != name:
                assert off < 1e-12
            else:
                assert off > 1e-4, (name, other)
        found.append((name, logits))


@pytest.mark.parametrize("name", [*ABLATIONS, *CLAMPED])
def test_the_plain_formulas_say_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a GPU, where no backward is written by hand and one first e serves all heads."""
    expected = logits_and_gradients(perturbed(name))
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)
    for ours, theirs in zip(logits_and_gradients(perturbed(name)), expected, strict=True):
        assert error(ours, theirs) < 1e-12


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [*ABLATIONS, "tape:clamp=1.5", "tape-heads:clamp=1.5"])
def test_contract(name: str, check: Callable[[str], None]) -> None:
    assert_holds(check, name)


# ---- the start ---------------------------------------------------------------------------------


def logits_of(decoder: Decoder) -> Tensor:
    with torch.no_grad():
        logits: Tensor = decoder(sequences())
    return logits


@pytest.mark.parametrize("name", [*ABLATIONS, *CLAMPED, f"tape:clamp={math.sqrt(2)}"])
def test_what_starts_as_rope(name: str) -> None:
    """All but the vector; test_equivariance.py has it for others too."""
    off = error(logits_of(fresh(name)), logits_of(fresh("rope")))
    assert off > 0.01 if "vector" in name else off < 1e-12


@pytest.mark.parametrize("name", ["tape:clamp=1.4", "tape-heads:clamp=1.4"])
def test_a_clamp_below_a_rotation_is_not_rope(name: str) -> None:
    """The norm is that of the whole matrix, sqrt(2) = 1.414."""
    assert error(logits_of(fresh(name)), logits_of(fresh("rope"))) > 1e-4


class CosineAlone(naive.NoPE):
    """RoPE's score without its sine: sum_f (q_f . k_f) cos(theta_f (t - i)) / sqrt K."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        half = self.shape.head_dim // 2
        total = torch.zeros((), dtype=q.dtype)
        for f, theta in enumerate(naive.frequencies(self.shape.head_dim)):
            inner = q[f] * k[f] + q[f + half] * k[f + half]
            total = total + inner * math.cos(theta * (self.index[t] - self.index[i]))
        return total / math.sqrt(self.shape.head_dim)


@pytest.mark.parametrize("context", ["full", "no-attention", "no-mlp"])
def test_a_vector_starts_as_the_cosine_alone(context: str) -> None:
    decoder, seqs = fresh(f"tape:context={context}:form=vector"), sequences()
    weights = {n: p.detach() for n, p in decoder.named_parameters()}
    index = list(range(3, 3 + LENGTHS[0]))
    tokens = seqs.tokens[0].tolist()
    expected = naive.decode(weights, SHAPE, tokens, CosineAlone(weights, SHAPE, index))
    assert error(logits_of(decoder)[0], expected) < 1e-12


# ---- the clamp ---------------------------------------------------------------------------------


def norms(e: Tensor, copies: int = 1) -> Tensor:
    """||e||_F of e [B, T, H, L, 2F] or, with L left out, of z, by frequency."""
    entries = e.reshape(*e.shape[:3], -1, SHAPE.head_dim // 2)
    return entries.square().sum(-2).mul(copies).sqrt()


@pytest.mark.parametrize("name", CLAMPED)
def test_no_norm_is_above_the_clamp(name: str) -> None:
    """Some are at it and some below; without the clamp some are above."""
    part = parse(name).encoding.parts[0]
    clamp = dict(part.options)["clamp"]
    assert isinstance(clamp, float)

    def last(name: str) -> Tensor:
        seen: list[Any] = []

        def watch(layer: int, what: str, value: Any) -> None:
            if what == "state":
                seen.append(value)

        with torch.no_grad():
            perturbed(name)(replace(sequences(), watch=watch))
        return norms(seen[-1].e, 2 if part.name == "tape-heads" else 1)

    held = last(name)
    assert float(held.max()) <= clamp * (1 + 1e-12)
    assert 0.02 < float((held > clamp * (1 - 1e-9)).double().mean()) < 0.98
    assert float(last(name.replace(f":clamp={clamp}", "")).max()) > 1.05 * clamp


def test_a_clamp_has_a_gradient_everywhere() -> None:
    """At e = 0 too, where the norm has none, and above it e may turn but not grow."""
    e = torch.zeros(1, 1, 1, 4, dtype=torch.float64)
    e[..., 1], e[..., 3] = 3, 4  # one frequency of norm 0, one of norm 5
    e.requires_grad_()
    (held,) = clamp_norm(TapeHeadsState(e), 2.0)
    torch.testing.assert_close(held.detach().flatten(), e.new_tensor([0, 1.2, 0, 1.6]))
    (along,) = torch.autograd.grad((held * e.detach()).sum(), e, retain_graph=True)
    assert torch.allclose(along, torch.zeros_like(along), atol=1e-12)
    (gradient,) = torch.autograd.grad(held.sum(), e)
    assert gradient.isfinite().all()
    assert torch.equal(gradient[..., ::2], torch.ones(1, 1, 1, 2, dtype=torch.float64))


# ---- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, message",
    [
        ("tape:context=no-mlp:width=12", "width=12 does nothing with context=no-mlp"),
        ("tape-heads:context=no-mlp:width=12", "width=12 does nothing with context=no-mlp"),
        ("tape:context=no-mlp:form=non-equivariant", "context=no-mlp has none"),
        ("tape:clamp=-1", "clamp must be above 0, or 0 for none, not -1"),
        ("tape-heads:clamp=-0.5", "clamp must be above 0, or 0 for none, not -0.5"),
        ("tape:context=none", "one of full, no-attention, no-mlp"),
        ("tape:form=flat", "one of tensor, non-equivariant, vector"),
        ("tape-heads:form=vector", "unknown option of tape-heads 'form'"),
    ],
)
def test_what_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        build(name, setting())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tape", "tape-heads"])
def test_the_default_width_is_known(name: str) -> None:
    assert declaration("encoding", name).options["width"].default == DEFAULT_WIDTH
    assert str(parse(f"{name}:clamp=0:context=full")) == name


@pytest.mark.parametrize("form, entries", [("tensor", 2), ("non-equivariant", 4), ("vector", 1)])
@pytest.mark.parametrize("width", [4, 12, 24, 48, 96])
def test_the_sweep_of_width(form: str, entries: int, width: int) -> None:
    """B' is the width of psi, W1 and W2, in each layer but the last, and of nothing else."""
    decoder = perturbed(f"tape:form={form}:width={width}")
    count = sum(p.numel() for p in decoder.pe.parameters())
    assert count == 2 * (width * (SHAPE.head_dim + 1) + 2 * width * entries)
    # W2 = 0, and W1 uniform up to the root of what it adds up.
    drawn = dict(build(f"tape:form={form}:width=96", setting()).named_parameters())
    assert not drawn["layers.0.w2"].any()
    largest = float(drawn["layers.0.w1"].detach().abs().max()) * entries**0.5
    assert 0.9 < largest <= 1
    assert logits_of(decoder).isfinite().all()


@pytest.mark.parametrize("multiple", [1, 2, 3, 4, 8])
def test_the_sweep_of_width_in_heads(multiple: int) -> None:
    heads = SHAPE.num_heads
    decoder = perturbed(f"tape-heads:width={multiple * heads}")
    count = sum(p.numel() for p in decoder.pe.parameters())
    assert count == 2 * (heads + multiple * heads * (HIDDEN + 2 * heads))
    assert logits_of(decoder).isfinite().all()


@pytest.mark.parametrize("name", ["tape", "tape:form=vector", "tape-heads"])
def test_shares_learn_as_fast_as_row_sums(name: str) -> None:
    """The H x H matrix of the authors' code, of which the row sums act."""
    pe = build(f"{name}:context=no-mlp", setting())
    assert [n for n, _ in pe.named_parameters()] == ["layers.0.s", "layers.1.s"]
    assert all(not p.any() and p.shape == (SHAPE.num_heads,) for p in pe.parameters())
    heads = float(SHAPE.num_heads)
    expected = {"weight_decay": 0.0, "lr_factor": heads}
    assert [options for _, options in pe.parameter_groups()] == [expected] * 2


def test_what_attention_gathers() -> None:
    """v, both parts of a matrix or the one of a vector, and v alone where nothing is gathered."""
    needs = {name: build(name, setting()).needs for name in ("tape", "tape-heads", *ABLATIONS)}
    assert needs["tape"].values == 3 and needs["tape-heads"].values == 2
    assert needs["tape:form=vector"].values == 2
    for name, asked in needs.items():
        assert (asked.values == 1) == ("no-attention" in name)
        assert asked.query == (2 if "vector" in name else 1)
