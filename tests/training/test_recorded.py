"""A step recorded as a CUDA graph equals a plain one, and is given up where it cannot.

Where there is no GPU, the graph is one of torch's operations that knows Python's numbers no better.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from tape_arith.arith.runs.config import Config
from tape_arith.arith.training import session
from tape_arith.arith.training.distributed import ProcessGroup
from tape_arith.arith.training.recorded import PackedBatch, distance
from tape_arith.arith.training.step import packed_gradient
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models import compiling
from tape_arith.models.attention import Eager
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences
from tests.helpers.cuda_graphs import Graph, on_cpu
from tests.helpers.small_training import (
    assert_same_bits,
    perturbed,
    run,
    small,
    trainer,
    weights,
)

CONFIG = small(trained_digits=4, tested_digits=6, batch_size=24, steps=12, learning_rate=6e-3)
RECORDED = Hardware("cpu", torch.float32, recorded=True)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Return the graphs that are recorded; rows are packed."""
    monkeypatch.setattr(Eager, "packs", True)
    return on_cpu(monkeypatch)


def recorded(name: str = "rope", config: Config = CONFIG) -> Trainer:
    one = trainer(config, name, hardware=RECORDED)
    perturbed(one.decoder)
    return one


def plain(name: str = "rope", config: Config = CONFIG) -> Trainer:
    one = trainer(config, name)
    perturbed(one.decoder)
    return one


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("rope", "fire", "tape")),
        *("rand-rope", "aug-rope:per=step"),  # of which each batch has draws of its own
    ],
)
def test_a_training(name: str, graphs: list[Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps of one graph give the weights of plain steps, and the losses of padded rows."""
    packed, graph = plain(name), recorded(name)
    losses = [[float(one.train_step()[0]) for _ in range(CONFIG.steps)] for one in (packed, graph)]
    assert len(graphs) == 1 and graphs[0].replays == CONFIG.steps
    assert graph.why_not_recorded is None and graph.graph == ", one CUDA graph a step"
    assert_same_bits(weights(graph), weights(packed))
    monkeypatch.setattr(Eager, "packs", False)
    padded = plain(name)
    expected = [float(padded.train_step()[0]) for _ in range(CONFIG.steps)]
    assert losses[0] == losses[1] == pytest.approx(expected, rel=1e-4)
    assert not padded.runner.packs and expected[-1] < 0.9 * expected[0]


@pytest.mark.parametrize("name", ["rope", "tape", "fire", "rand-rope"])
def test_fillers_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64: none, or as many as there are answers, and other fillers of the pack."""
    monkeypatch.setattr(Eager, "packs", True)
    one = plain(name)
    one.decoder.double()
    (rows,) = one.groups(*one.batches.problems(0))
    count = len(rows.answers)
    used = int(rows.starts[CONFIG.batch_size]) if rows.starts is not None else 0
    other = rows.inputs.copy()
    other[0, used:] = 7
    some, more = (
        packed_gradient(one.runner, PackedBatch.of(each, count, most, "cpu"))
        for each, most in ((rows, 0), (rows._replace(inputs=other), 2 * count))
    )
    assert used < rows.inputs.shape[1] and some[0].dtype == torch.float64
    assert distance(more, some) < 1e-14


def test_a_batch_of_another_shape_is_computed_plainly(graphs: list[Graph]) -> None:
    packed, graph = plain(), recorded()
    usual = graph.batches.most_answers
    for step in range(4):
        graph.batches.most_answers = usual + (step == 2)
        expected, norm = packed.train_step()
        assert graph.train_step() == (expected, norm)
    assert len(graphs) == 1 and graphs[0].replays == 3


def waits(one: Trainer, seqs: Sequences, index: Tensor) -> Tensor:
    return index + int(seqs.key[0]) % 2


def counts(one: Trainer, seqs: Sequences, index: Tensor) -> Tensor:
    vars(one)["calls"] = vars(one).get("calls", 0) + 1
    return index + 5 * (vars(one)["calls"] == 1)


@pytest.mark.parametrize(("shift", "reason"), [(waits, "waits"), (counts, "another batch")])
def test_a_graph_that_would_be_wrong_is_given_up(
    shift: Any, reason: str, graphs: list[Graph], capsys: pytest.CaptureFixture[str]
) -> None:
    one = recorded("learned")
    indices = one.decoder.pe.indices
    one.decoder.pe.indices = lambda seqs: shift(one, seqs, indices(seqs)) % 9  # type: ignore
    one.train_step()
    (note,) = capsys.readouterr().err.splitlines()
    assert "no CUDA graph" in note and reason in note
    for _ in range(2):
        one.train_step()
    assert capsys.readouterr().err == "" and one.why_not_recorded is not None
    assert sum(graph.replays for graph in graphs) <= 1


def test_why_steps_are_not_recorded(graphs: list[Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    fine, several, padded = recorded(), recorded(), recorded("rand-fire")
    fine.finer = 2
    several.processes = ProcessGroup(size=2)
    reasons = [one.why_not_recorded for one in (fine, several, padded, plain())]
    assert all(reasons) and len(set(reasons)) == 4 and plain().graph == ""
    fine.train_step()
    padded.train_step()
    assert not graphs


def test_a_run_says_whether_it_is_recorded(
    tmp_path: Path, graphs: list[Graph], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(session, "detect", lambda *choice: RECORDED)
    for name, said in (("rope", "one CUDA graph"), ("rand-fire", "no CUDA graph (rows are padded")):
        run(tmp_path, small(steps=2), name)
        assert said in capsys.readouterr().err
    assert len(graphs) == 1


@pytest.fixture
def fresh() -> Iterator[None]:
    counters.clear()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("name", ["rope", "tape", "fire", "rand-rope"])
def test_what_is_recorded_is_compiled_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty batches of one shape need the graphs of the first, of the last block and others."""
    monkeypatch.setattr(Eager, "packs", True)
    monkeypatch.setattr(compiling, "CPU_OPTIONS", {"backend": "aot_eager"})
    compiled = Hardware("cpu", torch.float32, compiled=True)
    one = trainer(small(num_layers=4, batch_size=24), name, hardware=compiled)
    expected = trainer(one.config, name)
    made, shapes = [], set()
    for step in range(20):
        problems, keys = one.batches.problems(step)
        (rows,) = one.groups(problems, keys)
        answers = len(rows.answers)
        batch = PackedBatch.of(rows, answers, one.batches.most_answers, "cpu")
        results = packed_gradient(one.runner, batch)
        made.append(counters["stats"]["unique_graphs"])
        shapes.add(batch.shape)
        if step % 10 == 9:
            loss = expected.accumulate_gradient(problems, keys, answers)
            grads = [p.grad for p in expected.decoder.parameters() if p.grad is not None]
            assert distance(results, [loss, *grads]) < 1e-5
    assert len(shapes) == 1 and len(set(made)) == 1 and made[0] <= 3
    assert not counters["graph_break"]
