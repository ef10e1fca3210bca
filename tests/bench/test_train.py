"""The stage of training: what it counts, beside counts of its own."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from tape_arith.arith.bench import train
from tape_arith.arith.bench.measure import Measurement, Options, Timing
from tape_arith.arith.bench.train import (
    Contender,
    class_of,
    compared,
    contender,
    measure,
    mfu,
    profiled,
)
from tape_arith.arith.runs.build import training_bucket
from tape_arith.arith.training.flops import useful_training_flops
from tape_arith.models import build as builder
from tape_arith.models import compile as compilation
from tape_arith.models.compile import MOST_GRAPHS
from tape_arith.models.hardware import Hardware
from tape_arith.models.names.parse import parse
from tests.helpers.small_training import cpu, small

CONFIG = small(trained_digits=5, tested_digits=5, batch_size=24)


def lines_of(**options: object) -> dict[str, Measurement]:
    found = list(measure(Options(quick=True, **options)))  # type: ignore[arg-type]
    assert len({line.name for line in found}) == len(found)
    return {line.name: line for line in found}


@pytest.mark.slow
def test_rope_is_always_measured_along() -> None:
    lines = lines_of(encodings=(parse("fire"),))
    names = {name.split(":")[0] for name in lines}
    assert names == {"rope", "fire"}
    rope, fire = lines["rope: a step"], lines["fire: a step"]
    assert rope.ratio == 1.0 and rope.limit == rope.value
    assert fire.limit == rope.value and fire.value and fire.ratio
    assert fire.ratio == pytest.approx(fire.value / (rope.value or 0.0))
    assert fire.note == "attention by eager"
    for what in ("real tokens", "useful FLOPs", "padding", "peak memory", "matrix products' share"):
        value = lines[f"fire: {what}"].value
        assert value is not None and value > 0
    assert "fire: MFU" not in lines  # there is no GPU


@pytest.mark.slow
def test_lengths_are_trained_on_one_by_one() -> None:
    lines = lines_of(encodings=(parse("rope"),), lengths=(3, 6))
    assert {name.split(":")[0] for name in lines} == {"rope, 3 digits", "rope, 6 digits"}
    assert "to 6 digits" in lines["rope, 6 digits: real tokens"].note


def test_another_backend_of_attention() -> None:
    lines = lines_of(encodings=(parse("rope"),), attention="sdpa")
    assert lines["rope: a step"].note == "attention by sdpa"


def test_all_take_the_same_steps() -> None:
    seen: dict[str, list[int]] = {}
    contenders = [contender(parse(name), CONFIG, cpu()) for name in ("rope", "nope")]
    for each in contenders:
        original = each.trainer.batch

        def batch(step: int, name: str = str(each.name), original: object = original) -> object:
            seen.setdefault(name, []).append(step)
            return original(step)  # type: ignore[operator]

        each.trainer.batch = batch  # type: ignore[method-assign,assignment]
        each.train(1)
        each.train(2)
        each.train(1)  # off the clock, then on it
    assert seen == {"rope": [1, 2, 1], "nope": [1, 2, 1]}
    assert contenders[0].trainer.step == 2
    assert contenders[0].tokens(1) == contenders[1].tokens(1)


def lengths_of_step(step: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    size = CONFIG.batch_size
    return training_bucket(CONFIG, 0).problems(step * size, (step + 1) * size).lengths


def test_real_tokens_flops_and_padding() -> None:
    each = contender(parse("tape"), CONFIG, cpu())
    lengths, before = lengths_of_step(1), each.trainer.tokens
    each.train(1)
    assert each.tokens(1) == int(lengths.sum()) == each.trainer.tokens - before
    problems = training_bucket(CONFIG, 0).problems(CONFIG.batch_size, 2 * CONFIG.batch_size)
    answers = int((problems.lengths - problems.prompt_lengths).sum())
    decoder = each.trainer.decoder
    assert each.useful_flops(1) == useful_training_flops(
        decoder.config, decoder.pe, (lengths - 1).tolist(), answers
    )
    # Cut by hand into the groups of like lengths that a step takes.
    computed = [
        sum(
            rows.inputs.shape[0] * rows.inputs.shape[1]
            for rows in each.trainer.groups(*each.trainer.batch(step))
        )
        for step in (1, 2)
    ]
    real = [int((lengths_of_step(step) - 1).sum()) for step in (1, 2)]
    assert each.padding([1]) == pytest.approx(1 - real[0] / computed[0])
    assert each.padding([1, 2]) == pytest.approx(1 - sum(real) / sum(computed))
    assert 0 < each.padding([1]) < 0.5


def test_rates_are_medians_over_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 1, 2 and 4 seconds, in place of what the clock says."""
    monkeypatch.setattr(train, "PROFILED_STEPS", 1)

    def taken(functions: dict[object, object], **_: object) -> dict[object, list[float]]:
        return {key: [1.0, 2.0, 4.0] for key in functions}

    monkeypatch.setattr(train, "steps_in_turn", taken)
    found = compared([parse("rope")], CONFIG, cpu(), Options(quick=True))
    lines = {line.name: line for line in found}
    tokens = [int(lengths_of_step(step).sum()) for step in (0, 1, 2)]
    rates = [count / time for count, time in zip(tokens, (1.0, 2.0, 4.0), strict=True)]
    assert lines["rope: real tokens"].value == pytest.approx(np.median(rates))
    assert lines["rope: real tokens"].repeats == 3
    assert lines["rope: a step"].value == 2.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_all_are_compiled_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them forgets the others' graphs, or has too few: a step makes none any more."""
    monkeypatch.setattr(
        builder, "CPU_OPTIONS", compilation.CPU_OPTIONS | {"backend": "eager", "options": None}
    )
    hardware = Hardware("cpu", torch.float32, compiled=True)
    with torch._dynamo.config.patch(recompile_limit=1, accumulated_recompile_limit=1):
        contenders = [contender(parse(name), CONFIG, hardware) for name in ("rope", "fire", "tape")]
        train.compile_all(contenders, hardware)
        made = counters["stats"]["unique_graphs"]
        for each in contenders:
            each.train(1)
        assert counters["stats"]["unique_graphs"] == made
        config = torch._dynamo.config
        assert config.accumulated_recompile_limit == 3 * CONFIG.num_layers * MOST_GRAPHS
    torch.compiler.reset()


def test_the_shares_of_a_step_add_up() -> None:
    each = contender(parse("rope"), CONFIG, cpu())
    shares = profiled(each.trainer, cpu(), 2)
    assert all(0 <= share <= 1 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.1)
    for name in (
        "matrix products",
        "elementwise",
        "optimizer",
        "softmax and loss",
        "data",
        "other",
    ):
        assert shares[name] > 0
    assert each.trainer.hardware == cpu()


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("aten::mm", "matrix products"),
        ("aten::addmm", "matrix products"),
        ("aten::baddbmm", "matrix products"),
        ("nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNT", "matrix products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", "matrix products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention kernels"),
        ("flash_fwd_kernel", "attention kernels"),
        ("forward_kernel", "attention kernels"),
        ("backward_queries_kernel", "attention kernels"),
        ("triton_tem_fused_flex_attention_0", "attention kernels"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "attention kernels"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::linalg_vector_norm", "optimizer"),
        ("aten::_fused_rms_norm", "norm"),
        ("aten::rsqrt", "norm"),
        ("aten::_softmax", "softmax and loss"),
        ("aten::nll_loss_backward", "softmax and loss"),
        ("aten::gelu_backward", "activation"),
        ("aten::silu", "activation"),
        ("aten::_to_copy", "copies and casts"),
        ("aten::copy_", "copies and casts"),
        ("aten::cat", "copies and casts"),
        ("Memcpy HtoD (Pageable -> Device)", "copies and casts"),
        ("aten::mul", "elementwise"),
        ("triton_poi_fused_add_mul_3", "elementwise"),
        ("autograd::engine::evaluate_function: MulBackward0", "other"),
        ("MmBackward0", "other"),
    ],
)
def test_classes_of_operations(operation: str, expected: str) -> None:
    assert class_of(operation) == expected


class Gpu(Hardware):
    """A GPU by name alone."""

    part = ""

    @property
    def name(self) -> str:
        return self.part


@pytest.mark.parametrize(
    ("part", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA GeForce RTX 3090", None),
    ],
)
def test_mfu_is_of_the_datasheet(
    part: str, peak: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gpu, "part", part)
    line = mfu("rope", Timing(400e12, 0.0, 3), Gpu("cuda", torch.bfloat16))
    if peak is None:
        assert line.value is None and part in line.note
    else:
        assert line.ratio == pytest.approx(400e12 / peak) and line.limit == peak


def test_products_that_the_profiler_does_not_see() -> None:
    each = contender(parse("rope"), CONFIG, cpu())
    line = train.where_it_goes("rope", each, replace(cpu(), compiled=True), 1)
    assert line.value is None and "compiled" in line.note


def test_memory_that_the_system_does_not_tell() -> None:
    each = Contender(parse("rope"), contender(parse("rope"), CONFIG, cpu()).trainer)
    assert train.memory_line("rope", each, cpu()).value is None
    each.memory = (100, 300)
    assert train.memory_line("rope", each, cpu()).value == 300
    assert train.memory_line("rope", each, Gpu("cuda", torch.bfloat16)).value == 200
