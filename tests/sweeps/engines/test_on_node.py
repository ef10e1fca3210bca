"""A job on a node: commands in a row, signals passed on, tickets, and what is run again."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tape_arith.arith.runs import child_process as child
from tape_arith.arith.stopping import WISHES
from tape_arith.arith.sweeps import worker as on_node
from tape_arith.arith.sweeps.jobs import How, plan
from tape_arith.arith.sweeps.sweep import load_sweep
from tape_arith.arith.sweeps.tickets import Ticket, read_ticket, ticket_file, write_ticket
from tape_arith.arith.sweeps.worker import Task, Worker, main
from tests.helpers.tiny_runs import contents, done
from tests.sweeps.engines.trainings import STEPS, frozen, pends, trainings, until
from tests.sweeps.test_run_sweep import kept, sweep_file

LOG = Path("sweep/logs/train.rope.log")

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
def stop(number, frame):
    print("saved after", signal.Signals(number).name, flush=True)
    sys.exit(75)
for number in (signal.SIGTERM, signal.SIGUSR2) if "listen" in sys.argv else ():
    signal.signal(number, stop)
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
    monkeypatch.setattr(child, "COMMAND_LINE", (str(here / "job.py"),))
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    before = {number: signal.getsignal(number) for number in WISHES}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def task(*commands: str, cores: int = 3) -> Task:
    argvs = [command.split() for command in commands]
    return Task(argvs, cores, str(Path.cwd()), str(LOG.absolute()), "slurm", "a_0")


@contextmanager
def meanwhile(there: Callable[[], bool], act: Callable[[], None]) -> Iterator[None]:
    """Somebody else who acts once `there` holds."""

    def wait_and_act() -> None:
        until(there, "the job")
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    yield
    thread.join()


def begun() -> bool:
    return Path("begun").exists()


@pytest.mark.usefixtures("script")
def test_commands_follow_each_other_until_one_fails() -> None:
    assert Worker().perform(task("0 one", "0 two")) == (0, f"0 two 3 {Path.cwd()}")
    ticket = read_ticket(LOG)
    assert ticket is not None and (ticket.state, ticket.code, ticket.host) == ("ended", 0, "n7")
    assert (ticket.token, str(ticket)) == ("a_0", "slurm: ended") and ticket.seconds > 0
    code, reason = Worker().perform(task("0 one", "2 two", "0 three"))
    assert (code, reason) == (2, f"2 two 3 {Path.cwd()}")
    assert LOG.read_text().count("$ tape-arith 0 one") == 2 and "three" not in LOG.read_text()


@pytest.mark.usefixtures("script")
def test_a_folder_that_the_node_does_not_see_is_said() -> None:
    gone = Task([["0"]], 1, "nowhere", str(LOG.absolute()), "ray", "t")
    code, reason = Worker().perform(gone)
    assert code == 1 and reason.startswith("cannot start on n7:") and "nowhere" in reason


@pytest.mark.usefixtures("script")
def test_who_is_killed_without_a_wish_failed() -> None:
    worker = Worker()
    with meanwhile(begun, lambda: worker.process.kill() if worker.process else None):
        assert worker.perform(task("0 sleep"))[0] == -signal.SIGKILL
    ticket = read_ticket(LOG)
    assert ticket is not None and (ticket.state, ticket.code) == ("ended", -9)


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(
    ("number", "requeued", "state"),
    [(signal.SIGUSR2, True, "queued"), (signal.SIGTERM, False, "stopped")],
)
def test_a_wish_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, requeued: bool, state: str
) -> None:
    Path("tasks.jsonl").write_text(f"{{}}\n{task('0 listen sleep').line()}\n")
    monkeypatch.setenv("NUMBER", "1")
    with meanwhile(begun, lambda: os.kill(os.getpid(), number)):
        assert main(["tasks.jsonl", "NUMBER", "touch", "requeued"]) == 75
    assert f"saved after {number.name}" in LOG.read_text()
    assert Path("requeued").exists() == requeued
    ticket = read_ticket(LOG)
    assert ticket is not None and ticket.state == state


@pytest.mark.usefixtures("script")
def test_who_could_not_listen_yet_has_lost_nothing() -> None:
    worker = Worker()
    with meanwhile(begun, lambda: worker.note(signal.SIGUSR2)):
        assert worker.perform(task("0 sleep", "0 two")) == (75, "stopped before it began")
    assert "two" not in LOG.read_text()
    assert worker.perform(task("0 three"))[0] == 75 and "three" not in LOG.read_text()


@pytest.mark.usefixtures("script")
def test_who_finds_the_folder_held_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_node, "SECONDS_BEFORE_AGAIN", 0.0)
    Path("tasks.jsonl").write_text(task("75 held").line() + "\n")
    monkeypatch.setenv("NUMBER", "0")
    assert main(["tasks.jsonl", "NUMBER", "touch", "requeued"]) == 75
    assert Path("requeued").exists()
    assert main(["tasks.jsonl", "NUMBER"]) == 75  # whoever runs us sees to it
    ticket = read_ticket(LOG)
    assert ticket is not None and (ticket.state, ticket.code) == ("ended", 75)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"engine": "slurm"}',
        '{"engine": 1, "token": "t"}',
        '{"engine": "slurm", "token": "t", "state": "odd"}',
    ],
)
def test_a_ticket_that_is_none(here: Path, text: str) -> None:
    write_ticket(LOG, Ticket("ray", "t"))
    assert str(read_ticket(LOG)) == "ray: queued"
    ticket_file(LOG).write_text(text)
    assert read_ticket(LOG) is None


@pytest.mark.slow
def test_an_orphan_and_its_retry_never_share_a_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looked after a training dies, as with its node, and the training lives on: its retry
    finds the folder held, however often; once the orphan has saved and left, one goes on."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file = sweep_file("rope", steps=STEPS)
    done("sweep", file, "--out", "whole")
    (job, _) = plan(load_sweep(file).runs(Path("runs")), How(), Path("runs"))
    line = Task([job.argv], 1, str(here), str(here / "runs/sweeps/mine/logs/x.log"), "slurm", "t")
    Path("tasks.jsonl").write_text(line.line() + "\n")
    command = [
        sys.executable,
        "-m",
        "tape_arith.arith.sweeps.worker",
        "tasks.jsonl",
        "NUMBER",
    ]
    own = {**os.environ, "NUMBER": "0"}
    log = Path(line.log)
    with subprocess.Popen(command, env=own) as first:
        orphan, _ = frozen(120)
        first.kill()
    assert pends(orphan, signal.SIGTERM)
    weights = contents(job.folder.path / "weights")
    retry = subprocess.run([*command, "touch", "requeued"], env=own)
    assert retry.returncode == 75 and Path("requeued").exists()
    assert f"is being written by process {orphan} on" in log.read_text()
    assert contents(job.folder.path / "weights") == weights
    os.kill(orphan, signal.SIGCONT)
    until(lambda: trainings() == {}, "the orphan's end")
    assert "stopped in good order" in log.read_text()
    assert subprocess.run(command, env=own).returncode == 0
    assert "from step 1" in log.read_text()
    done("sweep", file)
    assert kept(Path("runs/mine")) == kept(Path("whole/mine")) != {}
