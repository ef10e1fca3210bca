"""The stage of generating: the command itself, its limit, and the field's loop as a stand-in."""

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tape_arith.arith.bench import generate, limits
from tape_arith.arith.bench.generate import field_texts, field_tokens, generated, limit
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import Dataset, verify
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.presets import load_preset
from tape_arith.arith.tasks.vocabulary import EOS


def operands(text: str) -> tuple[int, int, int]:
    """a, b and c of "a+b=c", digits reversed."""
    left, _, c = text.partition("=")
    a, _, b = left.partition("+")
    assert f"{a}+{b}={c}" == text
    return int(a[::-1]), int(b[::-1]), int(c[::-1])


@pytest.mark.parametrize("digits", [1, 3, 12])
def test_the_field_s_loop_makes_our_kind_of_problems(digits: int) -> None:
    count = 5 * digits**2
    texts = list(field_texts(digits, count))
    pairs: Counter[tuple[int, int]] = Counter()
    for text in texts:
        a, b, c = operands(text)
        assert a > 0 and b > 0 and a + b == c
        assert all(not part.endswith("0") for part in re.split("[+=]", text))  # no leading zero
        pairs[len(str(a)), len(str(b))] += 1
    assert len(pairs) == digits**2 and set(pairs.values()) == {5}
    # No leading zero, which stands last.
    assert not any(
        part.endswith("0") for text in texts for part in text.replace("=", "+").split("+")
    )
    assert len(set(texts)) > count // 10
    assert list(field_texts(digits, count)) == texts != list(field_texts(digits, count, seed=1))


def test_the_field_s_tokens_are_ours() -> None:
    texts = list(field_texts(7, 60))
    for tokens, text in zip(field_tokens(texts), texts, strict=True):
        # The field's ids: four specials, then the symbols.
        assert tokens == [*("0123456789+-x= ".index(symbol) + 4 for symbol in text), EOS]


def test_the_field_s_problems_have_our_lengths() -> None:
    """On average over the pairs as many tokens: else the rates would compare other work."""
    bucket = Bucket("addition", 9, 0, "train")
    ours = bucket.problems(0, 20 * bucket.num_pairs).lengths.mean()
    theirs = np.mean([len(tokens) for tokens in field_tokens(field_texts(9, 20 * 81))])
    assert theirs == pytest.approx(ours, abs=0.05)


def test_the_command_writes_a_dataset_that_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_preset("mini").with_settings({"trained_digits": "3", "tested_digits": "3"})
    kept: list[Path] = []

    def keep(folder: Path, **_: object) -> None:
        kept.extend(folder.iterdir())

    monkeypatch.setattr(shutil, "rmtree", keep)
    found = generated(tmp_path, config, 400, workers=1)
    (folder,) = kept
    assert verify(folder).count == found.problems == 400
    assert Dataset(folder).bucket == Bucket("addition", 3, 0, "train")
    assert found.size == sum(file.stat().st_size for file in folder.iterdir())
    assert found.seconds > 0 and found.processes >= 1
    assert found.memory is None or found.memory > 10_000_000


def test_the_stage_leaves_nothing_behind(tmp_path: Path) -> None:
    options = Options(
        quick=True,
        directory=tmp_path / "new",
        count=300,
        threads=1,
        settings={"trained_digits": "2"},
    )
    lines = list(generate.measure(options))
    assert list((tmp_path / "new").iterdir()) == []
    by_name = {line.name: line for line in lines}
    whole = by_name["300 problems of addition bucket 2, 1 process"]
    theirs = by_name["the field's loop, strings and tokens"]
    ours = by_name["problems, 1 process"]
    assert whole.value and theirs.value and ours.value and ours.ratio
    assert ours.value == pytest.approx(300 / whole.value)
    assert ours.ratio == pytest.approx(ours.value / theirs.value)
    assert by_name["problems, a process"].value == ours.value
    assert theirs.repeats == 4
    assert whole.limit and whole.ratio == pytest.approx(whole.value / whole.limit)


def test_the_limit_is_the_slowest_of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"digit_limit": 1e9, "hash_limit": 1e9, "disk_limit": 1e9}
    for name in rates:
        monkeypatch.setattr(
            limits, name, lambda *_, name=name: limits.Limit(rates[name], 0.0, name)
        )
    bucket, count = Bucket("addition", 4, 0, "train"), 1600
    options = Options(quick=True, directory=tmp_path)
    problems = bucket.problems(0, bucket.num_pairs)
    size = 100 * len(problems.tokens) + 2 * count
    digits = 100 * int(problems.operand_lengths.sum())
    for name, amount in (("digit_limit", digits), ("hash_limit", size), ("disk_limit", size)):
        rates.update(dict.fromkeys(rates, 1e9))
        rates[name] = 10.0
        seconds, told = limit(bucket, count, 2, options)
        assert told == name
        assert seconds == pytest.approx(amount / 10.0, rel=0.02)


def test_the_number_of_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket("addition", 2, 0, "train")
    assert generate._count(Options(count=77, quick=True), bucket, 2) == (77, "")
    assert generate._count(Options(seconds=1e6), bucket, 2) == (20_000_000, "")
    count, note = generate._count(Options(seconds=1e-3), bucket, 2)
    assert count == generate.PROBE and "would take too long" in note


def test_a_command_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_preset("mini").with_settings({"trained_digits": "3", "tested_digits": "3"})
    with pytest.raises(Failure, match="a dataset has at least 1 problem, not -1"):
        generated(tmp_path, config, -1, workers=1)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(os, "environ", {**os.environ})
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="cannot write to"):
        generated(tmp_path / "file", config, 3, workers=1)
