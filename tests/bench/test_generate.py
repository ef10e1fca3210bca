"""The stage of generating: the command itself, and its limit."""

import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tape_arith.arith.bench import generate, limits
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import Failure
from tape_arith.arith.sweeps.engines.worker import COMMAND_LINE
from tape_arith.arith.tasks.load import load_task
from tests.helpers.tiny_runs import call


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def run_here(command: list[str], **_: object) -> CompletedProcess[str]:
    """Run a command of ours in this process."""
    start = [sys.executable, *COMMAND_LINE]
    assert command[: len(start)] == start
    result = call(*command[len(start) :])
    return CompletedProcess(command, *result)


@pytest.mark.parametrize(("preset", "task"), [("mini", "addition"), ("mini-sort", "sort")])
def test_the_stage_leaves_nothing_behind(
    temporary: Path, preset: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", run_here)
    sizes = {"trained_digits": "2", "tested_digits": "2"}
    sizes |= {"trained_operands": "3"} if task == "sort" else {}
    options = Options(seconds=0, preset=preset, count=300, threads=1, settings=sizes)
    lines = {line.name: line for line in generate.measure(options)}
    assert list(temporary.iterdir()) == []
    command = lines[f"300 problems of {task} bucket 2, 1 thread"]
    problems, size = lines["problems"], lines["bytes on disk"]
    assert command.value and command.limit and size.value
    assert problems.value == pytest.approx(300 / command.value)
    assert problems.limit == pytest.approx(300 / command.limit)
    drawn = Bucket(task, 2, 0, "train", 3 * (task == "sort")).problems(0, 300)
    assert size.value * command.value > len(drawn.tokens) + 2 * 300  # and the manifest
    texts = load_task(task).vocabulary.lines(drawn.tokens).splitlines()
    digits = sum(character.isdigit() for text in texts for character in text.split("=")[0])
    assert generate._prompt_digits(drawn) == digits


def test_the_limit_is_the_slowest_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"digit_limit": 1e9, "hash_limit": 1e9, "disk_limit": 1e9}
    for name in rates:
        monkeypatch.setattr(
            limits, name, lambda *_, name=name: Result("limits", name, rates[name], "")
        )
    bucket, count = Bucket("addition", 4, 0, "train"), 1600
    problems = bucket.problems(0, bucket.num_cells)
    size = 100 * len(problems.tokens) + 2 * count
    digits = 100 * int(problems.axis_lengths.sum())
    for name, amount in (("digit_limit", digits), ("hash_limit", size), ("disk_limit", size)):
        rates.update(dict.fromkeys(rates, 1e9))
        rates[name] = 10.0
        seconds, limit_name = generate._least_seconds(bucket, count, 2, quick=True)
        assert limit_name == name
        assert seconds == pytest.approx(amount / 10.0, rel=0.02)


def test_a_command_that_fails_names_the_fault(temporary: Path) -> None:
    with pytest.raises(Failure, match="--count"):
        generate._run_command(Bucket("addition", 3, 0, "train"), -1, workers=1)
    assert list(temporary.iterdir()) == []
