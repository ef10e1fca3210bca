"""The engines by name; subprocesses of this machine, with a script in the command line's place."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tape_arith.arith.errors import Failure
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.sweeps.engines import remote_engine, worker
from tape_arith.arith.sweeps.engines.local import Subprocesses
from tape_arith.arith.sweeps.jobs import JobEnd, Progress, log_file
from tape_arith.arith.sweeps.slots import Slots
from tests.helpers.child_processes import wait_until
from tests.helpers.sweeps import MarkedJob, marked_jobs, sweep_file
from tests.helpers.tiny_runs import refused, untouched

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
job = sys.argv[1:]
print("OMP", os.environ["OMP_NUM_THREADS"], "CUDA", os.environ.get("CUDA_VISIBLE_DEVICES"))
print(*job)
{body}
"""
HANDLES_SIGNALS = """
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


def test_engines_and_their_options_are_read_from_the_files(here: Path) -> None:
    assert known_names("engine") == ["local", "ray", "slurm"]
    assert remote_engine("local", None, Path()) is None
    file = sweep_file("rope")
    with untouched(here):
        for engine, words in {
            "slrum": "did you mean 'slurm'?",
            "local:slots=2": "unknown option of local 'slots'",
            "slurm:partitoin=gpu": "did you mean 'partition'?",
            "slurm:gpus=some": "gpus must be a whole number, not 'some'",
        }.items():
            assert words in refused("sweep", file, "--engine", engine)


def test_an_engine_that_is_not_installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "nowhere")
    assert "`sbatch`" in refused("sweep", sweep_file("rope"), "--engine", "slurm")
    monkeypatch.setitem(sys.modules, "ray", None)
    message = refused("sweep", "mine.toml", "--engine", "ray", "--dry-run")
    assert "tape-arith[ray]" in message


@pytest.fixture
def script(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets what every job does from now on."""
    monkeypatch.setattr(worker, "COMMAND_LINE", (str(here / "job.py"),))

    def write(body: str) -> None:
        (here / "job.py").write_text(SCRIPT.format(body=body))

    return write


def ends(engine: Subprocesses, count: int) -> list[JobEnd]:
    ended: list[JobEnd] = []
    deadline = time.monotonic() + 60
    while len(ended) < count:
        assert time.monotonic() < deadline
        ended += engine.wait(0.1)
    return ended


def test_each_slot_has_its_share(
    script: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    script("sys.exit('tape-arith: no luck' if 'fire' in job else 0)")
    jobs = marked_jobs("rope", "fire", "nope", "alibi")[::2]
    slots = Slots(4, threads=2, last={jobs[3].folder: 8})
    engine = Subprocesses(slots, Path("sweep"))
    for job in jobs:
        engine.submit(job)
    assert engine.free == 0
    ended = {end.job.id: end for end in ends(engine, 4)}
    assert engine.free == 4
    assert {key: (end.code, end.reason) for key, end in ended.items() if end.code} == {
        jobs[1].id: (1, "no luck")
    }
    shares = []
    for job in jobs:
        log = log_file(Path("sweep"), job.id)
        assert ended[job.id].log == log
        command, share, words = log.read_text().splitlines()[:3]
        assert command.removeprefix("$ tape-arith ") == words
        shares.append(share.split(" "))
    expected = zip("2228", "5757", strict=True)
    assert shares == [["OMP", threads, "CUDA", gpu] for threads, gpu in expected]
    engine.submit(jobs[0])  # its log goes on
    (end,) = ends(engine, 1)
    assert end.log is not None and end.log.read_text().count("tape-arith train") == 2


def test_a_corrupt_file_of_one_child_stops_no_other(
    script: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script("time.sleep(0.2)")
    corrupt, sound = marked_jobs("rope", "fire")[::2]
    progress = type(sound).progress

    def read(job: MarkedJob) -> Progress:
        if job.id == corrupt.id:
            raise Failure("run.json is corrupt")
        return replace(progress(job), step=3, steps=4)

    monkeypatch.setattr(MarkedJob, "progress", read)
    engine = Subprocesses(Slots(2, threads=1), Path("sweep"))
    engine.next_line = 0.0
    for job in (corrupt, sound):
        engine.submit(job)
    assert {end.job.id for end in ends(engine, 2)} == {corrupt.id, sound.id}
    assert f"running: {sound.id} 3/4\n" in capsys.readouterr().err


def test_children_are_asked_once_and_save(script: Callable[[str], None]) -> None:
    script(HANDLES_SIGNALS)
    engine = Subprocesses(Slots(1, threads=1), Path("sweep"))
    engine.submit(marked_jobs("rope")[0])
    wait_until(Path("child").exists)
    engine.stop()
    wait_until(Path("saving").exists)
    engine.stop()
    (end,) = ends(engine, 1)
    assert (end.code, end.reason) == (75, "saved")


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_children_do_not_outlive_us(script: Callable[[str], None]) -> None:
    script(HANDLES_SIGNALS)
    (job, _) = marked_jobs("rope")
    parent = os.fork()
    if parent == 0:
        Subprocesses(Slots(1, threads=1), Path("sweep")).submit(job)
        time.sleep(60)
        os._exit(0)
    wait_until(lambda: Path("child").exists() and Path("child").read_text())
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    child = Path("/proc", Path("child").read_text())
    wait_until(lambda: not child.exists())
    assert log_file(Path("sweep"), job.id).read_text().endswith("saved\n")
