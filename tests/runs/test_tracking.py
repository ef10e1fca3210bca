"""Trackers: they get every line, and what fails in them changes nothing."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tape_arith.arith.runs import metrics
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.metrics import Line
from tape_arith.arith.runs.record import TrainOptions, load_preset
from tape_arith.arith.sweeps.jobs import plan
from tape_arith.arith.sweeps.sweep import Run
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.names.parse import parse
from tests.helpers.small_training import assert_same_bits, final_weights, untimed
from tests.helpers.tiny_runs import done, refused, settings

STEPS = list(range(2, 13, 2))


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of metrics every other step."""
    monkeypatch.setattr(Trainer, "log_every", 2)
    monkeypatch.setattr(Trainer, "evaluate_every", 6)


def trained(out: str, *track: str) -> tuple[RunFolder, str]:
    """A run of twelve steps, and what was said of it."""
    where = ["--out", out, "--no-score", *settings(steps=12)]
    result = done("train", "--pe", "rope", *where, *(("--track", *track) if track else ()))
    return RunFolder(Path(result.out.strip())), result.err


class Fake:
    """A tracker that keeps what it gets, and fails where it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.steps, self.closed = fails, list[int](), 0

    def opened(self, folder: Path, record: object, step: int) -> "Fake":
        self._may_fail("opened")
        return self

    def __call__(self, line: Line) -> None:
        if line["step"] > 4:
            self._may_fail("called")
        self.steps.append(line["step"])

    def close(self) -> None:
        self.closed += 1
        self._may_fail("closed")

    def _may_fail(self, what: str) -> None:
        if self.fails == what:
            raise OSError(f"no route\nto host, {what}")


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fake], Fake]:
    def use(fake: Fake) -> Fake:
        monkeypatch.setitem(metrics._TRACKERS, "tensorboard", fake.opened)
        monkeypatch.setitem(sys.modules, "tensorboard", ModuleType("tensorboard"))
        return fake

    return use


@pytest.mark.parametrize(
    ("fails", "steps", "closed"),
    [("", STEPS, 1), ("opened", [], 0), ("called", [2, 4], 1), ("closed", STEPS, 1)],
)
def test_a_tracker_changes_no_run(
    here: Path, using: Callable[[Fake], Fake], fails: str, steps: list[int], closed: int
) -> None:
    plain, _ = trained("plain")
    fake = using(Fake(fails))
    tracked, said = trained("tracked", "tensorboard")
    assert_same_bits(final_weights(tracked), final_weights(plain))
    assert untimed(tracked.metrics()) == untimed(plain.metrics())
    assert fake.steps == steps and fake.closed == closed
    notes = [line for line in said.splitlines() if "tensorboard" in line]
    told = (
        f"note: tensorboard failed, the run goes on without it (OSError: no route to host, {fails})"
    )
    assert notes == ([told] if fails else [])


def test_a_run_that_fails_closes_its_trackers(
    here: Path, using: Callable[[Fake], Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = using(Fake())
    monkeypatch.setattr(RunFolder, "add_metrics", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trained("out", "tensorboard")
    assert fake.closed == 1 and fake.steps == []


def test_many_runs_are_tracked_each(here: Path, using: Callable[[Fake], Fake]) -> None:
    fake = using(Fake())
    where = ["--out", "many", *settings(steps=12)]
    done("run", "--pe", "rope,nope", "--track", "tensorboard", *where)
    assert fake.steps == STEPS * 2 and fake.closed == 2
    made = [Run(parse("rope"), 0, "mini", load_preset("mini"), Path("runs"))]
    jobs = plan(made, TrainOptions(trackers=("tensorboard", "wandb")), Path("runs"))
    assert jobs[0].argv[-2:] == ["--track", "tensorboard,wandb"]
    assert not any("--track" in job.argv for job in jobs[1:])


def test_what_cannot_be_tracked_is_refused_before_training(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = ["train", "--pe", "rope", *settings()]
    assert "did you mean 'wandb'" in refused(*train, "--track", "wandbb")
    monkeypatch.setitem(sys.modules, "wandb", None)
    told = refused(*train, "--track", "wandb")
    assert told == "--track wandb needs wandb: pip install 'tape-arith[tracking]'"
    assert list(here.iterdir()) == []


def equal(content: list[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    return [(line["step"], line[key]) for line in content if line.get(key) is not None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs tensorboard")
def test_tensorboard_reads_what_was_written(here: Path) -> None:
    reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    plain, _ = trained("plain")
    run, said = trained("tracked", "tensorboard")
    assert "failed" not in said
    assert_same_bits(final_weights(run), final_weights(plain))
    events = reader.EventAccumulator(str(run.tracking / "tensorboard"))
    events.Reload()
    for key in ("loss", "learning_rate", "exact_match"):
        found = [(event.step, event.value) for event in events.Scalars(key)]
        assert found == [(s, pytest.approx(v)) for s, v in equal(run.metrics(), key)]
    assert [e.step for e in events.Scalars("small_grid/in_distribution")] == [6, 12]
    done("train", "--pe", "rope", "--out", "tracked", "--no-score", "--fresh", *settings(steps=12))
    assert not run.tracking.exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb")
def test_wandb_keeps_it_offline(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(here / "wandb-own"))
    plain, _ = trained("plain")
    run, said = trained("tracked", "wandb")
    assert "failed" not in said, said
    assert_same_bits(final_weights(run), final_weights(plain))
    (file,) = run.tracking.glob("wandb/offline-run-*/*.wandb")
    # What the file is made of is wandb's own affair; numbers stand in it as JSON.
    content = file.read_bytes()
    for _, loss in equal(run.metrics(), "loss"):
        assert json.dumps(loss).encode() in content
