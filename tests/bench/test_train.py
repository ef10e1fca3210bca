"""The stage of training: what it counts, against counts by the test."""

import pytest
import torch
from torch._dynamo.utils import counters

from tape_arith.arith.bench import limits
from tape_arith.arith.bench import train as bench
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.bench.train import Candidate, measure, warm_up
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.options import Compute
from tape_arith.models import compiling
from tape_arith.models.attention import Eager
from tape_arith.models.compiling import CPU_OPTIONS, MOST_GRAPHS
from tape_arith.models.flops import useful_training_flops
from tape_arith.models.hardware import Hardware
from tests.helpers.cuda_graphs import on_cpu
from tests.helpers.small_training import cpu, small

SDPA = Compute("sdpa", None)
CONFIG = small(trained_digits=5, tested_digits=5, batch_size=24)


def test_rope_is_always_measured_along_for_each_length() -> None:
    options = Options(seconds=0, encodings=(parse("fire"),), lengths=(2, 3), compute=SDPA)
    results = list(measure(options))
    lines = {line.name: line for line in results}
    assert len(lines) == len(results)
    assert {name.split(":")[0] for name in lines} == {
        f"{name}, {digits} digits" for name in ("rope", "fire") for digits in (2, 3)
    }
    assert "3 digits" in lines["rope, 3 digits: real tokens"].note
    for quantity in ("a step", "real tokens"):
        rope, fire = (lines[f"{name}, 2 digits: {quantity}"] for name in ("rope", "fire"))
        assert rope.ratio == 1.0 and rope.value and fire.value
        assert fire.limit == rope.value and fire.limit_name == "rope, 2 digits's"
        assert fire.ratio == pytest.approx(fire.value / rope.value)
    assert lines["fire, 2 digits: a step"].note == "attention by sdpa"
    assert "products" in str(lines["fire, 2 digits: useful FLOPs"].limit_name)
    assert not any("MFU" in line.note or "memory" in line.note for line in results)  # no GPU


def test_real_tokens_flops_and_padding() -> None:
    each = Candidate(parse("tape"), CONFIG, cpu())
    before = each.trainer.tokens
    each.train(1)
    problems = CONFIG.bucket(0).problems(CONFIG.batch_size, 2 * CONFIG.batch_size)
    lengths = problems.lengths
    assert each.tokens(1) == int(lengths.sum()) == each.trainer.tokens - before
    answers = int((problems.lengths - problems.prompt_lengths).sum())
    decoder = each.trainer.decoder
    assert each.useful_flops(1) == useful_training_flops(
        decoder.config, decoder.pe, (lengths - 1).tolist(), answers
    )
    groups = each.trainer.groups(*each.trainer.batches.problems(1))
    computed = sum(rows.inputs.shape[0] * rows.inputs.shape[1] for rows in groups)
    assert each.padding([1]) == pytest.approx(1 - int((lengths - 1).sum()) / computed)
    assert 0 < each.padding([1, 2]) < 0.5


def test_a_gpu_measures_each_form_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Eager, "packs", True)
    monkeypatch.setattr(compiling, "CPU_OPTIONS", {"backend": "eager"})
    graphs = on_cpu(monkeypatch)
    hardware = Hardware("cpu", torch.float32, compiled=True, recorded=True)
    monkeypatch.setattr(bench, "detect", lambda *compute: hardware)
    monkeypatch.setattr(limits, "product_limit", lambda *_: Result("limits", "x", 1.0, "s"))
    options = Options(seconds=0, encodings=(parse("rope"),))
    with torch.compiler.set_stance("force_eager"):  # a graph of ours records no compiled one
        lines = {line.name: line for line in measure(options)}
    plain = lines["rope, not compiled: a step"]
    assert plain.ratio == 1 and plain.note == "attention by eager"
    for form, note in (
        ("rope, blocks compiled", ", blocks compiled"),
        ("rope, one CUDA graph", ", blocks compiled, one CUDA graph a step"),
    ):
        assert lines[f"{form}: a step"].note == plain.note + note
        assert lines[f"{form}: a step"].limit == plain.value
    assert lines["rope: a step"].note == lines["rope, one CUDA graph: a step"].note
    assert len(graphs) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_all_are_compiled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them forgets the others' graphs, or has too few: a step makes none any more."""
    monkeypatch.setattr(
        compiling, "CPU_OPTIONS", CPU_OPTIONS | {"backend": "eager", "options": None}
    )
    hardware = Hardware("cpu", torch.float32, compiled=True)
    names = [parse(name) for name in ("rope", "fire", "tape")]
    with torch._dynamo.config.patch(recompile_limit=1, accumulated_recompile_limit=1):
        candidates = [Candidate(name, CONFIG, hardware) for name in names]
        warm_up([each.train for each in candidates], hardware, blocks=CONFIG.num_layers)
        made = counters["stats"]["unique_graphs"]
        for each in candidates:
            each.train(1)
        assert counters["stats"]["unique_graphs"] == made
        config = torch._dynamo.config
        assert config.accumulated_recompile_limit == 3 * CONFIG.num_layers * MOST_GRAPHS
    torch.compiler.reset()
