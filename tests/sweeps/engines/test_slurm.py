"""Slurm, by commands that do as they are told: jobs sent, found again, lost and stopped."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.sweeps.engines import remote_engine
from tape_arith.arith.sweeps.engines import slurm as engine
from tape_arith.arith.sweeps.engines.slurm import Slurm
from tape_arith.arith.sweeps.engines.worker import read_state, write_state
from tape_arith.arith.sweeps.jobs import Job, log_file
from tape_arith.arith.sweeps.run_jobs import run_jobs
from tests.helpers.sweeps import marked_jobs, sweep_file
from tests.helpers.tiny_runs import done

FOLDER = Path("runs/sweeps/mine")


class FakeSlurm:
    """A queue of tokens, and every call."""

    def __init__(self) -> None:
        self.queue: set[str] = set()
        self.calls: list[tuple[str, ...]] = []
        self.script = ""
        self.answers = True

    def __call__(self, *words: str, script: str = "") -> "subprocess.CompletedProcess[str]":
        self.calls.append(words)
        out = "\n".join(self.queue) if words[0] == "squeue" else ""
        if words[0] == "sbatch":
            options = dict(word.split("=", 1) for word in words if "=" in word)
            last = int(options["--array"].partition("%")[0].partition("-")[2])
            self.queue |= {f"{options['--job-name']}_{number}" for number in range(last + 1)}
            self.script = script
            assert "exec" in script and "scontrol requeue" in script
        return subprocess.CompletedProcess(words, 0 if self.answers else 1, out, "no route")

    def calls_of(self, command: str) -> list[tuple[str, ...]]:
        return [words for words in self.calls if words[0] == command]


@pytest.fixture
def fake(here: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    queue = FakeSlurm()
    monkeypatch.setattr(engine, "_call", queue)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(engine, "SECONDS_BETWEEN_LOOKS", 0.0)
    return queue


def submitted(jobs: Sequence[Job], slots: int | None = None, **options: Any) -> Slurm:
    """An engine that has sent these jobs."""
    slurm = Slurm(slots, FOLDER, **options)
    for job in jobs:
        slurm.submit(job)
    assert slurm.wait(0) == []
    return slurm


def change_state(job: Job, **changes: Any) -> None:
    """What the node writes."""
    log = log_file(FOLDER, job.id)
    job_state = read_state(log)
    assert job_state is not None
    write_state(log, replace(job_state, **changes))


def test_all_ready_jobs_are_one_array(fake: FakeSlurm) -> None:
    jobs = marked_jobs("rope", "fire", "nope")[::2]
    slurm = submitted(jobs, partition="gpu", gpus=1, time="4:00:00", throttle=2)
    assert slurm.free == engine._LARGEST_ARRAY - 3
    (sent,) = fake.calls_of("sbatch")
    assert {"--partition=gpu", "--gpus=1", "--time=4:00:00", "--array=0-2%2"} <= set(sent)
    assert {"--requeue", "--signal=B:USR2@60", "--cpus-per-task=1"} <= set(sent)
    assert not any(word.startswith(("--account", "--mem")) for word in sent)
    (file,) = (FOLDER / "slurm").glob("*.txt")
    states = [read_state(Path(log)) for log in file.read_text().splitlines()]
    assert [list(state.argv) for state in states if state] == [job.argv for job in jobs]
    change_state(jobs[1], state="ended", reason="said 0")
    (end,) = slurm.wait(0)
    assert (end.job, end.code, end.reason) == (jobs[1], 0, "said 0")


def test_a_value_may_hold_colons(fake: FakeSlurm) -> None:
    slurm = remote_engine("slurm:time=1-02:00:00:gpus=1", None, FOLDER)
    assert isinstance(slurm, Slurm) and {"--time=1-02:00:00", "--gpus=1"} <= set(slurm.options)


def test_lines_before_a_job_and_generic_resources(fake: FakeSlurm) -> None:
    text = "slurm:setup=module load cuda; export A=b:gres=gpu:h100:2"
    slurm = remote_engine(text, None, FOLDER)
    assert isinstance(slurm, Slurm)
    slurm.submit(marked_jobs("rope")[0])
    assert slurm.wait(0) == [] and "--gres=gpu:h100:2" in fake.calls_of("sbatch")[0]
    first, setup, run = fake.script.splitlines()[:3]
    assert (first, setup) == ("#!/bin/bash", "module load cuda; export A=b")
    assert run.startswith("exec ")


def test_a_dry_run_shows_what_would_be_sent_without_slurm(here: Path) -> None:
    sweep = ("sweep", sweep_file("rope,fire"), "--dry-run")
    engine = ("--engine", "slurm:partition=gpu:setup=source env.sh:throttle=1")
    shown = done(*sweep, *engine).out
    (line,) = (line for line in shown.splitlines() if line.startswith("sbatch "))
    assert "--partition=gpu" in line and "--array=0-1%1" in line and line.endswith("<<'SCRIPT'")
    script = shown[shown.index("#!/bin/bash") : shown.rindex("SCRIPT")]
    assert "source env.sh\n" in script and "slurm/tape-arith-ARRAY.txt" in script
    assert "# ARRAY stands for a name" in shown
    assert shown.splitlines()[-1] == (
        "# 2 runs are 4 jobs, trainings and scorings: this array has the 2 that can start now "
        "(train), and further arrays follow as these end."
    )
    assert json.loads(done(*sweep, *engine, "--json").out)["batch"].startswith("sbatch ")
    assert not (here / "runs").exists() and "sbatch" not in done(*sweep).out


def test_without_slurm_nothing_is_sent(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match=r"no `sbatch` here: .*--dry-run shows"):
        Slurm(None, FOLDER).submit(marked_jobs("rope")[0])
    assert not FOLDER.exists()


def test_jobs_that_are_left_to_slurm(fake: FakeSlurm) -> None:
    jobs = marked_jobs("rope", "fire")
    outcome = run_jobs(jobs, Slurm(None, FOLDER, detach=True), Stopper())
    assert outcome.left and outcome.exit_code == 3 and outcome.failed == []
    (sent,) = fake.calls_of("sbatch")
    assert "--array=0-1" in sent and fake.calls_of("scancel") == []  # scores wait for trainings
    assert len(fake.queue) == 2
    slurm = Slurm(None, FOLDER)
    slurm.submit(jobs[0])
    assert len(slurm.jobs) == 1 and len(fake.calls_of("sbatch")) == 1


def test_jobs_in_the_queue_are_found_again(fake: FakeSlurm) -> None:
    jobs = marked_jobs("rope", "fire")[::2]
    assert submitted(jobs, slots=2).free == 0
    change_state(jobs[1], state="ended", code=1)
    submitted(jobs, slots=2)
    assert len(fake.calls_of("sbatch")) == 2  # the one that ended is sent once more
    assert "--array=0-0" in fake.calls_of("sbatch")[1]


def test_a_job_that_leaves_without_a_word_failed(fake: FakeSlurm) -> None:
    (job, _) = marked_jobs("rope")
    slurm = submitted([job])
    fake.queue.clear()
    assert slurm.wait(0) == []  # the last write of its node may not be seen yet
    slurm.patience = 0.0
    (end,) = slurm.wait(0)
    assert end.code == 1 and "a word" in end.reason
    assert str(read_state(log_file(FOLDER, job.id))) == "slurm: stopped"
    assert submitted([job]).free == engine._LARGEST_ARRAY - 1  # sent again by the next call


def test_a_requeued_job_is_not_lost(fake: FakeSlurm) -> None:
    (job, _) = marked_jobs("rope")
    slurm = submitted([job])
    change_state(job, state="stopped", code=75)  # preempted: Slurm has it
    assert slurm.wait(0) == []
    change_state(job, state="ended", token="tape-arith-old_0")  # of an earlier submission
    assert slurm.wait(0) == []


def test_stopping_cancels_waiting_jobs_and_signals_running_ones(fake: FakeSlurm) -> None:
    jobs = marked_jobs("rope", "fire", "nope")[::2]
    slurm = submitted(jobs[:2])
    slurm.submit(jobs[2])
    slurm.stop()
    pending, running = fake.calls_of("scancel")
    assert "--state=PENDING" in pending and {"--batch", "--signal=TERM"} <= set(running)
    fake.queue.clear()
    assert {end.job.id: end.code for end in slurm.wait(0)} == {job.id: 75 for job in jobs}
    assert len(fake.calls_of("sbatch")) == 1 and slurm.jobs == {}


def test_slurm_may_not_answer_for_a_while(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    (rope, _, fire, _) = marked_jobs("rope", "fire")
    slurm = submitted([rope])
    fake.answers, slurm.patience = False, 0.0
    assert slurm.wait(0) == [] and list(slurm.jobs.values()) == [rope]
    slurm.submit(fire)
    with pytest.raises(Failure, match=r"sbatch .*route"):
        slurm.wait(0)
    assert read_state(log_file(FOLDER, fire.id)) is None
    monkeypatch.setattr(engine, "LONGEST_SILENCE", 0.0)
    slurm.unsent.clear()
    with pytest.raises(Failure, match="squeue"):
        slurm.wait(0)
