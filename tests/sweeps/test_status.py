"""The progress of sweeps and runs, read from files alone."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.lock import lock_folder
from tape_arith.arith.runs.run import Run
from tape_arith.arith.sweeps.engines.worker import JobState, read_state, state_file, write_state
from tape_arith.arith.sweeps.jobs import log_file
from tests.helpers.sweeps import sweep_file
from tests.helpers.tiny_runs import call, done, untouched

FOLDER, ROPE = Path("runs/sweeps/mine"), Path("runs/mine/mini/rope/seed-0")
TRAIN, SCORE, YARN = (
    f"{kind}/mine/mini/rope/seed-0{grid}"
    for kind, grid in (("train", ""), ("score", "/grid"), ("score", "/grid+yarn"))
)


def plan_sweep(names: str, **changed: Any) -> None:
    """Leave what a sweep leaves when it starts."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    Path(sweep_file(names, **changed)).rename(FOLDER / "mine.toml")


def note_failure(job: str, reason: str) -> None:
    write_state(log_file(FOLDER, job), JobState(state="failed", code=1, reason=reason))


@pytest.fixture
def planned(comparison: Path) -> Path:
    """A sweep of rope and rope+yarn of one seed, of which all jobs but yarn are done."""
    Path("runs/mine").mkdir()
    Path("runs/mini").rename("runs/mine/mini")
    plan_sweep("rope,rope+yarn")
    return comparison


def states(*arguments: str) -> dict[str, dict[str, Any]]:
    content = json.loads(done("status", *(arguments or ("mine",)), "--json").out)
    assert content["schema"] == 1
    return {job["id"]: job for job in content["jobs"]}


def test_jobs_are_done_wait_and_run(planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with untouched(planned):
        rows = states()
    assert {key: job["state"] for key, job in rows.items()} == {
        TRAIN: "trained",
        SCORE: "scored",
        YARN: "waiting",
    }
    assert (rows[TRAIN]["step"], rows[TRAIN]["steps"]) == (4, 4) and rows[TRAIN]["loss"] > 0
    with lock_folder(ROPE, "score grid+yarn.json"):
        assert states()[YARN]["state"] == "running" and states()[TRAIN]["state"] == "trained"
    looks: list[float] = []

    def score_meanwhile(seconds: float) -> None:
        looks.append(seconds)
        call("score", ROPE, "--with", "yarn")

    monkeypatch.setattr("tape_arith.arith.commands.status.time.sleep", score_meanwhile)
    assert "0 waiting" in done("status", "mine", "--watch").out  # it ends when all is done
    assert len(looks) == 1
    Path("mine.toml").touch()
    assert done("status", "mine.toml").out == done("status", "mine").out


@pytest.mark.usefixtures("planned")
def test_a_training_on_its_way() -> None:
    folder = Run(ROPE)
    for grid in ROPE.glob("grid*.json"):
        grid.unlink()
    folder.final.rename(folder.latest)
    (last,) = folder.metrics()
    lines = [
        {**last, "step": step, "loss": loss, "seconds": seconds}
        for step, loss, seconds in ((1, 3.0, 2.0), (2, 2.5, 5.0))
    ]
    folder.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = states()[TRAIN]
    assert (row["state"], row["step"], row["loss"]) == ("waiting", 2, 2.5)
    assert row["seconds_left"] == 6.0  # two steps of three seconds
    with lock_folder(ROPE):
        assert {"running", "2.5000", "0:00:06"} <= set(done("status", "mine").out.split())
        assert states("runs/mine")["mini/rope/seed-0"]["state"] == "running"


@pytest.mark.usefixtures("planned")
def test_failures_of_this_call_of_the_sweep_are_shown() -> None:
    note_failure(YARN, "no space")
    log = log_file(FOLDER, YARN)
    assert (states()[YARN]["state"], states()[YARN]["reason"]) == ("failed", "no space")
    log.parent.mkdir()
    log.write_text("$ tape-arith score\n")
    assert states()[YARN]["log"] == str(log)
    # The failure and the log of an earlier call are not shown.
    earlier = time.time() - 99
    os.utime(log, (earlier, earlier))
    stopped = call("sweep", FOLDER / "mine.toml", "--time-limit", "0.000001s")
    assert stopped.code == 3, stopped.err
    assert (states()[YARN]["state"], states()[YARN]["log"]) == ("waiting", None)
    log.touch()
    done("score", ROPE, "--with", "yarn")
    assert (states()[YARN]["state"], states()[YARN]["log"]) == ("scored", str(log))


def test_a_folder_of_runs(comparison: Path) -> None:
    assert "6 scored," in done("status").out
    Path("runs/mini/fire/seed-0/run.json").write_text("{")
    row = states("runs")["mini/fire/seed-0"]
    assert row["state"] == "failed" and "run.json" in row["reason"]


def test_a_job_after_a_failed_one_is_not_watched(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_sweep("rope")
    note_failure(TRAIN, "another budget")
    assert states()[SCORE]["reason"] == f"after {TRAIN} failed"
    looks: list[float] = []
    monkeypatch.setattr("tape_arith.arith.commands.status.time.sleep", looks.append)
    assert "1 failed" in done("status", "mine", "--watch").out and not looks


@pytest.mark.usefixtures("planned")
def test_a_remote_engine_names_its_node() -> None:
    log = log_file(FOLDER, YARN)
    assert "where" not in done("status", "mine").out
    for state, words in (("queued", "slurm: queued"), ("running", "slurm: running on n1")):
        write_state(log, JobState("slurm", state=state, host="n1"))  # type: ignore[arg-type]  # str
        assert (states()[YARN]["where"], states()[TRAIN]["where"]) == (words, None)
        assert words in done("status", "mine").out
    write_state(log, JobState("slurm", state="ended"))
    assert states()[YARN]["where"] is None
    for text in ("", "[]", '{"engine": 1, "token": "t"}', '{"engine": "a", "state": "odd"}'):
        state_file(log).write_text(text)
        assert read_state(log) is None and states()[YARN]["where"] is None


@pytest.mark.usefixtures("planned")
def test_it_needs_no_torch() -> None:
    code = (
        "import sys; from tape_arith import cli; sys.argv = ['tape-arith', 'status', 'mine']\n"
        "try: cli.main()\nexcept SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
