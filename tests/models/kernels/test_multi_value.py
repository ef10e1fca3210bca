"""The kernel equals a plain loop in float64: outputs, and gradients of q, k, values and bias.

In float32 to EXACT. In bfloat16 to ROUNDED: a half unit in the last place is 2^-9, and the
interpreter cuts where a GPU rounds, which is twice as much; weights, gradients of weights and
results are each rounded once.

Legend: T tokens of all sequences, n sequences, H heads, K head dim, V value width, S a bias's side.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton.language as tl
from torch import Tensor

from tape_arith.models.kernels import multi_value
from tape_arith.models.kernels.multi_value import multi_value_attention
from tape_arith.models.kernels.tiles import kernel, place
from tests.helpers.kernel_problems import HALF, SCALE, Problem, distance, exact, problem

EXACT = 3e-6
ROUNDED = 3e-2
both_kernels = pytest.mark.parametrize("lengths", [[9, 20], [9, 40]], ids=["one tile", "blocks"])


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that nobody wrote to holds NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def check(case: Problem, tolerance: float) -> None:
    """Compare with the loop; on a GPU, where programs race, a second run gives the same bits."""
    results = case.run()
    assert distance(results, case.expected()) < tolerance
    if results[0].is_cuda:
        assert all(map(torch.equal, results, case.run()))


@pytest.mark.parametrize(
    ("one_tile", "lengths"),
    [
        # Around the edges of each tile: 16, 32, 64, 128 tokens, and of two launches 64 and 65.
        *((True, lengths) for lengths in ([16, 1], [32, 17], [33, 64, 31], [65, 128, 64, 3])),
        *((False, lengths) for lengths in ([96, 65, 1], [31, 33, 32])),
    ],
    ids=str,
)
def test_lengths(
    one_tile: bool, lengths: list[int], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if one_tile and device == "cuda":
        pytest.skip("float32 has registers for no more than 32 tokens on a GPU")
    monkeypatch.setattr(multi_value, "is_short", lambda q, values, longest: one_tile)
    side = max(lengths) if max(lengths) > 64 else 0  # the edges of several tiles of a bias
    check(problem(lengths, device=device, side=side), EXACT)


@both_kernels
@pytest.mark.parametrize(
    ("values", "width", "value_width"), [(1, 24, 40), (2, 128, 3), (3, 32, 16)]
)
def test_values_of_any_number_and_width(
    lengths: list[int], values: int, width: int, value_width: int, device: str
) -> None:
    sizes: dict[str, Any] = {"values": values, "width": width, "value_width": value_width}
    # A score, and so its rounding, grows with the root of the width. CPUs differ in how they add.
    tolerance = EXACT * max(1, (width / 64) ** 0.5)
    check(problem([*lengths, 0], device=device, tail=3, **sizes), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("values", [1, 2, 3])
def test_every_length_to_124_in_bfloat16(values: int, device: str) -> None:
    lengths = random.Random(0).sample(range(125), 125)
    case = problem(lengths, device=device, values=values, width=64, value_width=64, dtype=HALF)
    check(case, ROUNDED)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, HALF], ids=str)
@pytest.mark.parametrize("lengths", [[244, 130, 64, 65, 1, 241], [1024]], ids=str)
def test_lengths_beyond_training(lengths: list[int], dtype: torch.dtype, device: str) -> None:
    case = problem(lengths, device=device, width=64, value_width=64, dtype=dtype, tail=9)
    check(case, EXACT if dtype == torch.float32 else ROUNDED)


@pytest.mark.parametrize(
    ("lengths", "state"),
    [([16], HALF), ([1, 64], torch.float32), ([129, 20], HALF)],
    ids=str,
)
def test_bfloat16(lengths: list[int], state: torch.dtype, device: str) -> None:
    """q, k and v; the states of TAPE stay float32 in memory, and so do their gradients."""
    case = problem(lengths, device=device, width=32, value_width=32, dtype=HALF, state=state)
    results = case.run()
    assert [x.dtype for x in results] == [HALF, state, state, HALF, HALF, HALF, state, state]
    assert distance(results, case.expected()) < ROUNDED


@pytest.mark.parametrize(
    ("lengths", "longest", "tail", "side"),
    [
        *(([9, 0, 20], 20, 1, 48), ([9, 40], 40, 100, 48)),
        *(([0, 5, 0, 0, 20, 0], longest, 4, side) for longest, side in ((20, 48), (40, 0))),
        *(([], longest, 4, side) for longest, side in ((20, 0), (40, 48))),
    ],
    ids=str,
)
@pytest.mark.usefixtures("poisoned")
def test_what_belongs_to_no_sequence_is_zero(
    lengths: list[int], longest: int, tail: int, side: int, device: str
) -> None:
    """Whatever stands there, and whatever stood in memory before; sequences may be empty."""
    case = problem(lengths, device=device, longest=longest, tail=tail, side=side)
    tokens = sum(lengths)
    expected = case.expected() if tokens else []
    for x in (*case.inputs, *case.gradients):
        x[tokens:] = float("nan")
    results = case.run()
    assert len(results) == 8 + bool(side)
    assert all(not x[tokens:].any() for x in results[:8])
    assert tokens or not any(x.any() for x in results[8:])
    assert not tokens or distance(results, expected) < EXACT


@both_kernels
def test_views_of_a_fused_projection(lengths: list[int], device: str) -> None:
    """k and v beside each other, the rows of the state between each other; of the gradients that
    come in some are views as well."""
    case = problem(lengths, device=device, heads=2)
    q, k, v, *state = case.inputs
    leaves = [q, torch.stack((k, v), 1), torch.stack(state, -2)]

    def results(leaves: list[Tensor]) -> list[Tensor]:
        q, fused, state = leaves = [x.detach().requires_grad_() for x in leaves]
        inputs = [q, *fused.unbind(1), *state.unbind(-2)]
        assert not any(x.is_contiguous() for x in inputs[1:])
        outputs = case.attend(inputs)
        upstream = [g.to(o) for g, o in zip(case.gradients, outputs, strict=True)]
        upstream[1:] = torch.stack(upstream[1:], -2).unbind(-2)
        return [*(o.detach() for o in outputs), *torch.autograd.grad(outputs, leaves, upstream)]

    assert distance(results(leaves), results([exact(x) for x in leaves])) < EXACT


@both_kernels
@pytest.mark.parametrize(("used", "wanted"), [((0, 1, 2), (3, 4)), ((0, 2), (2,))], ids=str)
def test_some_outputs_and_gradients(
    lengths: list[int], used: tuple[int, ...], wanted: tuple[int, ...], device: str
) -> None:
    """The first state of TAPE needs no gradient; nor need an output be used."""
    case = problem(lengths, device=device)
    for i in {0, 1, 2} - set(used):
        case.gradients[i].zero_()
    expected = [case.expected()[3 + i] for i in wanted]
    inputs = [x.requires_grad_(i in wanted) for i, x in enumerate(case.inputs)]
    outputs = case.attend(inputs)
    gradients = torch.autograd.grad(
        [outputs[i] for i in used], [inputs[i] for i in wanted], [case.gradients[i] for i in used]
    )
    assert distance(gradients, expected) < EXACT


# ---- a bias that all sequences share -------------------------------------------------------------


@pytest.mark.parametrize(("values", "heads", "learned"), [(1, 2, True), (3, 1, False)])
@pytest.mark.parametrize("lengths", [[9, 0, 20], [9, 0, 33]], ids=["one tile", "blocks"])
@pytest.mark.usefixtures("poisoned")
def test_bias(
    lengths: list[int],
    values: int,
    heads: int,
    learned: bool,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its gradient is a sum over sequences, of which one program takes several."""
    monkeypatch.setattr(multi_value, "BIAS_PROGRAMS", 4)
    case = problem(lengths, device=device, heads=heads, values=values, tail=3, side=43)
    case.learned = learned
    check(case, EXACT)


@pytest.mark.parametrize("lengths", [[1, 64], [129, 20]], ids=str)
def test_bias_in_bfloat16(lengths: list[int], device: str) -> None:
    """The bias is float32, and so is its gradient."""
    sizes: dict[str, Any] = {"values": 1, "width": 32, "value_width": 32}
    case = problem(lengths, device=device, dtype=HALF, side=max(lengths), **sizes)
    results = case.run()
    assert results[-1].dtype == torch.float32
    assert distance(results, case.expected()) < ROUNDED


@both_kernels
@pytest.mark.parametrize("extreme", [float("-inf"), 200.0])
def test_extreme_biases(lengths: list[int], extreme: float, device: str) -> None:
    """Windows of three tokens, as of Hard-ALiBi, leave whole blocks of keys out; and powers of the
    bias that overflow, where a sequence has no token."""
    case = problem([*lengths, 3], device=device, side=48)
    assert case.bias is not None
    place = torch.arange(48, device=device)
    far = place[:, None] - place >= 3
    case.bias = case.bias.masked_fill(far, extreme)
    check(case, 1e-4 if extreme > 0 else EXACT)


# ---- what else ----------------------------------------------------------------------------------


@both_kernels
def test_large_scores(lengths: list[int], device: str) -> None:
    """Scores up to 300, of which float32 knows four digits, do not overflow in the softmax."""
    case = problem(lengths, device=device)
    for x in case.inputs[:2]:
        x *= 8
    check(case, 1e-4)


@pytest.mark.parametrize("side", [0, 20])
def test_one_graph(side: int, device: str) -> None:
    """torch.compile sees an operator, and one more in the backward."""
    case = problem([9, 20], device=device, tail=2, side=side)
    seen: list[str] = []

    def look(graph: torch.fx.GraphModule, example: list[Any]) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return nop(graph, example)

    from torch._dynamo.backends.common import aot_autograd  # imports Triton
    from torch._functorch.compilers import nop

    backend = aot_autograd(fw_compiler=look)
    compiled = torch.compile(multi_value_attention, backend=backend, fullgraph=True)
    expected = case.expected()
    bias = case.bias
    q, k, *values = inputs = [x.requires_grad_() for x in case.inputs]
    inputs += [] if bias is None else [bias.requires_grad_()]
    outputs = compiled(q, k, values, case.starts, case.longest, SCALE, bias)
    results = [o.detach() for o in outputs]
    results += torch.autograd.grad(outputs, inputs, case.gradients)
    assert distance(results, expected) < EXACT
    operators = [name for name in seen if name.startswith("tape_arith")]
    assert operators == [
        "tape_arith.multi_value_attention.default",
        "tape_arith.multi_value_attention_backward.default",
    ]


def test_what_it_refuses(device: str) -> None:
    case = problem([5], device=device)
    q, k, *values = case.inputs
    wrong: list[tuple[Any, Any, list[Tensor], str]] = [
        (q, k, [*values, values[0]], "one to three values, not 4"),
        (q, k.to(HALF), values, "of one type"),
        (q.double(), k.double(), values, "of one type"),
        (q, k, [values[0].repeat(1, 1, 9)], "at most 128 wide"),
        (q, k[:-1], values, "same tokens and heads"),
        (q, k, [values[0].repeat(1, 2, 1)], "same tokens and heads"),
    ]
    for q, k, values, message in wrong:
        with pytest.raises(ValueError, match=message):
            multi_value_attention(q, k, values, case.starts, case.longest, SCALE)
    q, k, *values = case.inputs
    for bias in (torch.zeros(2, 5, 5), torch.zeros(1, 5, 6), torch.zeros(1, 4, 4)):
        with pytest.raises(ValueError, match=r"\[1, S, S\] with S >= 5"):
            multi_value_attention(q, k, values, case.starts, case.longest, SCALE, bias.to(device))


@kernel
def distance_kernel(pointer, out, token, head, token_stride, head_stride):  # type: ignore[no-untyped-def]
    token, head = tl.program_id(0) + token, tl.program_id(0) + head
    address = place(pointer, token, head, token_stride, head_stride)
    tl.store(out, address.to(tl.int64) - pointer.to(tl.int64))


def test_places_beyond_32_bits(device: str) -> None:
    """2^22 tokens of a fused projection 3 x 2^10 wide: 12 billion numbers, 24 GB."""
    pointer = torch.empty(1, dtype=HALF, device=device)
    out = torch.empty(1, dtype=torch.int64, device=device)
    distance_kernel[(1,)](pointer, out, 2**22, 15, 3 * 2**10, 64)
    assert out.item() == 2 * (2**22 * 3 * 2**10 + 15 * 64)
