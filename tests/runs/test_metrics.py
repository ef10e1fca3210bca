"""Lines of metrics: the curves in them, and trackers, which get every line and change nothing."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor

from tape_arith.arith.errors import Corrupt
from tape_arith.arith.runs import metrics
from tape_arith.arith.runs.metrics import last_evaluations, tracked
from tape_arith.arith.runs.run import Run
from tape_arith.arith.training.trainer import Trainer
from tests.helpers.documents import METRICS
from tests.helpers.small_training import small, trainer, untimed
from tests.helpers.tiny_runs import done, refused, settings

STEPS = [2, 4, 6, 8]
RECORD: Any = None  # a fake reads no record


def line(step: int, inside: float, outside: float | None) -> dict[str, object]:
    grid = {"in_distribution": inside, "out_of_distribution": outside, "by_length": {"1": inside}}
    return {"step": step, "loss": 1.0, "exact_match": inside, "small_grid": grid}


def test_the_last_five_states() -> None:
    lines: list[dict[str, object]] = []
    for k in range(1, 10):
        lines += [{"step": 100 * k - 50, "loss": 2.0, "exact_match": None}]
        lines += [line(100 * k, 0.9 + 0.01 * (k % 3), 0.1 * (k % 4))]
    last = last_evaluations(lines)
    assert [step for step, _ in last] == [500, 600, 700, 800, 900]
    assert [value for _, value in last] == pytest.approx([0.1, 0.2, 0.3, 0.0, 0.1])
    assert [step for step, _ in last_evaluations(lines[:6])] == [100, 200, 300]
    assert last_evaluations(lines[:2]) == last_evaluations([]) == []
    nothing_longer = [line(100, 0.5, None), line(200, 0.7, None)]
    assert last_evaluations(nothing_longer) == []


@pytest.fixture
def every_other_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of metrics every other step."""
    monkeypatch.setattr(Trainer, "log_every", 2)
    monkeypatch.setattr(Trainer, "evaluate_every", 4)


def train(out: str, *options: str) -> tuple[Run, str]:
    """Train for eight steps; return the run and its messages."""
    result = done("train", "--pe", "rope", "--out", out, "--no-score", *settings(steps=8), *options)
    return Run(Path(result.out.strip())), result.err


class Fake:
    """A tracker that keeps what it gets and fails in one of its calls."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.steps, self.closed = fails, list[int](), 0

    def open(self, folder: Path, record: object, step: int) -> "Fake":
        self._may_fail("opened")
        return self

    def log(self, step: int, numbers: dict[str, float]) -> None:
        if step > 4:
            self._may_fail("called")
        assert "loss" in numbers and "step" not in numbers
        self.steps.append(step)

    def close(self) -> None:
        self.closed += 1
        self._may_fail("closed")

    def _may_fail(self, call: str) -> None:
        if self.fails == call:
            raise OSError(f"no route\nto host, {call}")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, every_other_step: None) -> Callable[[Fake], Fake]:
    def use(fake: Fake) -> Fake:
        monkeypatch.setitem(metrics._TRACKERS, "tensorboard", fake.open)
        monkeypatch.setitem(sys.modules, "tensorboard", ModuleType("tensorboard"))
        return fake

    return use


def test_curves_and_trackers_change_no_run(here: Path, use: Callable[[Fake], Fake]) -> None:
    fake, options = use(Fake("called")), ("--pe", "tape", "--no-score", *settings(steps=8))
    messages = done("train", *options, "--track", "tensorboard").err
    done("train", *options, "--no-curves", "--out", "blind")
    watched, blind = (Run(Path(root, "mini/tape/seed-0")) for root in ("runs", "blind"))
    assert watched.final.read_bytes() == blind.final.read_bytes()
    assert replace(watched.record(), machines=(), seconds={}) == replace(
        blind.record(), machines=(), seconds={}
    )
    lines = watched.metrics()
    assert fake.steps == [2, 4] and fake.closed == 1 and "host, called)" in messages
    assert list(lines[-1]["small_grid"]["by_length"]) == ["1", "2", "3"]
    assert lines[-1]["small_grid"]["out_of_distribution"] is not None
    assert lines[-1]["state"]["norm"][0] == pytest.approx(2**0.5)
    without_grid = [{key: line[key] for key in line if key != "small_grid"} for line in lines]
    assert untimed(without_grid) == untimed(blind.metrics())


@pytest.mark.parametrize(
    ("fails", "steps", "closed"),
    [("", STEPS, 1), ("opened", [], 0), ("called", [2, 4], 1), ("closed", STEPS, 1)],
)
def test_a_tracker_gets_every_line_until_it_fails(
    fails: str,
    steps: list[int],
    closed: int,
    use: Callable[[Fake], Fake],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = use(Fake(fails))
    with tracked(["tensorboard"], Path(), RECORD, 0) as log:
        for step in STEPS:
            log({**METRICS, "step": step})
    assert fake.steps == steps and fake.closed == closed
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == bool(fails) and all(f"host, {fails})" in note for note in notes)


def test_a_run_that_fails_closes_its_trackers(use: Callable[[Fake], Fake]) -> None:
    fake = use(Fake())
    with pytest.raises(ZeroDivisionError), tracked(["tensorboard"], Path(), RECORD, 0):
        raise ZeroDivisionError
    assert fake.closed == 1


def test_trackers_that_are_not_there_are_refused_before_training(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["train", "--pe", "rope", *settings()]
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert "tape-arith[tracking]" in refused(*argv, "--track", "wandb")
    assert list(here.iterdir()) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs tensorboard")
def test_tensorboard_reads_what_was_written(here: Path, every_other_step: None) -> None:
    reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    run, messages = train("tracked", "--track", "tensorboard")
    assert "failed" not in messages
    events = reader.EventAccumulator(str(run.tracking / "tensorboard"))
    events.Reload()
    for key in ("loss", "learning_rate", "exact_match"):
        points = [(event.step, event.value) for event in events.Scalars(key)]
        expected = [(m["step"], pytest.approx(m[key])) for m in run.metrics() if m[key] is not None]
        assert points == expected
    assert [e.step for e in events.Scalars("small_grid/in_distribution")] == [4, 8]
    train("tracked", "--fresh")
    assert not run.tracking.exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb")
def test_wandb_keeps_it_offline(
    here: Path, every_other_step: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(here / "wandb-own"))
    run, messages = train("tracked", "--track", "wandb")
    assert "failed" not in messages, messages
    (file,) = run.tracking.glob("wandb/offline-run-*/*.wandb")
    # The layout of the file is wandb's own affair; numbers stand in it as JSON.
    content = file.read_bytes()
    for line in run.metrics():
        assert json.dumps(line["loss"]).encode() in content


def test_a_line_may_hold_a_number_more(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add_metrics({**METRICS, "step": 1, "embedding_norm": 2.5})
    assert run.metrics()[0]["embedding_norm"] == 2.5
    for value in ("much", [1.0], True):
        run.metrics_file.write_text(
            json.dumps({**METRICS, "step": 1, "embedding_norm": value}) + "\n"
        )
        with pytest.raises(Corrupt, match="embedding_norm"):
            run.metrics()


def test_a_line_has_the_mean_loss_of_its_steps() -> None:
    made = trainer(small(steps=8))
    made.log_every = 4
    losses: list[float] = []
    step = made.train_step

    def taken() -> tuple[Tensor, Tensor]:
        loss, norm = step()
        losses.append(float(loss))
        return loss, norm

    made.train_step = taken  # type: ignore[method-assign]
    lines = [line for line in (made.advance() for _ in range(8)) if line]
    means = [sum(losses[:4]) / 4, sum(losses[4:]) / 4]
    assert [line["loss"] for line in lines] == pytest.approx(means) and losses[3] != means[0]
