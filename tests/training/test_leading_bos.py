"""[BOS] in front of training problems, against rows that are built as lists in a loop."""

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import pack, pad, prepend_bos
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.tasks.vocabulary import BOS, PAD
from tape_arith.models.attention import Eager
from tests.helpers.small_training import small, trainer
from tests.helpers.tiny_runs import done, refused, settings

MOST = 3
WITH_TABLES = ("learned", "fire", "abacus", "coupling", "rand-rope", "tape")
"""Encodings whose tables end with the longest index, and one that has none."""


def drawn() -> tuple[Problems, np.ndarray[Any, np.dtype[np.int64]]]:
    bucket = Bucket("addition", 5, 1, "train")
    return bucket.problems(0, 40), bucket.keys(0, 40)


class Row(NamedTuple):
    """One problem behind its [BOS]: its tokens, and how many come before the first answer digit."""

    tokens: list[int]
    prompt: int
    final: int


def rows_with_bos(problems: Problems, keys: list[int], most: int) -> list[Row]:
    """Each problem behind as many [BOS] as the lower half of its key says."""
    rows, start = [], 0
    for i, key in enumerate(keys):
        stop = start + int(problems.lengths[i])
        count = ((key % 2**32) * (most + 1)) // 2**32
        tokens = [BOS] * count + problems.tokens[start:stop].tolist()
        prompt, final = int(problems.prompt_lengths[i]), int(problems.final_lengths[i])
        rows.append(Row(tokens, count + prompt, count + final))
        start = stop
    return rows


@pytest.mark.parametrize("packed", [False, True])
def test_rows_are_those_of_a_loop(packed: bool) -> None:
    problems, keys = drawn()
    rows = rows_with_bos(problems, keys.tolist(), MOST)
    assert {row.tokens.count(BOS) for row in rows} == {0, 1, 2, 3}
    led = prepend_bos(problems, keys, MOST)
    assert led.operand_lengths is problems.operand_lengths
    made = (pack if packed else pad)(led, keys, np.arange(40))
    width = max(len(row.tokens) for row in rows) - 1
    inputs, targets, scored = [], [], []
    for row in rows:
        padding = [] if packed else [PAD] * (width + 1 - len(row.tokens))
        # A padded row may keep its end token as an input: nothing is scored behind it.
        inputs.append(row.tokens[:-1] if packed else [*row.tokens, *padding][:width])
        targets.append([*row.tokens[1:], *padding])
        scored.append([t >= row.prompt for t in range(1, len(row.tokens))] + [False] * len(padding))
    if packed:
        inputs, targets, scored = ([list(chain(*rows))] for rows in (inputs, targets, scored))
    assert made.inputs.tolist() == inputs
    assert made.targets.tolist() == targets
    assert made.is_answer.tolist() == scored
    assert made.prompt_lengths.tolist() == [row.prompt for row in rows]
    assert made.final_lengths[:40].tolist() == [row.final for row in rows]


def test_each_number_is_as_probable() -> None:
    bucket = Bucket("addition", 2, 0, "train")
    problems, keys = bucket.problems(0, 8000), bucket.keys(0, 8000)
    counts = Counter((prepend_bos(problems, keys, MOST).lengths - problems.lengths).tolist())
    # 2,000 each, give or take 39: five of those.
    assert counts.keys() == {0, 1, 2, 3} and all(abs(n - 2000) < 195 for n in counts.values())


def test_a_problem_met_again_is_led_anew() -> None:
    one = trainer(small(leading_bos=MOST, num_problems=16))
    (first, _), (second, _) = one.batches.problems(0), one.batches.problems(1)
    assert first.operand_lengths.tolist() == second.operand_lengths.tolist()
    assert first.lengths.tolist() != second.lengths.tolist()


# ---- training ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "packed"),
    [*((name, False) for name in WITH_TABLES), ("learned", True), ("tape", True)],
)
def test_tables_have_room_for_them(
    name: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tested as far as trained, so that a table has no room to spare."""
    monkeypatch.setattr(Eager, "packs", packed)
    config = small(leading_bos=9, trained_digits=2, tested_digits=2, num_layers=1)
    one = trainer(config, name)
    longest = max(int(one.batches.problems(step)[0].lengths.max()) for step in range(8))
    assert longest > one.bucket.longest  # else there would have been room
    assert all(torch.isfinite(one.train_step()[0]) for _ in range(8))


def test_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done("train", "--pe", "rope", "--leading-bos", 2, *settings())
    folder = RunFolder(Path("runs/mini/rope/seed-0"))
    assert folder.record().config.leading_bos == folder.record().settings["leading_bos"] == 2
    assert Grid.load(folder.path / "grid.json").settings["leading_bos"] == 2
    line = refused("train", "--pe", "rope", *settings())
    assert "holds another run (leading_bos: 2, not 0)" in line
