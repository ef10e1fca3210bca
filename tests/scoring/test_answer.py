"""`ask`: greedy answers beside one teacher-forced pass, and problems that are refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tape_arith.arith.data.rows import pad
from tape_arith.arith.decoders.weights import trained_decoder
from tape_arith.arith.registry.names import parse, parse_extrapolation
from tape_arith.arith.runs.run import Run
from tape_arith.arith.scoring.answer import Answer, answer
from tape_arith.arith.scoring.score import answer_logits
from tape_arith.arith.tasks.load import load_task
from tape_arith.models.runner import Runner
from tests.helpers.small_training import cpu
from tests.helpers.tiny_runs import done, refused, settings
from tests.scoring.test_score import with_answers

SYMBOLS = {symbol: number for number, symbol in enumerate("0123456789+-x= ", start=4)}
SYMBOLS |= {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}


@pytest.mark.parametrize("name", ["rope", "fire", "tape+yarn"])
def test_answers_are_those_of_one_forward(trained: Path, name: str) -> None:
    encoding, _, way = name.partition("+")
    folder = Run(trained / "runs/mini" / encoding / "seed-0")
    decoder = trained_decoder(folder, parse(name), folder.record()).eval()
    for written in ("7+5", "123 + 45", "999+1"):
        given = answer(folder, written, parse_extrapolation(way) if way else None)
        ids = [SYMBOLS[token] for token in given.tokens]
        forced = with_answers(load_task("addition").parse(written), [ids])
        rows = pad(forced, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        shares = answer_logits(Runner(decoder, cpu()), rows).detach().softmax(-1)
        assert shares.argmax(-1).tolist() == ids
        torch.testing.assert_close(shares.amax(-1), torch.tensor(given.probabilities))
        a, b = map(int, written.split("+"))
        assert given.expected == (*reversed(str(a + b)), "[EOS]")
        assert given.right == (given.tokens == given.expected)
        right = replace(given, tokens=given.expected)
        assert right.right and right.text == str(a + b)


@pytest.mark.parametrize(
    ("task", "problem", "text", "places"),
    [
        ("addition", "999+1", "1000", "10^0 10^1 10^2 10^3 end"),
        ("addition:order=plain", "999+1", "1000", "10^3 10^2 10^1 10^0 end"),
        ("addition:hints=true", "48+5", "53", " 10^0  10^1 end"),
        ("addition:scratchpad=true", "48+5", "01>53", "10^0 10^1  10^0 10^1 end"),
        ("subtraction", "5-48", "-43", "10^0 10^1  end"),
        ("subtraction:order=plain", "5-48", "-43", " 10^1 10^0 end"),
        ("sort", "45,7,123", "7,45,123", "10^0  10^0 10^1  10^0 10^1 10^2 end"),
        ("sum:scratchpad=true", "12+5+7", "17>24", "10^0 10^1  10^0 10^1 end"),
        ("modular-sum:modulus=97", "9+9", "18", "10^0 10^1 end"),
        ("copy:hints=true", "304", "304", " 1  2  3 end"),
        ("reverse", "304", "403", "1 2 3 end"),
        ("or", "0101|001", "0101", "2^0 2^1 2^2 2^3 end"),
        ("parity", "10110", "1", "1 end"),
    ],
)
def test_answers_are_written_as_people_write_them(
    task: str, problem: str, text: str, places: str
) -> None:
    parsed, names = load_task(task).parse(problem), load_task(task).vocabulary.names
    tokens = tuple(names[token] for token in parsed.tokens[int(parsed.prompt_lengths[0]) :])
    right = Answer("run", "rope", task, problem, tokens, (1.0,) * len(tokens), tokens)
    assert right.text == text == right.content()["expected"]
    first, *lines = repr(right).splitlines()
    assert first.split(": ") == [f"{problem} = {text}", "right (rope)"]
    assert [line[2:8].strip() for line in lines] == places.split(" ")


def test_another_task_is_asked(here: Path) -> None:
    lengths = settings(trained_operands=2, tested_operands=3)
    run = done("train", "--pe", "rope", "--task", "sort", *lengths, "--no-score").out.strip()
    assert done("ask", "rope", "45,7,123").out.startswith("45,7,123 =")
    assert "7,45,123 (rope)" in done("ask", run, "45,7,123").out
    assert "4 numbers" in refused("ask", run, "1,2,3,4")
    assert "45,7,123" in refused("ask", run, "1+2")


def test_the_command(comparison: Path) -> None:
    content = json.loads(done("ask", "rope", "12+7", "--seed", 1, "--json").out)
    assert content["run"] == "runs/mini/rope/seed-1" and content["expected"] == "19"
    lines = done("ask", "runs/mini/rope/seed-1", "12+7").out.splitlines()
    assert lines[0].startswith(f"12+7 = {content['answer']}:") and "19 (rope)" in lines[0]
    assert len(lines) == 1 + len(content["tokens"])
    assert done("ask", "rope+yarn", "1+2").out == done("ask", "rope", "1+2", "--with", "yarn").out
