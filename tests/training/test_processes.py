"""One training on several processes: the same losses, the same run, one checkpoint."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.run import Run
from tape_arith.arith.tasks.task import take
from tape_arith.arith.training.distributed import SINGLE, ProcessGroup, process_group
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.hardware import Hardware
from tape_arith.models.runner import Runner
from tests.helpers.child_processes import COMMAND_LINE, wait_until
from tests.helpers.small_training import small
from tests.helpers.tiny_runs import settings

ROOT = Path(__file__).parents[2]
PAPER = "nope,rope,rand-rope,fire,tape,tape-heads,alibi,abacus,fox,cope"
STEPS = 50


def torchrun(processes: int, *module: object) -> list[str]:
    """The command that starts `module` in so many processes, which meet over gloo."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *launch, "-m", *map(str, module)]


def train(folder: Path, processes: int, *arguments: object, code: int = 0) -> str:
    """Train in `folder`, with torchrun if there are several processes; returns stderr."""
    alone = [*COMMAND_LINE, "train", *map(str, arguments)]
    ended = subprocess.run(
        torchrun(processes, "tape_arith", "train", *arguments) if processes > 1 else alone,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.returncode == 0) == (code == 0), ended.stderr
    return ended.stderr


def losses(processes: int, names: str) -> dict[str, list[float]]:
    """The loss of each step of each encoding."""
    program = torchrun(processes, "tests.training.test_processes", names, STEPS)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        program,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    result: dict[str, list[float]] = json.loads(ended.stdout)
    return result


def error_lines(stderr: str) -> list[str]:
    """The lines that our command printed as errors, among those of torchrun."""
    return [line for line in stderr.splitlines() if line.startswith("tape-arith: ")]


def test_rows_are_dealt_out_in_turn() -> None:
    bucket = Bucket("addition", 5, 0, "train")
    problems, keys = bucket.problems(0, 17), bucket.keys(0, 17)
    shares = [ProcessGroup(rank, 3).rows(problems, keys) for rank in range(3)]
    assert [len(share.lengths) for share, _ in shares] == [6, 6, 5]
    for rank, (share, share_keys) in enumerate(shares):
        assert np.array_equal(share_keys, keys[rank::3])
        for field in share._fields[1:]:
            assert np.array_equal(getattr(share, field), getattr(problems, field)[rank::3])
        ends = np.cumsum(problems.lengths)
        rows = [
            problems.tokens[ends[i] - problems.lengths[i] : ends[i]] for i in range(rank, 17, 3)
        ]
        assert np.array_equal(share.tokens, np.concatenate(rows))
    assert SINGLE.rows(problems, keys)[0] is problems
    order = np.array([3, 0])
    assert np.array_equal(take(problems, order).lengths, problems.lengths[order])
    assert len(ProcessGroup(2, 3).rows(*(bucket.problems(0, 2), keys[:2]))[1]) == 0


def test_nobody_joins_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_group() as among:
        assert among is SINGLE
    for size in ("8", "", " "):  # of something else: no rank, nowhere to meet
        monkeypatch.setenv("WORLD_SIZE", size)
        with process_group() as among:
            assert among is SINGLE
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"):
        monkeypatch.setenv(name, "two")
    with pytest.raises(UsageError, match="RANK=two"), process_group():
        pass


@pytest.mark.slow
def test_losses_are_those_of_one_process() -> None:
    alone, shared = losses(1, PAPER), losses(2, PAPER)
    for name in PAPER.split(","):
        assert len(alone[name]) == STEPS and alone[name][-1] < 0.95 * alone[name][0], name
        assert np.abs(np.subtract(alone[name], shared[name])).max() <= 1e-5, name
        # Or one process would have done all of it: a sum in another order is not the same bits.
        assert alone[name] != shared[name], name


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2)])
def test_a_run_goes_on_with_another_number_of_processes(
    here: Path, first: int, second: int
) -> None:
    command = (*settings(steps=400, num_layers=2), "--no-score", "--pe", "tape")
    message = train(here, first, *command, "--time-limit", "0.2s", code=3)
    assert message.count("training tape,") == 1
    folder = Run(here / "runs/mini/tape/seed-0")
    assert not folder.state().trained and folder.latest.exists()
    assert f"processes changed from {first} to {second}" in train(here, second, *command)
    assert folder.state().trained
    assert folder.record().machines[-1].processes == second


@pytest.mark.slow
def test_an_error_of_many_processes_is_one_line(tmp_path: Path) -> None:
    tiny = (*settings(steps=6, learning_rate="1e18"), "--pe", "rope")
    (line,) = error_lines(train(tmp_path, 2, *tiny, code=1))
    assert "not finite" in line


@pytest.mark.slow
def test_a_killed_process_ends_the_others_with_one_line(tmp_path: Path) -> None:
    arguments = (*settings(steps=100_000, num_problems=5_000), "--no-score", "--pe", "rope")
    folder = Run(tmp_path / "runs/mini/rope/seed-0")
    command = torchrun(2, "tape_arith", "train", *arguments)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        wait_until(folder.latest.exists)
        os.kill(_process_of_rank(1, process.pid), signal.SIGKILL)
        assert process.stderr is not None
        (line,) = error_lines(process.stderr.read())
    assert process.returncode == 1
    assert line == "tape-arith: another process of this training is gone"
    # What was saved is sound: one process goes on from there.
    assert "from step" in train(tmp_path, 1, folder.path, "--time-limit", "1s", code=3)


def _process_of_rank(rank: int, launcher: int) -> int:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            environment = (stat.parent / "environ").read_bytes().split(b"\0")
        except OSError:  # gone meanwhile, or of another user
            continue
        if parent == launcher and f"RANK={rank}".encode() in environment:
            return int(stat.parent.name)
    raise AssertionError(f"no process of rank {rank}")


# ---- the program of each process -----------------------------------------------------------------


def own_losses(name: str, steps: int, processes: ProcessGroup) -> list[float]:
    """Train and return the loss of each step, over the whole batch.

    In float32, where a sum in another order shows only in its last digits.
    """
    config = small(steps=steps, batch_size=9, learning_rate=3e-3)
    decoder, bucket = decoder_for(config, parse(name), seed=0), config.bucket(0)
    hardware = Hardware("cpu", torch.float32)
    trainer = Trainer(Runner(decoder, hardware), bucket, config, processes=processes)
    return [float(trainer.train_step()[0]) for _ in range(steps)]


def threads() -> list[str]:
    """Names of what runs in this process; a sum of the CPU's processes is gloo's work."""
    return [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    names, steps = sys.argv[1].split(","), int(sys.argv[2])
    with process_group() as processes:
        losses_by_name = {name: own_losses(name, steps, processes) for name in names}
        if processes.first:
            print(json.dumps(losses_by_name))
        assert processes.size == 1 or any("gloo" in name for name in threads())
    assert not any("gloo" in name or "tcpstore" in name for name in threads()), threads()
