"""Workers that are killed, and workers that are about to start when a signal comes."""

import multiprocessing.popen_spawn_posix
import os
import signal
import time
from pathlib import Path

import pytest

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.write_dataset import generate
from tests.helpers.child_processes import start, wait

BUCKET, COUNT, SHARD = Bucket("addition", 40, 0, "train"), 12_000, 1000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("whole")
    generate(directory, BUCKET, COUNT, shard_size=SHARD)
    return contents(directory)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers in /proc")
def test_a_worker_that_is_killed_ends_the_command_in_one_line(tmp_path: Path) -> None:
    """As the system does where memory runs out. That the next call goes on: test_killing."""
    process = start(["generate", "--workers=2", "--count=3000000", "--out=data"], tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("data/shard-*.json")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [c for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]
    os.kill(int(workers[0]), signal.SIGKILL)
    code, output = wait(process)
    assert code == 1 and "Traceback" not in output
    assert "was killed (out of memory?): the same command goes on" in output.splitlines()[-1]


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
