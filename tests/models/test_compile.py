"""Compiled blocks equal plain ones, in few graphs, without a break."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from tape_arith.arith.data.rows import pack
from tape_arith.arith.runs.config import Config
from tape_arith.arith.scoring.score import logits_of_answers, score
from tape_arith.models import build
from tape_arith.models.attention import Eager
from tape_arith.models.compiling import ISOLATES, MOST_GRAPHS, compile_blocks, compile_state_changed
from tape_arith.models.hardware import Hardware
from tests.helpers.small_training import (
    assert_same_bits,
    cpu,
    perturbed,
    small,
    train,
    trainer,
    weights,
)

CONFIG = small(trained_digits=4, tested_digits=6, batch_size=24, num_layers=4)
LOOPED = replace(CONFIG, num_layers=2, norm="deepnorm", loops=3, input_injection=True)
COMPILED = Hardware("cpu", torch.float32, compiled=True)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    counters.clear()
    yield
    torch.compiler.reset()


GXX = [
    pytest.mark.skipif(not ISOLATES, reason="needs torch 2.13"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++"),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize(
    ("name", "packs", "config"),
    [
        *((name, True, CONFIG) for name in ("rand-rope", "fire", "tape", "tape-heads")),
        *((name, True, LOOPED) for name in ("rope", "tape")),
        pytest.param("tape", False, CONFIG, marks=GXX),
        pytest.param("tape", False, LOOPED, marks=GXX),
    ],
)
def test_compiled_blocks(
    name: str, packs: bool, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced as for a GPU, packed if the encoding can be; or with generated code, as on a CPU."""
    if packs:
        monkeypatch.setattr(Eager, "packs", True)
        monkeypatch.setattr(build, "CPU_OPTIONS", {"backend": "aot_eager"})
    plain, compiled = trainer(config, name), trainer(config, name, hardware=COMPILED)
    perturbed(plain.decoder)
    perturbed(compiled.decoder)
    weights = set(compiled.decoder.state_dict())
    for _ in range(4):
        expected, expected_norm = plain.train_step()
        loss, norm = compiled.train_step()
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm, expected_norm, rtol=1e-3, atol=1e-5)
    graphs = counters["stats"]["unique_graphs"]
    assert compiled.held_out_exact_match() == plain.held_out_exact_match()
    for one in (plain, compiled):
        one.train_step()
    assert compiled.decoder.compiled and set(compiled.decoder.state_dict()) == weights
    assert counters["stats"]["unique_graphs"] == graphs  # held-out problems are not compiled for
    problems = plain.held_out(64)
    expected_correct, correct = (
        score(one.decoder.eval(), *problems, hardware).num_correct
        for one, hardware in ((plain, cpu()), (compiled, COMPILED))
    )
    assert np.array_equal(correct, expected_correct)
    # Graphs that blocks share: the limit is far.
    assert 2 <= counters["stats"]["unique_graphs"] <= 12 < MOST_GRAPHS
    assert not counters["graph_break"] and not counters["unimplemented"]
    if not packs:  # traced graphs can be kept on disk, and are hits if an earlier run kept them
        assert not counters["aot_autograd"]["autograd_cache_bypass"]
        assert sum(counters["aot_autograd"][f"autograd_cache_{word}"] for word in ("hit", "miss"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.skipif(not ISOLATES, reason="needs torch 2.13")
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_the_number_of_threads_changes_no_bit_of_compiled_blocks(one_thread: None) -> None:
    """Even if torch has two threads when blocks are compiled: generated loops would use both."""
    from torch._inductor.utils import fresh_cache  # older versions of torch have none

    config, outcomes = replace(CONFIG, num_layers=1, steps=4), []
    for threads in (1, 2):
        one = trainer(config, "tape", hardware=replace(COMPILED, threads=threads))
        torch.set_num_threads(threads)
        with fresh_cache():
            one.train_step()
            files = [*Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.cpp")]
            assert files and not any("#pragma omp" in file.read_text() for file in files)
        torch.set_num_threads(1)
        outcomes.append(weights(train(one)))
    assert_same_bits(*outcomes)


@pytest.mark.slow
@torch.no_grad()
def test_how_many_are_scored_is_no_part_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor how many sequences a pack has: both are others in every group, from the second one on."""
    monkeypatch.setattr(Eager, "packs", True)
    one = trainer(CONFIG, "rope")
    compile_blocks(one.decoder.eval(), backend="eager")
    problems, keys = one.batches.problems(0)
    made = []
    for rows in (3, 24):
        group = pack(problems, keys, np.arange(rows), capacity=400, longest=20)
        expected = logits_of_answers(trainer(CONFIG, "rope").decoder.eval(), group, "cpu")
        torch.testing.assert_close(logits_of_answers(one.decoder, group, "cpu"), expected)
        made.append(counters["stats"]["unique_graphs"])
    assert made[0] == made[1] >= 2


def test_when_graphs_may_be_missing() -> None:
    decoder = trainer(CONFIG, "rope").decoder
    assert not compile_state_changed(decoder, torch.float32)  # nothing is compiled
    compile_blocks(decoder.train(), backend="eager")
    changes = [compile_state_changed(decoder, dtype) for dtype in (torch.float32, torch.float32)]
    changes += [
        compile_state_changed(decoder, torch.bfloat16),
        compile_state_changed(decoder.eval(), torch.bfloat16),
    ]
    assert changes == [True, False, True, True]
    compile_blocks(trainer(CONFIG, "rope").decoder, backend="eager")  # whose graphs take its place
    assert [compile_state_changed(decoder, torch.bfloat16) for _ in range(2)] == [True, False]
