"""One writer a folder: the living keep theirs, the dead are taken over."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tape_arith.arith import files
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs import lock
from tests.helpers.tiny_runs import call, done, settings

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from pathlib import Path
from tape_arith.arith.runs.lock import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds `folder`, until it is killed."""
    command = [sys.executable, "-c", HOLDER, str(folder.absolute())]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_it_comes_and_goes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with lock.hold(folder):
        since = rf"process {os.getpid()} on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
        assert re.fullmatch(since, lock.holder(folder) or "")
        with lock.hold(folder):  # by the same process: the lock stays until the outer one ends
            lock.confirm(folder)
        assert (folder / lock.NAME).exists()
    assert lock.holder(folder) is None
    assert not folder.exists()  # nothing was written into it


def test_the_living_are_left_alone_and_the_dead_are_not(tmp_path: Path) -> None:
    with another(tmp_path) as process:
        with pytest.raises(lock.Busy, match=f"is being written by process {process.pid} on"):
            lock.hold(tmp_path).__enter__()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert lock.holder(tmp_path) is None
        with lock.hold(tmp_path):
            lock.confirm(tmp_path)
    assert list(tmp_path.iterdir()) == [] if tmp_path.exists() else True


def foreign(folder: Path, silent: float) -> None:
    """The lock of a process on another machine, whose heart last beat `silent` seconds ago."""
    file = folder / lock.NAME
    file.write_text('{"host": "elsewhere", "pid": 1, "token": "theirs"}')
    os.utime(file, (time.time() - silent,) * 2)


def test_one_that_stands_still_here_keeps_its_lock(tmp_path: Path) -> None:
    """However long its heart stands: here it is known to be there."""
    with another(tmp_path) as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.utime(tmp_path / lock.NAME, (0, 0))
        with pytest.raises(lock.Busy, match=f"process {process.pid} "), lock.hold(tmp_path):
            pass


def test_a_number_that_is_another_process_s_now(tmp_path: Path) -> None:
    with another(tmp_path) as process:
        there = json.loads((tmp_path / lock.NAME).read_text())
        (tmp_path / lock.NAME).write_text(json.dumps(there | {"born": there["born"] - 1}))
        with lock.hold(tmp_path):  # of that number, but born later than the holder
            assert str(process.pid) != str(json.loads((tmp_path / lock.NAME).read_text())["pid"])


def test_a_zombie_is_gone(tmp_path: Path) -> None:
    with another(tmp_path) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not taken note of
        with lock.hold(tmp_path):
            pass


def test_another_machine_is_dead_when_its_heart_stops(tmp_path: Path) -> None:
    foreign(tmp_path, lock.DEAD_AFTER / 2)
    with pytest.raises(lock.Busy, match="process 1 on elsewhere"), lock.hold(tmp_path):
        pass
    foreign(tmp_path, 2 * lock.DEAD_AFTER)
    with lock.hold(tmp_path):
        assert "elsewhere" not in (tmp_path / lock.NAME).read_text()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_lock_that_says_nothing_is_one_that_is_being_written(tmp_path: Path, text: str) -> None:
    (tmp_path / lock.NAME).write_text(text)
    with pytest.raises(lock.Busy), lock.hold(tmp_path):
        pass
    os.utime(tmp_path / lock.NAME, (time.time() - 2 * lock.EMPTY_AFTER,) * 2)
    with lock.hold(tmp_path):
        pass


def test_a_folder_in_the_lock_s_place_goes(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    (tmp_path / lock.NAME).mkdir()
    os.utime(tmp_path / lock.NAME, (time.time() - 2 * lock.EMPTY_AFTER,) * 2)
    for _ in range(2):
        with lock.hold(tmp_path):
            pass
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_a_beat_of_next_year_is_none(tmp_path: Path) -> None:
    foreign(tmp_path, -365 * 86_400.0)
    with lock.hold(tmp_path):
        assert "elsewhere" not in (tmp_path / lock.NAME).read_text()


def test_where_no_folder_can_be_it_is_not_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("nowhere")
    for folder in (tmp_path / "out", Path("/proc/nix/run")):
        with pytest.raises(Failure, match=f"cannot write {folder}") as caught, lock.hold(folder):
            pass
        assert not isinstance(caught.value, lock.Busy)


@pytest.mark.parametrize("since", [None, "noon", float("1e300"), -1e300])
def test_a_lock_of_no_moment(tmp_path: Path, since: object) -> None:
    there = {"host": "elsewhere", "pid": 1, "token": "theirs", "since": since}
    (tmp_path / lock.NAME).write_text(json.dumps(there))
    assert lock.holder(tmp_path) == "process 1 on elsewhere"


def test_a_lock_that_cannot_be_written_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write = tmp_path / "run", os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    with pytest.raises(Failure, match=r"cannot write .*run: No space left"), lock.hold(folder):
        pass
    assert not folder.exists()


def test_where_no_thread_can_be_started_it_is_told_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")  # as Python says it under `ulimit -u`

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(Failure, match=r"cannot hold .*ulimit -u"), lock.hold(tmp_path / "run"):
        pytest.fail("held")
    monkeypatch.undo()
    assert not (tmp_path / "run").exists()
    with lock.hold(tmp_path / "run"):
        assert lock.holder(tmp_path / "run")


def test_what_the_killed_left_goes(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    ours = files.temporary_beside(tmp_path / lock.NAME)
    gone = ours.with_name(ours.name.replace(f"-{os.getpid()}-", "-4194305-"))  # no such number
    gone.touch()
    with lock.hold(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [lock.NAME, "kept"]


def test_the_heart_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SECONDS_BETWEEN_BEATS", 0.01)
    with lock.hold(tmp_path):
        os.utime(tmp_path / lock.NAME, (0, 0))
        deadline = time.monotonic() + 30
        while (tmp_path / lock.NAME).stat().st_mtime < 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_who_was_taken_over_writes_nothing(tmp_path: Path) -> None:
    with lock.hold(tmp_path):
        foreign(tmp_path, 0)
        with pytest.raises(lock.Busy, match="took it over"):
            lock.confirm(tmp_path)
    # Nor does it remove what is another's now.
    assert "theirs" in (tmp_path / lock.NAME).read_text()


def test_a_run_that_is_being_written_is_refused_for_now(comparison: Path) -> None:
    folder = Path("runs/mini/rope/seed-0")
    with another(folder):
        for command in (
            ("train", "--pe", "rope", *settings(), "--fresh"),
            ("train", folder, "--steps", 8),
            ("score", folder, "--with", "yarn"),
        ):
            result = call(*command)
            assert result.code == 75 and "is being written by process" in result.err
        done("score", folder)  # is done: it only reads
    done("score", folder, "--with", "yarn")
    assert not (folder / lock.NAME).exists()
