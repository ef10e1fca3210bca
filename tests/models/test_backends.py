"""Every backend equals plain products, in outputs and gradients, or says why it cannot.

Legend: B batch, T tokens, H heads, K head dim.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tape_arith.arith.contracts.encoding import assert_close
from tape_arith.arith.contracts.examples import decoder_for, example_batch, forward
from tape_arith.arith.registry.locate import known_names
from tape_arith.models import backends
from tape_arith.models.attention import Backend, Eager, Needs
from tape_arith.models.backends import (
    BACKENDS,
    SDPA,
    Varlen,
    choose_backend,
    load_backend,
)
from tape_arith.models.errors import UsageError
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences
from tests.helpers.kernel_problems import distance, reference

CPU = Hardware("cpu", torch.float32)
GPU = Hardware("cuda", torch.bfloat16)
B, T, H, K = 3, 11, 2, 16
LENGTHS = [5, 11, 1, 0, 7]


def padded() -> Sequences:
    return Sequences(torch.zeros(B, T, dtype=torch.int64), torch.full((B,), T), torch.arange(B))


def packed(lengths: list[int] = LENGTHS) -> Sequences:
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    n = len(lengths)
    tokens = torch.zeros(1, sum(lengths), dtype=torch.int64)
    return Sequences(
        tokens, torch.full((n,), T), torch.arange(n), starts=starts, longest=max(lengths)
    )


def inputs(seqs: Sequences, widths: tuple[int, ...] = (K,)) -> list[Tensor]:
    """Draw q, k and a value of each width; values beyond the first are shared by rows and heads."""
    generator = torch.Generator().manual_seed(0)
    rows, tokens = seqs.tokens.shape
    shared = 1 if seqs.starts is None else rows
    shapes = [(rows, tokens, H, width) for width in (K, K, widths[0])]
    shapes += [(shared, tokens, 1, width) for width in widths[1:]]
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [x.requires_grad_() for x in drawn]


def loop(
    q: Tensor,
    k: Tensor,
    values: Sequence[Tensor],
    seqs: Sequences,
    scale: float,
    bias: Tensor | None = None,
) -> list[Tensor]:
    """Compute softmax(scale q k + bias) v of each sequence alone, q times what `seqs` says."""
    starts, _ = seqs.cumulative
    q = q if seqs.query_scale is None else q * seqs.query_scale.to(q)[..., None]
    rows, tokens = seqs.tokens.shape
    flat = [v.expand(rows, tokens, H, -1).flatten(0, 1) for v in values]
    bias = None if bias is None else bias.expand(len(starts) - 1, H, -1, -1)
    outputs = reference(q.flatten(0, 1), k.flatten(0, 1), flat, starts, scale, bias)
    return [output.view(rows, tokens, H, -1) for output in outputs]


def check(
    backend: Backend,
    seqs: Sequences,
    widths: tuple[int, ...],
    scale: float | None,
    bias_shape: tuple[int, int] | None = None,
    tolerance: float = 1e-10,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> None:
    """Compare outputs and gradients with the loop's; a bias is [*bias_shape, T, T]."""
    generator = torch.Generator().manual_seed(1)

    def normal(shape: Iterable[int]) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    exact = [*inputs(seqs, widths), *(normal((*shape, T, T)) for shape in (bias_shape,) if shape)]
    upstream = [normal((*seqs.tokens.shape, H, width)) for width in widths]

    def results(attend: Callable[..., Iterable[Tensor]], like: Tensor) -> list[Tensor]:
        leaves = [x.detach().to(like).requires_grad_() for x in exact]
        q, k, *values = leaves
        bias = values.pop() if bias_shape else None
        outputs = list(attend(q, k, tuple(values), bias))
        return outputs + list(torch.autograd.grad(outputs, leaves, [g.to(like) for g in upstream]))

    expected = results(lambda q, k, v, b: loop(q, k, v, seqs, scale or K**-0.5, b), exact[0])
    tensors = {name: x.to(device) for name, x in vars(seqs).items() if torch.is_tensor(x)}
    moved = replace(seqs, **tensors)  # type: ignore[arg-type]
    actual = results(
        lambda q, k, v, b: backend(q, k, v, moved, scale=scale, bias=b),
        torch.empty(0, dtype=dtype, device=device),
    )
    assert distance(actual, expected) < tolerance


def with_query_scale(seqs: Sequences) -> Sequences:
    """A factor of its own for each query and head."""
    shape = (1, seqs.tokens.shape[1], H)
    generator = torch.Generator().manual_seed(4)
    return replace(seqs, query_scale=2 * torch.rand(shape, generator=generator))


@pytest.mark.parametrize(("change", "scale"), [(replace, None), (with_query_scale, 0.7)])
@pytest.mark.parametrize(
    ("backend", "layout", "widths", "bias_rows"),
    [
        *((Eager, packed, widths, rows) for widths, rows in (((K,), 1), ((K, K, 24), 0))),
        *((kind, padded, (K, K, 24), rows) for kind in (Eager, SDPA) for rows in (0, 1, B)),
    ],
)
def test_agrees_with_a_loop(
    backend: type[Backend],
    layout: Callable[[], Sequences],
    widths: tuple[int, ...],
    bias_rows: int,
    scale: float | None,
    change: Callable[[Sequences], Sequences],
) -> None:
    """A bias is added after scaling and before the mask."""
    check(backend(), change(layout()), widths, scale, (bias_rows, H) if bias_rows else None)


BIASED = [
    name for name in known_names("encoding") if decoder_for(name).needs.bias in ("fixed", "learned")
]


@pytest.mark.parametrize("name", BIASED)
def test_sdpa_gets_masks_whose_keys_lie_side_by_side(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off a CPU its kernels refuse any other."""
    steps = []

    def shown(q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor, **options: Any) -> Tensor:
        steps.append(attn_mask.stride(-1))
        return scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, **options)

    monkeypatch.setattr(backends, "scaled_dot_product_attention", shown)
    decoder, seqs = decoder_for(name), example_batch()
    exact = forward(decoder, seqs)
    assert_close(forward(decoder, replace(seqs, attention=SDPA())), exact, "sdpa")
    assert steps == [1] * len(decoder.blocks)


# ---- flash-attn and torch's varlen, against stand-ins of their signatures ------------------------


@pytest.fixture
def scales(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Install both functions, which check their arguments as the real ones do.

    Returns the scales of the calls.
    """
    scales: list[float | None] = []

    def attend(
        q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, scale: float | None
    ) -> Tensor:
        assert q.dtype == k.dtype == v.dtype and q.dtype in (torch.float16, torch.bfloat16)
        assert q.shape == k.shape == v.shape and q.ndim == 3
        assert starts.dtype == torch.int32 and int(starts[-1]) == len(q)
        assert all(x.stride(-1) == 1 for x in (q, k, v))
        assert int(starts.diff().max()) <= longest
        scales.append(scale)
        tokens = torch.zeros(1, len(q), dtype=torch.int64)
        seqs = Sequences(tokens, tokens, tokens, starts=starts, longest=longest)
        exact_q, exact_k, exact_v = (x[None].double() for x in (q, k, v))
        (out,) = loop(exact_q, exact_k, [exact_v], seqs, scale or 1.0)
        return out[0].to(q.dtype)

    def flash_attn_varlen_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> Tensor:
        assert cu_seqlens_q is cu_seqlens_k and max_seqlen_q == max_seqlen_k
        assert causal and dropout_p == 0
        return attend(q, k, v, cu_seqlens_q, max_seqlen_q, softmax_scale)

    def varlen_attn(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        return_aux: None = None,
        scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
    ) -> Tensor:
        """As in torch 2.11."""
        assert cu_seq_q is cu_seq_k and max_q == max_k
        assert window_size == (-1, 0) and return_aux is None
        return attend(query, key, value, cu_seq_q, max_q, scale)

    install(monkeypatch, "flash_attn", flash_attn_varlen_func)
    install(monkeypatch, "torch.nn.attention.varlen", varlen_attn)
    return scales


def install(
    monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., Tensor] | None = None
) -> None:
    """Install a module that has this function alone."""
    module = ModuleType(name)
    if function is not None:
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture(autouse=True)
def a_gpu_to_choose_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


@pytest.mark.parametrize("layout", [padded, packed])
@pytest.mark.parametrize(("name", "values"), [("flash-attn", 3), ("varlen", 1)])
def test_packed_kernels_are_called_once_for_each_value(
    name: str, values: int, layout: Callable[[], Sequences], scales: list[float | None]
) -> None:
    seqs = with_query_scale(layout())
    q, k, *gathered = (x.detach().bfloat16() for x in inputs(seqs, (K,) * values))
    # As TAPE calls it: its state is float32.
    gathered[1:] = [v.float() for v in gathered[1:]]
    heads = load_backend(name)(q, k, tuple(gathered), seqs, scale=0.3)
    assert scales == [0.3] * values
    assert [o.dtype for o in heads] == [torch.bfloat16, *[torch.float32] * (values - 1)]
    wide = [x.to(torch.bfloat16).double() for x in (q, k, *gathered)]
    for a, b in zip(heads, loop(wide[0], wide[1], wide[2:], seqs, 0.3), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["flash-attn", "varlen"])
def test_packed_kernels_say_what_they_lack(
    name: str, scales: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = load_backend(name)
    assert backend.why_unsupported(Needs(width=K), GPU) is None
    assert "bias" in str(backend.why_unsupported(Needs(bias="fixed"), GPU))
    assert "queries" in str(backend.why_unsupported(Needs(query=2), GPU))
    assert "float32" in str(backend.why_unsupported(Needs(), GPU.in_float32()))
    assert "CUDA" in str(backend.why_unsupported(Needs(), CPU))
    three, odd = (str(backend.why_unsupported(n, GPU)) for n in (Needs(values=3), Needs(width=12)))
    assert ("one value" in three) == ("multiple of 8" in odd) == (name == "varlen")
    install(monkeypatch, "flash_attn")  # a mere namespace
    install(monkeypatch, "torch.nn.attention.varlen")
    lack = {"flash-attn": "not installed", "varlen": "torch 2.11"}[name]
    assert lack in str(load_backend(name).why_unsupported(Needs(), GPU))


def test_the_varlen_of_torch_2_10_has_no_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    def varlen_attn(query: Tensor, *bounds: object, is_causal: bool = False) -> Tensor:
        return query

    install(monkeypatch, "torch.nn.attention.varlen", varlen_attn)
    assert load_backend("varlen").why_unsupported(Needs(), GPU) == "needs torch 2.11 or newer"


def test_the_varlen_of_this_torch_takes_these_arguments() -> None:
    """There is no kernel on a CPU, but its signature is checked by the fake one."""
    kernel = Varlen().kernel
    if kernel is None:
        pytest.skip("needs torch 2.11")
    q = torch.empty(7, H, K, dtype=torch.bfloat16, device="meta")
    starts = torch.empty(3, dtype=torch.int32, device="meta")
    assert kernel(q, q, q, starts, 4, 0.3).shape == q.shape


# ---- the choice ---------------------------------------------------------------------------------


def test_auto_takes_the_fastest_that_meets_all_needs(
    scales: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, three = Needs(), Needs(values=3)
    biased, scores = Needs(bias="learned", packed=False), Needs(bias="scores", packed=False)
    shared = biased._replace(packed=True)
    for needs in (one, three, biased, shared, scores):
        assert choose_backend("auto", needs, CPU).name == "eager"
    assert choose_backend("auto", one, GPU).name == "varlen"
    assert choose_backend("auto", one._replace(query=2), GPU).name in ("fused", "sdpa")
    assert choose_backend("auto", three, GPU).name in ("fused", "flash-attn")
    assert choose_backend("auto", shared, GPU).name in ("fused", "sdpa")
    assert choose_backend("auto", biased, GPU).name == "sdpa"
    assert choose_backend("auto", scores, GPU).name == "eager"
    install(monkeypatch, "torch.nn.attention.varlen")
    assert choose_backend("auto", one, GPU).name == "flash-attn"
    able = [name for name in BACKENDS if load_backend(name).why_unsupported(scores, GPU) is None]
    assert able == ["eager"]


def test_the_fused_kernel_has_a_widest_head() -> None:
    fused = load_backend("fused")
    for needs in (Needs(width=129), Needs(width=65, query=2)):
        assert "128 numbers" in str(fused.why_unsupported(needs, GPU))
    assert "at most" not in str(fused.why_unsupported(Needs(width=64, query=2), GPU))
    assert decoder_for("pope").needs.width == 8


def test_a_backend_that_is_not_installed_is_refused() -> None:
    with pytest.raises(UsageError, match="'flash-attn'"):
        choose_backend("flash-attn", Needs(), GPU)
