"""Jobs: planned from runs, done by their files, and run in order, once, whatever fails."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tape_arith.arith.data import write_dataset
from tape_arith.arith.runs.options import Compute, TrainOptions
from tape_arith.arith.runs.request import Request
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.sweeps import run_jobs as module
from tape_arith.arith.sweeps.engines import Engine
from tape_arith.arith.sweeps.engines.local import InProcess
from tape_arith.arith.sweeps.jobs import Job, JobEnd, done_jobs, plan
from tape_arith.arith.sweeps.run_jobs import run_jobs
from tape_arith.arith.sweeps.sweep import load_sweep
from tests.helpers.documents import edit_text
from tests.helpers.sweeps import MarkedJob, marked_jobs, sweep_file
from tests.helpers.tiny_runs import contents, done

OUT = Path("runs")
TRAIN_ROPE, SCORE_ROPE = "train/mini/rope/seed-0", "score/mini/rope/seed-0/grid"
TRAIN_FIRE = "train/mini/fire/seed-0"


def tiny_runs(encodings: str) -> list[Request]:
    """The runs of a sweep of tiny runs, among those of the preset."""
    return [replace(run, root=OUT) for run in load_sweep(sweep_file(encodings)).requests(OUT)]


def test_a_job_s_command_line_makes_its_run(here: Path) -> None:
    options = TrainOptions(compute=Compute("eager"), on_nonfinite="skip")
    jobs = plan(tiny_runs("tape:width=8+yarn"), options, OUT, data=Path("data"))
    assert [job.kind for job in jobs] == ["generate", "train", "score"]
    assert not done_jobs(jobs)
    for job in jobs:
        done(*job.argv)
        assert job.kind == "generate" or job.done(), job.id
    assert len(done_jobs(jobs)) == len(jobs)
    record = jobs[1].request.run.record()
    assert record.config == jobs[1].request.config and record.data is not None
    assert record.on_nonfinite == "skip"


def test_a_time_limit_ends_generating_too(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(write_dataset, "PIECE", 10)
    generate, *_ = jobs = plan(tiny_runs("rope"), TrainOptions(), OUT, data=Path("data"))
    stopper = Stopper(1e-9)
    assert not generate.perform(stopper)
    assert not generate.done() and contents(here).keys() == {"mine.toml"}
    said = capsys.readouterr().err
    assert "a part of them is not kept: raise it, or run `tape-arith generate --preset" in said
    assert run_jobs(jobs, InProcess(stopper), stopper).left and stopper.exit_code == 3
    assert generate.perform(Stopper()) and generate.done()


def test_done_jobs_are_read_from_the_files(comparison: Path) -> None:
    train, score = jobs = plan(tiny_runs("rope"), TrainOptions(), OUT)
    assert score.done() and train.done()
    # What is scored needs its dataset no more.
    assert len(done_jobs(plan(tiny_runs("rope"), TrainOptions(), OUT, data=Path("gone")))) == 3
    # Carried away without its weights it is as done as before.
    for file in (score.folder / "weights").iterdir():
        file.unlink()
    assert score.done() and train.done()
    # A grid of another run, budget or way of scoring in its place does not count.
    grid = score.folder / "grid.json"
    text = grid.read_text()
    for old, new in (
        ('"rope"', '"fire"'),
        ('"seed": 0', '"seed": 1'),
        ('"steps": 4', '"steps": 5'),
        ('"extrapolation": null', '"extrapolation": "yarn"'),
    ):
        grid.write_text(text)
        edit_text(grid, old, new)
        assert not score.done(), (old, new)
    grid.write_text(text[:50])
    assert not score.done()
    grid.write_text(text)
    edit_text(score.folder / "run.json", '"learning_rate": 0.001', '"learning_rate": 0.1')
    assert not score.done() and done_jobs(jobs) == set()


class FakeEngine(Engine):
    """An engine with any number of slots: one job ends each wait, with the codes it is given."""

    def __init__(self, slots: int, codes: dict[str, list[int]] | None = None) -> None:
        self.slots, self.codes = slots, codes or {}
        self.running: list[Job] = []
        self.submitted: list[str] = []
        self.most = self.stops = 0
        self.leaves_files = True
        self.started: Callable[[], None] = lambda: None
        self.meanwhile: Callable[[], None] = lambda: None

    @property
    def free(self) -> int:
        return self.slots - len(self.running)

    def submit(self, job: Job) -> None:
        folders = {other.folder for other in self.running}
        assert job.folder not in folders, "two jobs on one folder"
        self.running.append(job)
        self.submitted.append(job.id)
        self.most = max(self.most, len(self.running))
        self.started()

    def wait(self, seconds: float) -> list[JobEnd]:
        self.meanwhile()
        if not self.running:
            return []
        job = self.running.pop(0)
        code = self.codes[job.id].pop(0) if self.codes.get(job.id) else 0
        if code == 0 and self.leaves_files:
            assert isinstance(job, MarkedJob)
            job.finish()
        return [JobEnd(job, code, f"said {code}")]

    def stop(self) -> None:
        self.stops += 1


@pytest.fixture(autouse=True)
def quick(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BEFORE_AGAIN", 0.02)


@pytest.mark.parametrize("slots", [1, 3])
def test_every_job_runs_once_after_those_it_depends_on(slots: int) -> None:
    jobs, engine = marked_jobs("rope+yarn", "rope", "fire", "nope"), FakeEngine(slots)
    outcome = run_jobs(jobs, engine, Stopper())
    assert sorted(engine.submitted) == sorted(job.id for job in jobs)
    for job in jobs:
        position = engine.submitted.index(job.id)
        assert all(engine.submitted.index(key) < position for key in job.depends)
    assert engine.most == slots and outcome.exit_code == 0 and not outcome.left
    if slots == 1:
        assert engine.submitted == [job.id for job in jobs]
    again = FakeEngine(slots)
    assert run_jobs(jobs, again, Stopper()).exit_code == 0 and again.submitted == []


def test_a_failure_stops_only_its_dependents() -> None:
    jobs = marked_jobs("rope", "fire", "nope")
    outcome = run_jobs(jobs, FakeEngine(2, {TRAIN_ROPE: [1]}), Stopper())
    (failed,) = outcome.failed
    assert (failed.job.id, failed.reason) == (TRAIN_ROPE, "said 1")
    assert outcome.exit_code == 1 and not outcome.left
    engine = FakeEngine(2)
    assert run_jobs(jobs, engine, Stopper()).exit_code == 0
    assert engine.submitted == [TRAIN_ROPE, SCORE_ROPE]  # the next call does what is left


@pytest.mark.parametrize(("fire", "code"), [(2, 2), (1, 1)])
def test_usage_errors_alone_give_exit_code_2(fire: int, code: int) -> None:
    engine = FakeEngine(1, {TRAIN_ROPE: [2], TRAIN_FIRE: [fire]})
    assert run_jobs(marked_jobs("rope", "fire"), engine, Stopper()).exit_code == code


def test_an_exit_code_alone_makes_nothing_done() -> None:
    engine = FakeEngine(1)
    engine.leaves_files = False
    outcome = run_jobs(marked_jobs("rope"), engine, Stopper())
    assert outcome.exit_code == 1 and "not there" in outcome.failed[0].reason


def test_a_preempted_job_runs_again(capsys: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine(1, {TRAIN_ROPE: [75, 75]})
    assert run_jobs(marked_jobs("rope", "fire"), engine, Stopper()).exit_code == 0
    assert engine.submitted.count(TRAIN_ROPE) == 3
    assert engine.submitted[1] == TRAIN_FIRE  # others go on meanwhile
    assert f"{TRAIN_ROPE}: said" in capsys.readouterr().err


def test_a_job_that_another_process_did_meanwhile_does_not_start() -> None:
    jobs, engine = marked_jobs("rope", "fire"), FakeEngine(1)
    engine.meanwhile = jobs[2].finish
    assert run_jobs(jobs, engine, Stopper()).exit_code == 0
    assert TRAIN_FIRE not in engine.submitted and jobs[3].id in engine.submitted


def test_the_time_limit_stops_running_jobs_and_leaves_the_rest() -> None:
    jobs, engine, stopper = marked_jobs("rope"), FakeEngine(1, {TRAIN_ROPE: [75]}), Stopper(1e6)
    engine.started = lambda: setattr(stopper, "deadline", 0.0)  # the time is up
    outcome = run_jobs(jobs, engine, stopper)
    assert engine.submitted == [TRAIN_ROPE] and engine.stops == 1
    assert outcome.left and outcome.exit_code == stopper.exit_code == 3 and not outcome.failed
    late = FakeEngine(1)
    assert run_jobs(jobs, late, Stopper(1e-9)).exit_code == 3
    assert late.submitted == [] and late.stops == 1


@pytest.mark.parametrize("code", [75, 130, -signal.SIGTERM, 3, 1])
def test_a_signal_stops_running_jobs_and_starts_no_other(code: int) -> None:
    stopper, engine = Stopper(), FakeEngine(2, {TRAIN_ROPE: [code]})
    engine.started = lambda: setattr(stopper, "signal", 15)
    outcome = run_jobs(marked_jobs("rope", "fire"), engine, stopper)
    assert engine.submitted == [TRAIN_ROPE] and engine.stops == 1
    assert outcome.left and stopper.exit_code == 75
    assert bool(outcome.failed) == (code == 1)  # a failure while stopping is one


@pytest.mark.parametrize("error", [OSError(28, "No space left"), RuntimeError("No space left")])
def test_in_this_process_an_error_ends_no_other_job(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def perform(job: Job, stopper: Stopper) -> bool:
        if "rope" in job.id:
            raise error
        assert isinstance(job, MarkedJob)
        job.finish()
        return True

    monkeypatch.setattr(MarkedJob, "perform", perform)
    jobs = marked_jobs("rope", "fire")
    outcome = run_jobs(jobs, InProcess(Stopper()), Stopper())
    assert "No space" in outcome.failed[0].reason and outcome.exit_code == 1
    assert [job.id for job in jobs if job.done()] == [job.id for job in jobs[2:]]
    # For an error of ours, whoever reports it needs the traceback.
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, RuntimeError)
