"""One training on several processes: the same losses, the same run, one checkpoint."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.tasks.task import chosen
from tape_arith.arith.training.distributed import SINGLE, ProcessGroup, process_group
from tests.helpers.small_training import final_weights
from tests.helpers.tiny_runs import settings

ROOT = Path(__file__).parents[2]
PAPER = "nope,rope,rand-rope,fire,tape,tape-heads,alibi,abacus,fox,cope"
STEPS = 50


def meeting(size: int) -> list[dict[str, str]]:
    """The environment of each of `size` processes that are to meet."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    shared = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"OMP_NUM_THREADS": 1, "PYTHONPATH": ROOT}
    return [
        {**os.environ, **{k: str(v) for k, v in shared.items()}, "RANK": str(r), "LOCAL_RANK": "0"}
        for r in range(size)
    ]


def losses(size: int, names: str) -> dict[str, list[float]]:
    program = [sys.executable, "-m", "tests.training.taking_part", names, str(STEPS)]
    children = [
        subprocess.Popen(program, env=place, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for place in meeting(size)
    ]
    told = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0] * size
    assert not any(told[1:])
    found: dict[str, list[float]] = json.loads(told[0].splitlines()[-1])
    return found


def test_rows_are_dealt_out_in_turn() -> None:
    bucket = Bucket("addition", 5, 0, "train")
    problems, keys = bucket.problems(0, 17), bucket.keys(0, 17)
    shares = [ProcessGroup(rank, 3).rows(problems, keys) for rank in range(3)]
    assert [len(share.lengths) for share, _ in shares] == [6, 6, 5]
    for rank, (share, of) in enumerate(shares):
        assert np.array_equal(of, keys[rank::3])
        for field in share._fields[1:]:
            assert np.array_equal(getattr(share, field), getattr(problems, field)[rank::3])
        ends = np.cumsum(problems.lengths)
        rows = [
            problems.tokens[ends[i] - problems.lengths[i] : ends[i]] for i in range(rank, 17, 3)
        ]
        assert np.array_equal(share.tokens, np.concatenate(rows))
    assert SINGLE.rows(problems, keys)[0] is problems
    order = np.array([3, 0])
    assert np.array_equal(chosen(problems, order).lengths, problems.lengths[order])
    assert len(ProcessGroup(2, 3).rows(*(bucket.problems(0, 2), keys[:2]))[1]) == 0


def test_nobody_joins_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_group() as among:
        assert among is SINGLE
    monkeypatch.setenv("WORLD_SIZE", "8")  # of something else: no rank, nowhere to meet
    with process_group() as among:
        assert among is SINGLE


@pytest.mark.slow
def test_losses_are_those_of_one_process() -> None:
    alone, shared = losses(1, PAPER), losses(2, PAPER)
    for name in PAPER.split(","):
        assert len(alone[name]) == STEPS and alone[name][-1] < 0.95 * alone[name][0], name
        assert np.abs(np.subtract(alone[name], shared[name])).max() <= 1e-5, name
        # Or one process would have done all of it: a sum in another order is not the same bits.
        assert alone[name] != shared[name], name


def torchrun(folder: Path, processes: int, *arguments: object, code: int = 0) -> str:
    """Train on some processes; returns stderr."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    ended = subprocess.run(
        [sys.executable, *launch, "-m", "tape_arith", "train", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.returncode == 0) == (code == 0), ended.stderr
    return ended.stderr


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    tiny = (*settings(steps=12, num_layers=2), "--no-score", "--pe", "tape")
    torchrun(tmp_path, 1, *tiny, "--out", "alone")
    message = torchrun(tmp_path, 2, *tiny, "--out", "shared")
    assert message.count("training tape, seed 0") == 1 and ", 2 processes" in message
    alone, shared = (RunFolder(tmp_path / out / "mini/tape/seed-0") for out in ("alone", "shared"))
    assert final_weights(alone).keys() == final_weights(shared).keys()
    one, two = (folder.metrics()[-1] for folder in (alone, shared))
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-3)  # products are in bfloat16 here
    assert one["tokens"] == two["tokens"]
    environment = json.loads((shared.path / "environment.json").read_text("utf-8"))
    assert environment["processes"] == 2
    # Stopped by the clock with two, ended with one, and the other way round.
    for first, second in ((2, 1), (1, 2)):
        long = (*settings(steps=400, num_layers=2), "--no-score", "--pe", "tape")
        long = (*long, "--out", f"from-{first}")
        torchrun(tmp_path, first, *long, "--time-limit", "0.2s", code=3)
        folder = RunFolder(tmp_path / f"from-{first}/mini/tape/seed-0")
        assert not folder.finished() and folder.latest.exists()
        assert f"processes {first}, now {second}" in torchrun(tmp_path, second, *long)
        assert folder.finished()


@pytest.mark.slow
def test_an_error_of_many_processes_is_one_line(tmp_path: Path) -> None:
    tiny = (*settings(steps=6, learning_rate="1e18"), "--pe", "rope")
    message = torchrun(tmp_path, 2, *tiny, code=1)
    lines = [line for line in message.splitlines() if line.startswith("tape-arith: ")]
    assert len(lines) == 1 and "not finite" in lines[0]
