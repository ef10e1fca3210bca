"""Jobs through engines: order, failures, preemption, limits; nothing done twice, nobody killed."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tape_arith.arith.runs import child_process as child
from tape_arith.arith.runs.presets import load_preset
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.sweeps import scheduler as conductor
from tape_arith.arith.sweeps.engines.engine import Ended
from tape_arith.arith.sweeps.engines.in_process import InProcess
from tape_arith.arith.sweeps.engines.local import Local
from tape_arith.arith.sweeps.jobs import How, Job, log_file, plan
from tape_arith.arith.sweeps.scheduler import Outcome, conduct
from tape_arith.arith.sweeps.sweep import Run
from tape_arith.models.names.parse import parse

Codes = dict[str, list[int]]


class Marked(Job):
    """A job that is done when a file says so, whatever it would be of a run."""

    def done(self) -> bool:
        return Path("marks", self.id.replace("/", "-")).exists()

    def mark(self) -> None:
        Path("marks").mkdir(exist_ok=True)
        Path("marks", self.id.replace("/", "-")).touch()


def made(*names: str) -> list[Marked]:
    config = load_preset("mini")
    runs = [Run(parse(name), 0, "mini", config, Path("runs")) for name in names]
    return [Marked(**vars(job)) for job in plan(runs, How(), Path("runs"))]


class Fake:
    """An engine with any number of slots, whose jobs end as they are told, one each wait."""

    def __init__(self, slots: int, codes: Codes | None = None, fail_to_mark: str = "") -> None:
        self.slots, self.codes, self.fail_to_mark = slots, codes or {}, fail_to_mark
        self.running: list[Job] = []
        self.submitted: list[str] = []
        self.limits: list[float | None] = []
        self.most = 0
        self.stops = 0

    @property
    def free(self) -> int:
        return self.slots - len(self.running)

    def submit(self, job: Job, seconds: float | None) -> None:
        others = {other.folder.path for other in self.running}
        assert job.folder.path not in others, "two jobs on one folder"
        self.running.append(job)
        self.submitted.append(job.id)
        self.limits.append(seconds)
        self.most = max(self.most, len(self.running))

    def wait(self, seconds: float) -> list[Ended]:
        if not self.running:
            return []
        job = self.running.pop(0)
        code = self.codes[job.id].pop(0) if self.codes.get(job.id) else 0
        if code == 0 and job.id != self.fail_to_mark:
            assert isinstance(job, Marked)
            job.mark()
        return [Ended(job, code, f"said {code}")]

    def stop(self) -> None:
        self.stops += 1


def conducted(jobs: Sequence[Job], engine: Fake, stopper: Stopper | None = None) -> Outcome:
    return conduct(jobs, engine, stopper or Stopper())


def ids(ends: list[Ended]) -> list[str]:
    return [end.job.id for end in ends]


@pytest.fixture(autouse=True)
def quick(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "SECONDS_BEFORE_AGAIN", 0.02)


@pytest.mark.parametrize("slots", [1, 3, 9])
def test_what_is_ready_runs_in_order_and_once(slots: int) -> None:
    jobs = made("rope+yarn", "rope", "fire")
    engine = Fake(slots)
    outcome = conducted(jobs, engine)
    assert sorted(engine.submitted) == sorted(job.id for job in jobs)
    for job in jobs:
        place = engine.submitted.index(job.id)
        assert all(engine.submitted.index(key) < place for key in job.depends)
    assert engine.most == min(slots, 2)
    assert outcome.exit_code == 0 and not outcome.left
    if slots == 1:
        assert engine.submitted == [job.id for job in jobs]
    again = Fake(slots)
    assert conducted(jobs, again).exit_code == 0 and again.submitted == []


def test_a_failure_stops_only_what_needs_it() -> None:
    jobs = made("rope", "fire", "nope")
    failing, after = "train/mini/rope/seed-0", "score/mini/rope/seed-0/grid"
    outcome = conducted(jobs, Fake(2, {failing: [1]}))
    assert ids(outcome.failed) == [failing] and outcome.failed[0].reason == "said 1"
    assert outcome.exit_code == 1 and not outcome.left
    done = set(ids(outcome.done))
    assert done == {job.id for job in jobs} - {failing, after}
    # The next call does only what is left.
    engine = Fake(2)
    assert conducted(jobs, engine).exit_code == 0
    assert engine.submitted == [failing, after]


def test_asked_for_wrongly_is_told_from_failed() -> None:
    jobs = made("rope", "fire")
    train = ["train/mini/rope/seed-0", "train/mini/fire/seed-0"]
    assert conducted(jobs, Fake(1, {key: [2] for key in train})).exit_code == 2
    assert conducted(jobs, Fake(1, {train[0]: [2], train[1]: [1]})).exit_code == 1


def test_an_exit_code_alone_makes_nothing_done() -> None:
    jobs = made("rope")
    outcome = conducted(jobs, Fake(1, fail_to_mark="train/mini/rope/seed-0"))
    assert outcome.exit_code == 1 and "its files are not there" in outcome.failed[0].reason


def test_what_was_preempted_is_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = made("rope", "fire")
    engine = Fake(1, {"train/mini/rope/seed-0": [75, 75]})
    assert conducted(jobs, engine).exit_code == 0
    assert engine.submitted.count("train/mini/rope/seed-0") == 3
    assert engine.submitted[1] == "train/mini/fire/seed-0"  # others go on meanwhile
    assert "train/mini/rope/seed-0: said 75" in capsys.readouterr().err


def test_what_another_process_did_meanwhile_is_left() -> None:
    jobs = made("rope", "fire")
    fire = jobs[2]

    class Meanwhile(Fake):
        def wait(self, seconds: float) -> list[Ended]:
            fire.mark()
            return super().wait(seconds)

    engine = Meanwhile(1)
    assert conducted(jobs, engine).exit_code == 0
    assert fire.id not in engine.submitted and jobs[3].id in engine.submitted


def test_the_time_limit_is_passed_on_and_leaves_the_rest() -> None:
    jobs, engine = made("rope", "fire"), Fake(1, {"score/mini/rope/seed-0/grid": [3]})
    outcome = conducted(jobs, engine, Stopper(1e6))
    assert all(limit is not None and 9e5 < limit <= 1e6 for limit in engine.limits)
    assert outcome.left and outcome.exit_code == 3 and not outcome.failed
    late = Fake(1)
    outcome = conducted(jobs, late, Stopper(1e-9))
    assert late.submitted == [] and late.stops == 1 and outcome.exit_code == 3


@pytest.mark.parametrize("code", [75, 130, -signal.SIGTERM, 3])
def test_a_wish_to_stop_is_passed_on_and_waited_for(code: int) -> None:
    jobs, stopper = made("rope", "fire"), Stopper()
    engine = Fake(2, {"train/mini/rope/seed-0": [code]})
    outcome = conduct(jobs, engine, stopper, started=lambda job: setattr(stopper, "signal", 15))
    # The first was under way: it is waited for, and nothing else starts.
    assert engine.submitted == ["train/mini/rope/seed-0"] and engine.stops == 1
    assert outcome.left and not outcome.failed and stopper.exit_code == 75


def test_another_failure_while_stopping_is_told() -> None:
    jobs, stopper = made("rope"), Stopper()
    engine = Fake(2, {"train/mini/rope/seed-0": [1]})
    outcome = conduct(jobs, engine, stopper, started=lambda job: setattr(stopper, "signal", 2))
    assert ids(outcome.failed) == ["train/mini/rope/seed-0"] and outcome.exit_code == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device"), "No space left"),
        (RuntimeError("No available kernel."), "RuntimeError: No available kernel."),
    ],
)
def test_in_this_process_an_error_ends_no_other_job(
    error: Exception, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def perform(job: Job) -> bool:
        if "rope" in job.id:
            raise error
        assert isinstance(job, Marked)
        job.mark()
        return True

    outcome = conduct(made("rope", "fire"), InProcess(perform), Stopper())
    assert told in outcome.failed[0].reason and outcome.exit_code == 1
    assert len(outcome.done) == 2
    # Where a fault is ours, whoever reports it needs all of it.
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, RuntimeError)


# Subprocesses, with a script in the command line's place

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
job = sys.argv[1:]
print("OMP", os.environ["OMP_NUM_THREADS"], "CUDA", os.environ.get("CUDA_VISIBLE_DEVICES"))
print(*job)
{body}
"""


@pytest.fixture
def script(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What every job does from now on."""

    def write(body: str) -> None:
        Path("job.py").write_text(SCRIPT.format(body=body))

    monkeypatch.setattr(child, "COMMAND_LINE", (str(here / "job.py"),))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    return write


def waited(engine: Local, count: int) -> list[Ended]:
    ended: list[Ended] = []
    deadline = time.monotonic() + 60
    while len(ended) < count:
        assert time.monotonic() < deadline
        ended += engine.wait(0.1)
    return ended


def test_each_slot_has_its_share(script: Callable[[str], None]) -> None:
    script("sys.exit('tape-arith: no luck' if 'fire' in job else 0)")
    jobs = made("rope", "fire", "nope", "alibi")[::2]
    engine = Local(4, Path("sweep"), ["5", "7"])
    for job in jobs:
        engine.submit(job, 12.0)
    assert engine.free == 0
    ended = {end.job.id: end for end in waited(engine, 4)}
    assert engine.free == 4
    assert {key: end.code for key, end in ended.items() if end.code} == {jobs[1].id: 1}
    assert ended[jobs[1].id].reason == "no luck"
    shares = []
    for job in jobs:
        log = log_file(Path("sweep"), job.id)
        assert ended[job.id].log == log
        asked, share, words = log.read_text().splitlines()[:3]
        assert asked.startswith("$ tape-arith train --pe") and words in asked
        assert words.endswith("--time-limit 12.000s")
        shares.append(share)
    assert shares == [f"OMP 2 CUDA {gpu}" for gpu in ("5", "7", "5", "7")]


def test_without_gpus_none_is_named(
    script: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    script("")
    engine = Local(3, Path("sweep"))
    engine.submit(made("rope")[0], None)
    (end,) = waited(engine, 1)
    assert end.log is not None and "OMP 2 CUDA None" in end.log.read_text()
    assert "--time-limit" not in end.log.read_text()


LISTENS = """
def stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it as it stands
    Path("saving").touch()
    time.sleep(0.5)
    print("saved")
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, lambda *_: sys.exit(99))
print("listening", flush=True)
Path("child").write_text(str(os.getpid()))
time.sleep(60)
"""


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_children_are_asked_once_and_save(script: Callable[[str], None]) -> None:
    script(LISTENS)
    engine = Local(1, Path("sweep"))
    engine.submit(made("rope")[0], None)
    until(lambda: Path("child").exists())
    engine.stop()
    until(lambda: Path("saving").exists())
    engine.stop()
    (end,) = waited(engine, 1)
    assert (end.code, end.reason) == (75, "saved")


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_children_do_not_outlive_us(script: Callable[[str], None]) -> None:
    script(LISTENS)
    parent = os.fork()
    if parent == 0:
        Local(1, Path("sweep")).submit(made("rope")[0], None)
        time.sleep(60)
        os._exit(0)
    until(lambda: Path("child").exists())
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    child = int(Path("child").read_text())
    until(lambda: not Path(f"/proc/{child}").exists())
    assert log_file(Path("sweep"), made("rope")[0].id).read_text().endswith("saved\n")


def test_a_log_is_continued(script: Callable[[str], None]) -> None:
    script("")
    engine, job = Local(1, Path("sweep")), made("rope")[0]
    for _ in range(2):
        engine.submit(job, None)
        (end,) = waited(engine, 1)
    assert end.log is not None and end.log.read_text().count("$ tape-arith train") == 2
    assert replace(end.job) == job
