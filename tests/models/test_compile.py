"""Compiled blocks: what plain ones give, in few graphs, without a break.

What a GPU is given; here without code generation, which takes a compiler of C++, but for one test
that wants one.
"""

import shutil
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from arith.data.batches import pack
from arith.scoring.score import logits_of_answers
from models.backends.eager import Eager
from models.build import compile_blocks
from models.graphs import MOST_GRAPHS, allow_graphs
from models.hardware import Hardware
from tests.training.small import perturbed, small, trainer

CONFIG = small(trained_digits=4, tested_digits=6, batch_size=24, num_layers=4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    counters.clear()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("name", ["rope", "rand-rope", "fire", "tape", "tape-heads", "abacus"])
def test_compiled_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed where the encoding can be, else in padded groups, whose shapes differ."""
    monkeypatch.setattr(Eager, "packs", True)
    plain, compiled = trainer(CONFIG, name), trainer(CONFIG, name)
    perturbed(plain.decoder)
    perturbed(compiled.decoder)
    compile_blocks(compiled.decoder, backend="aot_eager")
    before = set(compiled.decoder.state_dict())
    for _ in range(4):
        expected, _ = plain.train_step()
        loss, _ = compiled.train_step()
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    assert compiled.held_out_exact_match() == plain.held_out_exact_match()
    assert set(compiled.decoder.state_dict()) == before
    # Graphs that blocks share: the limit is far.
    assert 2 <= counters["stats"]["unique_graphs"] <= 12 < MOST_GRAPHS
    assert not counters["graph_break"] and not counters["unimplemented"]


@torch.no_grad()
def test_how_many_are_scored_is_no_part_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor how many sequences a pack has: both are others in every group, from the second one on."""
    monkeypatch.setattr(Eager, "packs", True)
    one = trainer(CONFIG, "rope")
    compile_blocks(one.decoder.eval(), backend="eager")
    problems, keys = one.batch(0)
    made = []
    for rows in (3, 24):
        group = pack(problems, keys, np.arange(rows), capacity=400, longest=20)
        expected = logits_of_answers(trainer(CONFIG, "rope").decoder.eval(), group, "cpu")
        torch.testing.assert_close(logits_of_answers(one.decoder, group, "cpu"), expected)
        made.append(counters["stats"]["unique_graphs"])
    assert made[0] == made[1] >= 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")  # torch's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("name", ["fire", "tape"])
def test_on_a_cpu(name: str) -> None:
    """Groups of all shapes from a few graphs, none of them past a limit."""
    plain = trainer(CONFIG, name)
    compiled = trainer(CONFIG, name, hardware=Hardware("cpu", torch.float32, compiled=True))
    perturbed(plain.decoder)
    perturbed(compiled.decoder)
    for _ in range(4):
        expected, norm = plain.train_step()
        loss, other = compiled.train_step()
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(other, norm, rtol=1e-3, atol=1e-5)
    assert compiled.decoder.compiled and not plain.decoder.compiled
    assert compiled.held_out_exact_match() == plain.held_out_exact_match()
    assert 2 <= counters["stats"]["unique_graphs"] <= 12 < MOST_GRAPHS
    assert not counters["graph_break"] and not counters["unimplemented"]


@pytest.mark.slow
@pytest.mark.parametrize(("decoders", "compiled"), [(1, MOST_GRAPHS), (2, MOST_GRAPHS + 8)])
def test_more_decoders_may_have_more_graphs(decoders: int, compiled: int) -> None:
    """Of a function that needs one more than a single decoder may have, and some."""

    @torch.compile(backend="eager", dynamic=False)
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    with torch._dynamo.config.patch(recompile_limit=8):
        allow_graphs(decoders)
        allow_graphs()  # takes nothing back
        for size in range(1, MOST_GRAPHS + 9):
            assert double(torch.ones(size)).sum() == 2 * size
    assert counters["stats"]["unique_graphs"] == compiled
