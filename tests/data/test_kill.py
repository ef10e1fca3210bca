"""A real process killed at a random moment leaves what the next call finishes, bit for bit."""

import multiprocessing.popen_spawn_posix
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from arith.data.bucket import Bucket
from arith.data.writing import generate

ROOT = Path(__file__).parents[2]
BUCKET, COUNT, SHARD = Bucket("addition", 40, 0, "train"), 120_000, 1000
SCRIPT = f"""
import sys
from pathlib import Path
from arith.data.bucket import Bucket
from arith.data.writing import generate
from arith.errors import Failure
try:
    generate(Path(sys.argv[1]), {BUCKET!r}, {COUNT}, workers=2, shard_size={SHARD})
except Failure as error:
    sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("whole")
    generate(directory, BUCKET, COUNT, shard_size=SHARD)
    return contents(directory)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def workers_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited for 20 s"
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers in /proc")
@pytest.mark.parametrize("victim", ["parent", "worker", "all, by Ctrl-C"])
def test_a_killed_call_is_finished_by_the_next(
    whole: dict[str, bytes], tmp_path: Path, victim: str
) -> None:
    finished = random.randrange(1, 60)
    print(f"killing the {victim} after {finished} shards")
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        until(lambda: len(list(tmp_path.glob("shard-*.json"))) >= finished)
        workers = workers_of(process.pid)
        assert len(workers) == 2
        if victim == "parent":
            process.kill()
        elif victim == "worker":
            os.kill(workers[0], signal.SIGKILL)
        else:
            os.killpg(process.pid, signal.SIGINT)
        message = process.communicate(timeout=20)[1]
    until(lambda: not any(alive(worker) for worker in workers))
    assert not (tmp_path / "manifest.json").exists()
    if victim == "worker":
        assert process.returncode == 1
        assert "was killed (out of memory?): the same command goes on" in message
        assert message.count("\n") == 1
    generate(tmp_path, BUCKET, COUNT, shard_size=SHARD)
    assert contents(tmp_path) == whole


class Stop(Exception):
    """What a command's handler of signals raises."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_worker_is_left_in_mid_start(
    number: signal.Signals, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that comes as a worker starts, before it was told what it is for, waits until all
    of them have been told; it would read the end of a pipe and say so with a traceback."""
    told: list[bool] = []

    class Popen(multiprocessing.popen_spawn_posix.Popen):
        def _launch(self, process: object) -> None:
            signal.raise_signal(number)
            super()._launch(process)  # type: ignore[misc]
            told.append(True)

    def stop(*_: object) -> None:
        raise Stop

    before = signal.signal(number, stop)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(multiprocessing.popen_spawn_posix, "Popen", Popen)
            with pytest.raises(Stop):
                generate(tmp_path, BUCKET, COUNT, workers=2, shard_size=SHARD)
        assert told == [True, True] and signal.getsignal(number) is stop
        generate(tmp_path, BUCKET, COUNT, workers=2, shard_size=SHARD)
    finally:
        signal.signal(number, before)
    assert contents(tmp_path) == whole
