"""The stage of scoring: its lines, and a yardstick that finds what the one pass finds."""

from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tape_arith.arith.bench import score as stage
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.bench.score import _decode_cells, _sample_cells, measure
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import pad
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.scoring.score import score
from tape_arith.arith.tasks.task import Problems, concatenate
from tape_arith.models.decoder import Decoder
from tape_arith.models.names.parse import parse
from tests.helpers.small_training import cpu, perturbed, small
from tests.helpers.tiny_runs import call, contents, done, settings
from tests.runs.test_user_encodings import READS, write
from tests.scoring.test_score import greedy, with_answers

CONFIG = small(trained_digits=3, tested_digits=6)
BUCKET = Bucket("addition", 6, 0, "evaluation")


def test_the_lines_with_random_weights() -> None:
    lines = {line.name: line for line in measure(Options(quick=True))}
    loop = lines["rope: token by token, batches of 3, whole sequence again"]
    one = lines["rope: one pass"]
    assert one.limit == loop.value
    assert one.value and loop.value and one.ratio == pytest.approx(one.value / loop.value)
    assert "random weights" in loop.note and "same exact answers on 100.0 % of rows" in loop.note
    assert "the same 12 rows" in one.note and "% of them again in float32" in one.note
    grid, rows = lines["rope: the 4x4 grid, 5 a cell"], lines["rope: rows of the grid"]
    assert grid.value and rows.value == pytest.approx(80 / grid.value)
    assert lines["rope: useful FLOPs of the grid"].ratio


@pytest.mark.parametrize("name", ["tape:start=fourier", "mine.py:Mine"])
def test_weights_of_any_encoding(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cover one that keeps more than parameters, and a user's own."""
    monkeypatch.chdir(tmp_path)
    write(READS["a list"])
    lines = list(measure(Options(quick=True, encodings=(parse(name),))))
    assert {line.name.split(": ")[0] for line in lines} == {name}
    assert all(line.value for line in lines)


def test_a_grid_that_the_time_cuts_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_BLOCKS_AT_ONCE", 2)
    monkeypatch.setattr(stage, "monotonic", count(step=20).__next__)
    lines = {line.name: line for line in measure(Options(quick=True))}
    grid = lines["rope: the 4x4 grid, 5 a cell"]
    assert grid.value is None and "the time was up after 64 of 80 rows" in grid.note
    assert lines["rope: rows of the grid"].value


def test_a_run_is_scored_with_its_weights_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done("train", "--pe", "abacus", "--no-score", *settings())
    before, run = contents(tmp_path), Path("runs/mini/abacus/seed-0")
    options = Options(quick=True, run=run, lengths=(3,))
    lines = list(measure(options))
    assert contents(tmp_path) == before
    assert {line.name.split(":")[0] for line in lines} == {"abacus"} and lines[-1].value
    assert any("weights of runs/mini/abacus/seed-0" in line.note for line in lines)
    (subject,) = stage._subjects(options, cpu())
    weights = subject.decoder(3, cpu()).state_dict()
    random = decoder_for(subject.config, parse("abacus"), 0).state_dict()
    assert subject.weights is not None
    assert all(torch.equal(weights[k], subject.weights[k]) for k in weights)
    assert not all(torch.equal(weights[key], random[key]) for key in random)
    result = call("bench", "score", "--run", run, "--pe", "rope", "--quick")
    assert result.code == 2 and "a run keeps its settings" in result.err


def test_weights_that_end_before_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(READS["a list"])  # a table of the tested lengths
    done("train", "--pe", "mine.py:Mine", "--no-score", *settings())
    (run,) = (path.parent for path in tmp_path.rglob("run.json"))
    line = list(measure(Options(quick=True, run=run)))[-1]
    assert line.value is None and "--lengths 3 measures it" in line.note


def varied(name: str) -> Decoder:
    """A decoder whose answers vary."""
    return perturbed(decoder_for(CONFIG, parse(name), 0).eval(), 0.4)


def answered(decoder: Decoder, problems: Problems, keys: NDArray[np.int64]) -> Problems:
    """The same prompts with the decoder's own greedy answers in place of the right ones, some of
    them then changed in one place, some cut short before their end."""
    answers = greedy(decoder, problems, keys)
    for row, answer in enumerate(answers):
        if row % 3 == 1:
            answer[row % len(answer)] = 4 + (answer[row % len(answer)] + 3) % 10
        if row % 6 == 2:
            del answer[max(1, len(answer) // 2) :]
    return with_answers(problems, answers)


@pytest.mark.parametrize("name", ["rope", "tape", "rand-rope"])
def test_the_yardstick_finds_what_one_pass_finds(name: str) -> None:
    decoder = varied(name)
    samples = [
        (answered(decoder, problems, keys), keys)
        for problems, keys in _sample_cells(BUCKET, [(1, 1), (2, 5), (6, 6)], 6)
    ]
    problems = concatenate([problems for problems, _ in samples])
    keys = np.concatenate([keys for _, keys in samples])
    by_pass = score(decoder, problems, keys, cpu()).exact
    cells = [pad(*sample, np.arange(6)) for sample in samples]
    by_loop = np.concatenate(_decode_cells(decoder, cells, cpu()))
    assert np.array_equal(by_loop, by_pass)
    assert 0 < by_loop.sum() < len(by_loop)
    threads = np.concatenate(_decode_cells(decoder, cells, cpu(threads=2)))
    assert np.array_equal(threads, by_loop)
