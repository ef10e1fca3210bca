"""The groups in which problems go through the decoder, and [BOS] in front of problems, against rows
that are built as lists in a loop."""

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import prepend_bos
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.runs.run import Run
from tape_arith.arith.tasks.families.tokens import BOS
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import concatenate
from tape_arith.models.attention import Eager
from tests.helpers.small_training import small, trainer
from tests.helpers.tiny_runs import done, refused, settings

STEPS = 8
MOST = 3


@pytest.mark.parametrize(("digits", "device"), [(8, "cpu"), (40, "cpu"), (40, "cuda")])
def test_groups_are_about_equal_with_few_shapes_and_little_padding(
    digits: int, device: str
) -> None:
    """Two threads take one each, so none may be left with much more than another; but for the last
    of a step they have one of a few shapes, since a kernel is made for each."""
    config = small(trained_digits=digits, tested_digits=digits, batch_size=256, groups=4)
    batches = trainer(config).batches
    steps = [list(batches.padded(*batches.problems(step), device, 1)) for step in range(STEPS)]
    shapes = {rows.inputs.shape for step in steps for rows in step[:-1]}
    assert len({width for _, width in shapes}) == len(shapes) <= 32
    assert len({len(step) for step in steps}) == 1 and len(steps[0]) >= 4
    groups = [rows for step in steps for rows in step]
    # A table of positions may end with the longest problem.
    assert max(rows.inputs.shape[1] for rows in groups) < load_task("addition").longest(
        (digits, digits)
    )
    if device == "cpu":
        sizes = np.array([[rows.inputs.size for rows in step] for step in steps])
        unequal = sizes.max(1) / sizes.mean(1)
        assert unequal.mean() < 1.2 and unequal.max() < 2
        tokens = sum(int((rows.prompt_lengths + rows.answer_tokens - 1).sum()) for rows in groups)
        assert 0.85 < tokens / sizes.sum() < 1


@pytest.mark.parametrize(("digits", "size"), [(40, 256), (40, 2), (40, 24), (8, 4)])
def test_groups_shrink_as_asked_or_to_one_row(digits: int, size: int) -> None:
    config = small(trained_digits=digits, tested_digits=digits, batch_size=size, groups=4)
    batches = trainer(config).batches
    for step in range(5):
        batch = batches.problems(step)
        count = max(4, len(list(batches.padded(*batch, "cpu", 1))))
        usual = batches._tokens_a_group(size, count)
        for finer in (2, 4, 8, 16, 2**12):
            groups = list(batches.padded(*batch, "cpu", finer))
            assert sorted(chain(*(rows.source_index for rows in groups))) == list(range(size))
            for rows in groups:
                assert rows.inputs.size <= 1.5 * usual / finer or len(rows.source_index) == 1
        assert max(len(rows.source_index) for rows in groups) == 1


def test_a_process_may_have_no_rows() -> None:
    batches = trainer(small(batch_size=4)).batches
    problems, keys = batches.problems(0)
    none = problems._replace(tokens=problems.tokens[:0], lengths=problems.lengths[:0])
    assert not list(batches.padded(none, keys[:0], "cpu", 1))
    assert not list(batches.packed(none, keys[:0], 1))


@pytest.mark.parametrize("total, size", [(10, 4), (10, 5), (10, 16), (3, 16), (10, 10)])
def test_batches_start_over_with_new_keys(total: int, size: int) -> None:
    one = trainer(small(num_problems=total, batch_size=size))
    steps = -(-4 * total // size)
    batches = [one.batches.problems(step) for step in range(steps)]
    places = np.arange(steps * size) % total
    expected = concatenate([one.bucket.problems(i, i + 1) for i in places.tolist()])
    actual = concatenate([problems for problems, _ in batches])
    for field, expected_field in zip(actual, expected, strict=True):
        assert np.array_equal(np.asarray(field), np.asarray(expected_field))
    keys = np.concatenate([keys for _, keys in batches])
    assert np.array_equal(keys[:total], one.bucket.keys(0, total))
    assert len(set(keys.tolist())) == len(keys)


# ---- leading [BOS] -------------------------------------------------------------------------


def test_bos_in_front_is_that_of_a_loop() -> None:
    """As many in front of each problem as the lower half of its key says."""
    bucket = Bucket("addition", 5, 1, "train")
    problems, keys = bucket.problems(0, 40), bucket.keys(0, 40)
    led = prepend_bos(problems, keys, MOST)
    tokens: list[int] = []
    ends = np.cumsum(problems.lengths)
    counts = [((key % 2**32) * (MOST + 1)) // 2**32 for key in keys.tolist()]
    for count, length, end in zip(counts, problems.lengths, ends, strict=True):
        tokens += [BOS] * count + problems.tokens[end - length : end].tolist()
    assert set(counts) == {0, 1, 2, 3} and led.tokens.tolist() == tokens
    for field in ("lengths", "prompt_lengths", "final_lengths"):
        assert np.array_equal(getattr(led, field), getattr(problems, field) + counts), field
    assert led.axis_lengths is problems.axis_lengths


def test_each_number_of_bos_is_as_probable() -> None:
    bucket = Bucket("addition", 2, 0, "train")
    problems, keys = bucket.problems(0, 8000), bucket.keys(0, 8000)
    counts = Counter((prepend_bos(problems, keys, MOST).lengths - problems.lengths).tolist())
    # 2,000 each, give or take 39: five of those.
    assert counts.keys() == {0, 1, 2, 3} and all(abs(n - 2000) < 195 for n in counts.values())
    again = trainer(small(leading_bos=MOST, num_problems=16)).batches
    (first, _), (second, _) = again.problems(0), again.problems(1)
    assert first.axis_lengths.tolist() == second.axis_lengths.tolist()
    assert first.lengths.tolist() != second.lengths.tolist()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["learned", "fire", "abacus", "rand-rope", "tape"])
def test_tables_have_room_for_bos(name: str, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tested as far as trained, so that a table has no room to spare."""
    monkeypatch.setattr(Eager, "packs", packed)
    config = small(leading_bos=9, trained_digits=2, tested_digits=2, num_layers=1)
    one = trainer(config, name)
    longest = [int(one.batches.problems(step)[0].lengths.max()) for step in range(8)]
    assert max(longest) > one.bucket.longest  # else there would have been room
    one.step = int(np.argmax(longest))
    assert torch.isfinite(one.train_step()[0])


def test_leading_bos_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done("train", "--pe", "rope", "--set", "leading_bos=2", *settings())
    folder = Run(Path("runs/mini/rope/seed-0"))
    assert folder.record().config.leading_bos == folder.record().settings["leading_bos"] == 2
    assert Grid.load(folder.path / "grid.json").settings["leading_bos"] == 2
    line = refused("train", "--pe", "rope", *settings())
    assert "(leading_bos: 2," in line
