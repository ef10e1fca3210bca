"""One training on several processes: the same losses, the same run, one checkpoint."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from arith.data.bucket import Bucket
from arith.data.task import chosen
from arith.suite import launching
from arith.suite.folders import RunFolder
from arith.suite.launching import without
from arith.suite.stopping import Stopper
from arith.training.processes import ALONE, Processes, joined
from tests.suite.engines import slurm_nodes
from tests.suite.tiny import settings
from tests.training.small import final_weights

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


def train(
    folder: Path, *arguments: object, code: int = 0, program: Sequence[str] | None = None
) -> str:
    """`tape-arith train` as its own process, on one thread; what it said."""
    words = [*(program or [sys.executable]), str(ROOT / "cli.py"), "train", *map(str, arguments)]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def test_rows_are_dealt_out_in_turn() -> None:
    bucket = Bucket("addition", 5, 0, "train")
    problems, keys = bucket.problems(0, 17), bucket.keys(0, 17)
    shares = [Processes(rank, 3).rows(problems, keys) for rank in range(3)]
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
    assert ALONE.rows(problems, keys)[0] is problems
    order = np.array([3, 0])
    assert np.array_equal(chosen(problems, order).lengths, problems.lengths[order])
    assert len(Processes(2, 3).rows(*(bucket.problems(0, 2), keys[:2]))[1]) == 0


def test_nobody_joins_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    with joined() as among:
        assert among is ALONE
    monkeypatch.setenv("WORLD_SIZE", "8")  # of something else: no rank, nowhere to meet
    with joined() as among:
        assert among is ALONE


@pytest.mark.parametrize(("first", "code"), [("sleep 0.4; exit 3", 3), ("kill -9 $$", 1)])
def test_the_first_one_ends_by_itself_after_another_failed(first: str, code: int) -> None:
    """It has something to write or to say still."""
    children = [subprocess.Popen(["sh", "-c", script]) for script in (first, "exit 1")]
    assert launching._waited(children, Stopper(None)) == code
    assert all(child.wait() is not None for child in children)


def test_the_option_is_left_out_of_what_the_processes_do() -> None:
    assert without("--processes", ["train", "x", "--processes", "2"]) == ["train", "x"]


@pytest.mark.slow
def test_losses_are_those_of_one_process() -> None:
    alone, shared = losses(1, PAPER), losses(2, PAPER)
    for name in PAPER.split(","):
        assert len(alone[name]) == STEPS and alone[name][-1] < 0.95 * alone[name][0], name
        assert np.abs(np.subtract(alone[name], shared[name])).max() <= 1e-5, name
        # Or one process would have done all of it: a sum in another order is not the same bits.
        assert alone[name] != shared[name], name


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    tiny = (*settings(steps=12, num_layers=2), "--no-score", "--pe", "tape")
    train(tmp_path, *tiny, "--out", "alone")
    told = train(tmp_path, *tiny, "--out", "shared", "--processes", 2)
    assert told.count("training tape, seed 0") == 1 and ", 2 processes" in told
    ours, theirs = (RunFolder(tmp_path / out / "mini/tape/seed-0") for out in ("alone", "shared"))
    assert final_weights(ours).keys() == final_weights(theirs).keys()
    (a, b) = (folder.metrics()[-1] for folder in (ours, theirs))
    assert a["loss"] == pytest.approx(b["loss"], abs=1e-3)  # products are in bfloat16 here
    assert a["tokens"] == b["tokens"] and len(theirs.metrics()) == len(ours.metrics())
    environment = json.loads((theirs.path / "environment.json").read_text("utf-8"))
    assert environment["processes"] == 2
    # Extended by one process, from the state that two have kept.
    train(tmp_path, theirs.path, "--steps", 16, "--no-score")
    assert theirs.finished() and theirs.record().config.steps == 16
    # Stopped by the clock with two, ended with one, and once more the other way round.
    for first, then in ((("--processes", 2), ()), ((), ("--processes", 2))):
        out = ("--out", f"first{len(first)}")
        long = (*settings(steps=400, num_layers=2), "--no-score", "--pe", "tape", *out)
        train(tmp_path, *long, *first, "--time-limit", "0.2s", code=3)
        folder = RunFolder(tmp_path / out[1] / "mini/tape/seed-0")
        assert not folder.finished() and folder.latest.exists()
        told = train(tmp_path, *long, *then)
        assert "processes 1, now 2" in told or "processes 2, now 1" in told
        assert folder.finished()


@pytest.mark.slow
def test_torchrun_does_the_same(tmp_path: Path) -> None:
    tiny = (*settings(steps=6), "--pe", "rope")
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    train(tmp_path, *tiny, "--out", "torchrun", program=[sys.executable, *run])
    train(tmp_path, *tiny, "--out", "own", "--processes", 2)
    ours, theirs = (
        final_weights(RunFolder(tmp_path / out / "mini/rope/seed-0")) for out in ("own", "torchrun")
    )
    assert all(bool((ours[name] == theirs[name]).all()) for name in ours)


@pytest.mark.slow
def test_an_error_is_one_line_and_nobody_is_left(tmp_path: Path) -> None:
    told = train(tmp_path, "--pe", "rpoe", "--processes", 2, code=2)
    assert "did you mean 'rope'" in told
    tiny = (*settings(steps=6, learning_rate="1e18"), "--pe", "rope", "--processes", 2)
    told = train(tmp_path, *tiny, "--out", "astray", code=1)
    assert told.count("not finite") == 1 and "lower learning_rate" in told
    assert "Traceback" not in told and "rank1" not in told
    # Where the first cannot begin, the others wait for nothing, and say nothing.
    (tmp_path / "file").touch()
    told = train(tmp_path, *settings(), "--pe", "rope", "--processes", 2, "--out", "file", code=1)
    assert len(told.splitlines()) == 1 and "file" in told


@pytest.mark.slow
@pytest.mark.skipif(slurm_nodes.missing() is not None, reason=str(slurm_nodes.missing()))
def test_over_two_nodes_of_slurm(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    monkeypatch.setenv("SLURM_CONF", str(conf))
    tiny = (*settings(steps=6), "--pe", "rope")
    (port,) = slurm_nodes.free_ports(1)
    run = ["srun", "--nodes=2", "--ntasks-per-node=1", sys.executable, "-m"]
    run += ["torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-id=1"]
    run += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
    with slurm_nodes.slurm(conf.parent):
        told = train(tmp_path, *tiny, "--out", "nodes", program=run)
    assert told.count("training rope, seed 0") == 1 and ", 2 processes" in told
    train(tmp_path, *tiny, "--out", "own", "--processes", 2)
    ours, theirs = (
        final_weights(RunFolder(tmp_path / out / "mini/rope/seed-0")) for out in ("own", "nodes")
    )
    assert all(bool((ours[name] == theirs[name]).all()) for name in ours)
