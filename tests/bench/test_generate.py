"""The stage of generating: the command itself beside its limit."""

import shutil
from pathlib import Path

import pytest

from tape_arith.arith.bench import generate, limits
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import Dataset, verify
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.record import load_preset

CONFIG = load_preset("mini").with_settings({"trained_digits": "3", "tested_digits": "3"})


def test_the_command_writes_a_dataset_that_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Path] = []

    def keep(folder: Path, **_: object) -> None:
        kept.extend(folder.iterdir())

    monkeypatch.setattr(shutil, "rmtree", keep)
    generated = generate._run_command(tmp_path, CONFIG, 400, workers=1)
    (folder,) = kept
    assert verify(folder).count == generated.problems == 400
    assert Dataset(folder).bucket == Bucket("addition", 3, 0, "train")
    assert generated.size == sum(file.stat().st_size for file in folder.iterdir())


def test_the_stage_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    settings = {"trained_digits": "2"}
    options = Options(quick=True, directory=folder, count=300, threads=1, settings=settings)
    lines = {line.name: line for line in generate.measure(options)}
    assert list(folder.iterdir()) == []
    whole = lines["300 problems of addition bucket 2, 1 thread"]
    problems = lines["problems"]
    assert whole.value and whole.limit and problems.value
    assert problems.value == pytest.approx(300 / whole.value)
    assert problems.limit == pytest.approx(300 / whole.limit)


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


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="Invalid value for '--count'"):
        generate._run_command(tmp_path, CONFIG, -1, workers=1)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="cannot write to"):
        generate._run_command(tmp_path / "file", CONFIG, 3, workers=1)
