"""A job on a node: signals passed on, its state file, and when it is run again."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.stopping import _STOP_SIGNALS
from tape_arith.arith.sweeps.engines import worker
from tape_arith.arith.sweeps.engines.worker import JobState, Worker, main, read_state, write_state
from tape_arith.arith.sweeps.jobs import plan
from tape_arith.arith.sweeps.sweep import load_sweep
from tests.helpers.child_processes import wait_until
from tests.helpers.sweeps import kept, sweep_file
from tests.helpers.tiny_runs import contents, done
from tests.sweeps.engines.trainings import STEPS, freeze, has_pending, trainings

LOG = Path("sweep/logs/train.rope.log")
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
def stop(number, frame):
    print("saved after", signal.Signals(number).name, flush=True)
    sys.exit(75)
for number in (signal.SIGTERM, signal.SIGUSR2) if "listen" in sys.argv else ():
    signal.signal(number, stop)
if "silent" not in sys.argv:
    print("tape-arith:", *sys.argv[1:], os.environ["OMP_NUM_THREADS"], os.getcwd(), flush=True)
Path("begun").touch()
if "sleep" in sys.argv:
    time.sleep(60)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the command line's place; our own handlers are put back afterwards."""
    Path("job.py").write_text(SCRIPT)
    monkeypatch.setattr(worker, "COMMAND_LINE", (str(here / "job.py"),))
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setenv("NUMBER", "1")
    before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def queued(command: str, directory: str = "") -> Path:
    """Hand over a job; return its log."""
    job_state = JobState("slurm", "a_0", tuple(command.split()), 3, directory or str(Path.cwd()))
    write_state(LOG.absolute(), job_state)
    Path("logs.txt").write_text(f"\n{LOG.absolute()}\n")
    return LOG.absolute()


@contextmanager
def once_begun(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` in another thread as soon as the job has begun."""

    def wait_and_act() -> None:
        wait_until(Path("begun").exists)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    yield
    thread.join()


def state() -> tuple[str, int]:
    job_state = read_state(LOG)
    assert job_state is not None and job_state.token == "a_0"
    return job_state.state, job_state.code


@pytest.mark.usefixtures("script")
def test_a_job_on_a_node() -> None:
    for code in (0, 2):
        ended, words = Worker().perform(queued(f"{code} one"))
        assert (ended, words.split()) == (code, [str(code), "one", "3", str(Path.cwd())])
        assert state() == ("ended", code)
    code, reason = Worker().perform(queued("0", "nowhere"))  # a folder that the node does not see
    assert code == 1 and "n7:" in reason and "nowhere" in reason
    assert Worker().perform(Path("elsewhere/logs/a.log"))[0] == 1
    queued("75 locked")  # by another process: it is run again
    assert main(["logs.txt", "NUMBER", "touch", "requeued"]) == 75
    assert Path("requeued").exists()


@pytest.mark.usefixtures("script")
def test_a_job_that_is_killed_without_being_asked_failed() -> None:
    worker = Worker()
    with once_begun(
        lambda: os.kill(worker.process.pid, signal.SIGKILL) if worker.process else None
    ):
        assert worker.perform(queued("0 sleep"))[0] == -signal.SIGKILL
    assert state() == ("ended", -9)


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(("number", "requeued"), [(signal.SIGUSR2, True), (signal.SIGTERM, False)])
def test_a_signal_is_passed_on(number: signal.Signals, requeued: bool) -> None:
    queued("0 listen sleep")
    with once_begun(lambda: os.kill(os.getpid(), number)):
        assert main(["logs.txt", "NUMBER", "touch", "requeued"]) == 75
    assert f"after {number.name}" in LOG.read_text()
    assert Path("requeued").exists() == requeued
    assert state()[0] == ("queued" if requeued else "stopped")


@pytest.mark.usefixtures("script")
def test_a_job_that_is_stopped_before_it_handles_signals_lost_nothing() -> None:
    worker = Worker()
    with once_begun(lambda: worker.pass_on(signal.SIGUSR2)):
        assert worker.perform(queued("0 silent sleep"))[0] == 75
    assert worker.perform(queued("0 two"))[0] == 75 and "two" not in LOG.read_text()


@pytest.mark.usefixtures("script")
def test_a_job_that_is_killed_while_it_stops_says_so() -> None:
    worker = Worker()
    with once_begun(lambda: worker.pass_on(signal.SIGUSR2)):
        code, reason = worker.perform(queued("0 sleep"))
    assert code == 75 and "signal 12" in reason


@pytest.mark.usefixtures("script")
def test_a_log_that_cannot_be_read_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: Path) -> None:
        raise OSError("stale file handle")

    monkeypatch.setattr(worker, "open_file", unreadable)
    assert Worker().perform(queued("0"))[0] == 0


@pytest.mark.slow
def test_an_orphan_and_its_retry_never_share_a_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of a training dies, as with its node, and the training lives on: a retry finds the
    folder locked, until the orphan has saved and ended."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file = sweep_file("rope", steps=STEPS)
    done("sweep", file, "--out", "unbroken")
    (job, _) = plan(load_sweep(file).requests(Path("runs")), TrainOptions(), Path("runs"))
    log = queued(" ".join(job.argv))
    module = "tape_arith.arith.sweeps.engines.worker"
    command = [sys.executable, "-m", module, "logs.txt", "NUMBER", "touch", "requeued"]
    environment = {**os.environ, "NUMBER": "1"}
    with subprocess.Popen(command, env=environment) as first:
        orphan, _ = freeze(120)
        first.kill()
    assert has_pending(orphan, signal.SIGTERM)
    weights = contents(job.folder / "weights")
    retry = subprocess.run(command, env=environment)
    assert retry.returncode == 75 and Path("requeued").exists()
    assert f"is being written by process {orphan} on" in log.read_text()
    assert contents(job.folder / "weights") == weights
    os.kill(orphan, signal.SIGCONT)
    wait_until(lambda: not trainings())
    assert "stopped in good order" in log.read_text()
    assert subprocess.run(command, env=environment).returncode == 0
    assert "from step 1" in log.read_text()
    done("sweep", file)
    assert kept(Path("runs/mine")) == kept(Path("unbroken/mine")) != {}
