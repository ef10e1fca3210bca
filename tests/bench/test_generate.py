"""The stage of generating: the command itself beside its limit."""

from pathlib import Path

import pytest

from tape_arith.arith.bench import generate, limits
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.record import load_preset

CONFIG = load_preset("mini").with_settings({"trained_digits": 3, "tested_digits": 3})


def test_the_stage_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    settings = {"trained_digits": "2"}
    options = Options(quick=True, directory=folder, count=300, threads=1, settings=settings)
    lines = {line.name: line for line in generate.measure(options)}
    assert list(folder.iterdir()) == []
    command = lines["300 problems of addition bucket 2, 1 thread"]
    problems, size = lines["problems"], lines["bytes on disk"]
    assert command.value and command.limit and size.value
    assert problems.value == pytest.approx(300 / command.value)
    assert problems.limit == pytest.approx(300 / command.limit)
    tokens = len(Bucket("addition", 2, 0, "train").problems(0, 300).tokens)
    assert size.value * command.value > tokens + 2 * 300  # and the manifest


def test_the_limit_is_the_slowest_of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"digit_limit": 1e9, "hash_limit": 1e9, "disk_limit": 1e9}
    for name in rates:
        monkeypatch.setattr(limits, name, lambda *_, name=name: limits.Limit((rates[name],), name))
    bucket, count = Bucket("addition", 4, 0, "train"), 1600
    options = Options(quick=True, directory=tmp_path, threads=2)
    problems = bucket.problems(0, bucket.num_pairs)
    size = 100 * len(problems.tokens) + 2 * count
    digits = 100 * int(problems.operand_lengths.sum())
    for name, amount in (("digit_limit", digits), ("hash_limit", size), ("disk_limit", size)):
        rates.update(dict.fromkeys(rates, 1e9))
        rates[name] = 10.0
        seconds, limit_name = generate._least_seconds(bucket, count, options)
        assert limit_name == name
        assert seconds == pytest.approx(amount / 10.0, rel=0.02)


def test_a_command_that_fails_names_the_fault(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"tape-arith generate failed: .*--count"):
        generate._run_command(tmp_path, CONFIG, -1, workers=1)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="cannot write to"):
        generate._run_command(tmp_path / "file", CONFIG, 3, workers=1)
