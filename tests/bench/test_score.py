"""The stage of scoring: its lines, and a yardstick that finds what the one pass finds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tape_arith.arith.bench import score as stage
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.bench.score import _decode_cells, _sample_cells, measure
from tape_arith.arith.data.rows import pad
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.decoders.weights import final_weights
from tape_arith.arith.errors import Failure
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.run import Run
from tape_arith.arith.scoring.score import score
from tape_arith.arith.tasks.task import Problems, concatenate
from tape_arith.models.decoder import Decoder
from tape_arith.models.runner import Runner
from tests.helpers.small_training import cpu, perturbed, small
from tests.helpers.tiny_runs import call, done, settings, untouched
from tests.scoring.test_score import greedy, with_answers
from tests.training.test_user_encodings import READS, write

CONFIG = small(trained_digits=3, tested_digits=6)
SIZES = {"trained_digits": "2", "tested_digits": "4", "hidden_size": "16", "num_layers": "1"}
SORT = {"task": "sort", "trained_operands": 2, "tested_operands": 3}


@pytest.mark.parametrize(
    "options",
    [
        Options(seconds=0, preset="mini-copy", settings=SIZES),
        Options(seconds=0, preset="mini-sort", settings=SIZES),
    ],
    ids=["copy", "sort"],
)
def test_the_lines_with_random_weights(options: Options) -> None:
    label = "rope, 4 digits"
    lines = {line.name: line for line in measure(options)}
    loop, one = lines[f"{label}: token by token"], lines[f"{label}: one pass"]
    assert one.value and one.limit == loop.value
    assert loop.note.startswith("random") and "100.0 %" in loop.note and "3 a cell" in loop.note
    assert lines[f"{label}: useful FLOPs"].ratio


def test_an_encoding_of_a_users_file_is_measured(here: Path) -> None:
    write(READS)
    lines = list(measure(Options(seconds=0, encodings=(parse("mine.py:Mine"),))))
    assert all(line.value for line in lines) and "100.0 %" in lines[0].note


def test_a_run_is_scored_with_its_weights_and_left_as_it_was(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(READS)  # a table of the tested lengths
    train = ("train", "--pe", "mine.py:Mine", "--no-score", *settings())
    folder = Run(Path(done(*train).out.strip()))
    decoders: list[Decoder] = []
    compare = stage._compare

    def keep(label: str, runner: Runner, *arguments: Any) -> Iterator[Result]:
        decoders.append(runner.decoder)
        return compare(label, runner, *arguments)

    monkeypatch.setattr(stage, "_compare", keep)
    with untouched(here):
        lines = list(measure(Options(seconds=0, run=folder.path, lengths=(3,))))
    assert all(line.value for line in lines) and str(folder.path) in lines[0].note
    weights = final_weights(folder, folder.record(), "cpu")
    assert all(torch.equal(tensor, weights[k]) for k, tensor in decoders[0].state_dict().items())
    with pytest.raises(Failure, match="--lengths 3"):
        list(measure(Options(seconds=0, run=folder.path, lengths=(9,))))
    result = call("bench", "score", "--run", folder.path, "--pe", "rope", "--quick")
    assert result.code == 2 and "--run" in result.err


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


@pytest.mark.parametrize(("name", "task"), [("rand-rope", {}), ("rope", SORT)])
def test_the_yardstick_finds_what_one_pass_finds(name: str, task: dict[str, Any]) -> None:
    config = replace(CONFIG, **task)
    decoder = perturbed(decoder_for(config, parse(name), 0).eval(), 0.4)  # answers vary
    bucket = config.evaluation_bucket()
    samples = [
        (answered(decoder, problems, keys), keys)
        for problems, keys in _sample_cells(bucket, [bucket.most, (2, 5), (2, 1)], 6)
    ]
    assert all(len(set(problems.prompt_lengths)) == 1 for problems, _ in samples)
    problems = concatenate([problems for problems, _ in samples])
    keys = np.concatenate([keys for _, keys in samples])
    runner = Runner(decoder, cpu())
    by_pass = score(runner, problems, keys).exact
    cells = [pad(*sample, np.arange(len(sample[1]))) for sample in samples]
    by_loop = np.concatenate(_decode_cells(runner, cells))
    assert np.array_equal(by_loop, by_pass)
    assert 0 < by_loop.sum() < len(by_loop)
    threads = np.concatenate(_decode_cells(Runner(decoder, cpu(threads=2)), cells))
    assert np.array_equal(threads, by_loop)
