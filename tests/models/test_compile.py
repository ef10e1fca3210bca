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
from tape_arith.arith.scoring.score import answer_logits, score
from tape_arith.models import compiling
from tape_arith.models.attention import Eager
from tape_arith.models.compiling import ISOLATES, MOST_GRAPHS, CompiledBlocks
from tape_arith.models.hardware import Hardware
from tests.helpers.small_training import (
    assert_same_bits,
    perturbed,
    small,
    train,
    trainer,
    weights,
)

CONFIG = small(trained_digits=4, tested_digits=6, batch_size=24, num_layers=4)
LOOPED = replace(CONFIG, num_layers=2, norm="deepnorm", loops=3, input_injection=True)
SCALED = replace(CONFIG, attention_scale="log")
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
        *((name, True, SCALED) for name in ("fire", "tape")),
        pytest.param("tape", False, CONFIG, marks=GXX),
        pytest.param("tape", False, LOOPED, marks=GXX),
        pytest.param("tape", False, SCALED, marks=GXX),
    ],
)
def test_compiled_blocks(
    name: str, packs: bool, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced as for a GPU, packed if the encoding can be; or with generated code, as on a CPU."""
    if packs:
        monkeypatch.setattr(Eager, "packs", True)
        monkeypatch.setattr(compiling, "CPU_OPTIONS", {"backend": "aot_eager"})
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
    assert compiled.runner.compiled and set(compiled.decoder.state_dict()) == weights
    assert counters["stats"]["unique_graphs"] == graphs  # held-out problems are not compiled for
    problems = plain.held_out(64)
    for one in (plain, compiled):
        one.decoder.eval()
    expected_correct, correct = (
        score(one.runner, *problems).num_correct for one in (plain, compiled)
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
    monkeypatch.setattr(compiling, "CPU_OPTIONS", {"backend": "eager"})
    one, plain = trainer(CONFIG, "rope", hardware=COMPILED), trainer(CONFIG, "rope")
    for each in (one, plain):
        each.decoder.eval()
    problems, keys = one.batches.problems(0)
    graphs = []
    for rows in (3, 24):
        group = pack(problems, keys, np.arange(rows), capacity=400, longest=20)
        expected = answer_logits(plain.runner, group)
        torch.testing.assert_close(answer_logits(one.runner, group), expected)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == graphs[1] >= 2


def test_when_graphs_may_be_missing() -> None:
    decoder = trainer(CONFIG, "rope").decoder
    blocks = CompiledBlocks(decoder, backend="eager")
    uses = [(True, torch.float32), (True, torch.float32), (True, torch.bfloat16)]
    uses += [(False, torch.bfloat16)]
    assert [blocks.may_lack_graphs(*use) for use in uses] == [True, False, True, True]
    CompiledBlocks(trainer(CONFIG, "rope").decoder, backend="eager")  # whose graphs take its place
    assert [blocks.may_lack_graphs(*uses[-1]) for _ in range(2)] == [True, False]


def test_runners_of_one_decoder_share_its_weights_and_compiled_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "CPU_OPTIONS", {"backend": "eager"})
    one = trainer(CONFIG, "rope", hardware=COMPILED)
    low = one.runner.on(replace(COMPILED, dtype=torch.bfloat16))
    plain = low.on(low.hardware.for_scoring)
    assert low.compiled is one.runner.compiled is not None and plain.compiled is None
    assert low.decoder is plain.decoder is one.decoder
    assert (low.hardware.dtype_name, plain.hardware.attention) == ("bfloat16", "eager")
