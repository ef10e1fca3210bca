"""One writer a folder: the living keep theirs, the dead are taken over."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith import files, lock
from tape_arith.arith.decoders.environment import record_machine
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.run import Run
from tape_arith.arith.training.begin import extend_run
from tape_arith.arith.training.init_from import write_first_state
from tests.helpers.tiny_runs import contents, done, refused, settings

TRAIN_FRESH = ("train", "--pe", "rope", "--fresh", *settings())

HOLDER = """
import sys
from pathlib import Path
from tape_arith.arith import lock
lock.LEASE = float(sys.argv[2])
with lock.lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    for line in sys.stdin:
        lock.check_lock(Path(sys.argv[1]))
        print("checked", flush=True)
"""
RACER = """
import sys, time
from pathlib import Path
from tape_arith.arith import lock
for number in range(20):
    folder = Path(sys.argv[1], str(number))
    try:
        with lock.lock_folder(folder):
            with open(folder / "inside", "x"):
                time.sleep(0.002)
            (folder / "inside").unlink()
    except lock.Busy:
        pass
"""


@contextmanager
def another(folder: Path, lease: float = lock.LEASE) -> Iterator[subprocess.Popen[str]]:
    """A process that has locked `folder`, until it is killed."""
    command = [sys.executable, "-c", HOLDER, str(folder.absolute()), str(lease)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_lock_comes_and_goes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with lock.lock_folder(folder, "generate"):
        assert lock.activity(folder) == "generate"
        with lock.lock_folder(folder):  # by the same process: it stays until the outer one ends
            lock.check_lock(folder)
        assert (folder / lock.NAME).exists()
        folder.rename(tmp_path / "elsewhere")
        with pytest.raises(Failure, match="moved or"):
            lock.check_lock(folder)
        (tmp_path / "elsewhere").rename(folder)
    assert lock.activity(folder) is None
    assert not folder.exists()  # nothing was written into it


def test_a_living_process_keeps_its_lock_and_a_killed_one_loses_it(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    own = files.temporary_path(tmp_path / "grid.json").name
    (tmp_path / own.replace(f"-{os.getpid()}-", "-4194305-")).touch()  # of no living process
    with another(tmp_path) as process:
        assert lock.activity(tmp_path) == "train"
        names = rf"by process {process.pid} on \S+ \(train\) since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
        with pytest.raises(lock.Busy, match=names), lock.lock_folder(tmp_path):
            pass
        process.kill()
        process.wait()
        assert lock.activity(tmp_path) is None
        began = time.monotonic()
        with lock.lock_folder(tmp_path):
            lock.check_lock(tmp_path)
        assert time.monotonic() - began < 5  # it waits for no lease
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_who_stood_still_may_lose_the_lock_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "LEASE", 0.6)
    with another(tmp_path, lease=0.6) as process:
        time.sleep(1.0)
        with pytest.raises(lock.Busy), lock.lock_folder(tmp_path):
            pass  # at work it keeps its lock for longer than a lease
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.7)
        with lock.lock_folder(tmp_path, "score grid.json"):
            os.kill(process.pid, signal.SIGCONT)
            _, error = process.communicate("write\n", timeout=60)
            assert "Busy" in error and "took it" in error
            lock.check_lock(tmp_path)  # nor does it remove this lock
            assert lock.activity(tmp_path) == "score grid.json"


OF_ANOTHER_MACHINE = "filelock/2\npid=1\nhost=elsewhere\nmode=lease\ntoken=t\nduration={}\n"


@pytest.mark.parametrize(
    ("text", "age"),
    [(OF_ANOTHER_MACHINE, 9.0), (OF_ANOTHER_MACHINE, -365 * 86_400.0), ("", 9.0), ("{{", 9.0)],
    ids=["elsewhere", "in the future", "empty", "broken"],
)
def test_a_silent_lock_is_taken_over_after_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, age: float
) -> None:
    """Of another machine, or of a writer that was killed before it could say who it is."""
    (tmp_path / lock.NAME).write_text(text.format(lock.LEASE))
    holder = "process 1 on elsewhere" if text == OF_ANOTHER_MACHINE else "another process"
    with pytest.raises(lock.Busy, match=holder), lock.lock_folder(tmp_path):
        pass
    monkeypatch.setattr(lock, "LEASE", 0.3)
    (tmp_path / lock.NAME).write_text(text.format(0.3))
    os.utime(tmp_path / lock.NAME, (time.time() - age,) * 2)
    assert lock.activity(tmp_path) is None
    with lock.lock_folder(tmp_path):
        lock.check_lock(tmp_path)


def test_a_folder_that_is_removed_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mkdir finds it, and its holder removes it before mkdir can see that it is a folder."""
    make, answers = Path.mkdir, iter([FileExistsError(17, "File exists")])

    def mkdir(path: Path, *args: Any, **kwargs: Any) -> None:
        for error in answers:
            raise error
        make(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with lock.lock_folder(tmp_path / "run"):
        lock.check_lock(tmp_path / "run")


def test_one_of_many_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    racers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    errors = [racer.communicate(timeout=120)[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 3, errors
    assert not list(tmp_path.rglob("*"))


def test_a_folder_that_cannot_be_made_is_not_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")  # as Python says it under `ulimit -u`

    (tmp_path / "file").touch()
    refusing = [tmp_path / "file", tmp_path / "file/run", Path("/proc/nix/run"), tmp_path / "run"]
    for folder in refusing:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(Failure, match=f"write {folder}") as error:
                lock.lock_folder(folder).__enter__()
        assert not isinstance(error.value, lock.Busy)
    assert not (tmp_path / "run").exists()
    with lock.lock_folder(tmp_path / "run"):
        pass


def test_a_run_that_is_being_written_is_refused_for_now(comparison: Path) -> None:
    folder = Path("runs/mini/rope/seed-0")
    with another(folder) as process:
        for command in (TRAIN_FRESH, ("train", folder, "--steps", 8), ("score", folder, "--fresh")):
            line = refused(*command, code=75)
            assert f"process {process.pid}" in line
        done("score", folder)  # is done: it only reads
    done("score", folder, "--fresh")
    assert not (folder / lock.NAME).exists() and not (folder / lock.ACTIVITY).exists()


@pytest.mark.parametrize("name", [lock.NAME, lock.ACTIVITY, "grid.json"])
def test_a_pipe_in_a_folder_is_named(comparison: Path, name: str) -> None:
    """As a lock it would never be free, and repeating the command, as 75 says, would not help."""
    run = Path("runs/mini/rope/seed-0")
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    for command in (("score", run, "--fresh"), ("train", run, "--steps", 9), TRAIN_FRESH):
        assert f"{name} is neither a file nor a folder: remove it" in refused(*command, code=1)


@pytest.mark.parametrize("name", [lock.ACTIVITY, "weights", "at-4-steps", "metrics.jsonl"])
def test_nothing_is_written_through_a_link(comparison: Path, tmp_path: Path, name: str) -> None:
    """A run may be somebody else's: what is written to its folder stays in it."""
    run = comparison / "runs/mini/rope/seed-0"
    outside = tmp_path / "outside"
    outside.mkdir()
    mine = outside / "mine.safetensors"
    mine.write_text("mine")
    target = mine if "." in name else outside
    if (run / name).is_dir():
        target = Path(shutil.move(run / name, outside / name))
    else:
        (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    before = contents(outside)
    for command in (("score", run, "--fresh"), ("train", run, "--steps", 9), TRAIN_FRESH):
        assert f"{name} is" in refused(*command, code=1)
    assert contents(outside) == before


def test_every_writer_of_a_run_checks_the_lock(
    comparison: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(comparison / "runs/mini/rope/seed-0")
    record = run.record()
    writers: list[Callable[[], object]] = [
        lambda: run.write_record(record),
        lambda: run.write_timing("train", 1.0),
        lambda: run.add_metrics({}),
        lambda: run.truncate_metrics(0),
        lambda: run.set_grids_aside(4),
        run.delete,
        run.remove_partial,
        lambda: record_machine(run, record.machines[-1]),
        lambda: extend_run(run, 9),
        lambda: write_first_state(run, record, run),
    ]
    (run.path / "weights" / ".x.partial").write_text("of the other process")
    with lock.lock_folder(run.path):
        before = contents(run.path)
        with monkeypatch.context() as patch:
            patch.setattr(lock, "_is_ours", lambda lease: False)
            for write in writers:
                with pytest.raises(lock.Busy, match="took"):
                    write()
        assert contents(run.path) == before
