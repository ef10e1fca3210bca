"""`ask`: greedy answers beside one teacher-forced pass, and problems that are refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tape_arith.arith.data.rows import pad
from tape_arith.arith.runs.answer import answer
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.weights import trained_decoder
from tape_arith.arith.scoring.score import answer_logits
from tape_arith.arith.tasks.task import load_task
from tape_arith.models.build import prepare
from tape_arith.models.names import parse, parse_extrapolation
from tests.helpers.tiny_runs import done, refused
from tests.scoring.test_score import with_answers

RUNS = {"rope": None, "fire": None, "tape": "yarn"}
SYMBOLS = {symbol: number for number, symbol in enumerate("0123456789+-x= ", start=4)}
SYMBOLS |= {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}


@pytest.mark.parametrize("encoding", RUNS)
@pytest.mark.parametrize("written", ["7+5", "123 + 45", "999+1"])
def test_answers_are_those_of_one_forward(trained: Path, encoding: str, written: str) -> None:
    folder = RunFolder(trained / "runs/mini" / encoding / "seed-0")
    way = RUNS[encoding]
    told = answer(folder, written, parse_extrapolation(way) if way else None)
    record = folder.record()
    name = parse(encoding + (f"+{way}" if way else ""))
    decoder, hardware = trained_decoder(folder, name, record)
    problem = load_task("addition").parse(written)
    ids = [SYMBOLS[token] for token in told.tokens]
    forced = with_answers(problem, [ids])
    exact = hardware.in_float32()
    rows = pad(forced, torch.zeros(1, dtype=torch.int64).numpy(), torch.zeros(1).long().numpy())
    shares = answer_logits(prepare(decoder, exact).eval(), rows, exact).softmax(-1)
    assert shares.argmax(-1).tolist() == ids
    torch.testing.assert_close(shares.amax(-1), torch.tensor(told.probabilities))
    a, b = map(int, written.split("+"))
    assert told.expected == (*reversed(str(a + b)), "[EOS]")
    assert told.right == (told.tokens == told.expected)
    right = replace(told, tokens=told.expected)
    assert right.right and right.text == str(a + b)


def test_the_command(comparison: Path) -> None:
    content = json.loads(done("ask", "rope", "12+7", "--seed", 1, "--json").out)
    assert content["run"] == "runs/mini/rope/seed-1" and content["expected"] == "19"
    lines = done("ask", "runs/mini/rope/seed-1", "12+7").out.splitlines()
    assert lines[0].startswith(f"12+7 = {content['answer']}: wrong, it is 19 (rope)")
    assert len(lines) == 1 + len(content["tokens"])
    assert done("ask", "rope+yarn", "1+2").out == done("ask", "rope", "1+2", "--with", "yarn").out
    for command, words in {
        ("rope", "1234+1"): "operand of 4 digits, and runs/mini/rope/seed-0 takes up to 3",
        ("rope", "12*3"): "as in 123+45",
        ("rope", "012+3"): "without leading zeros",
        ("nope", "1+2"): "`tape-arith train --pe nope` trains one",
        ("rope", "1+2", "--preset", "paper-40"): "--preset paper-40` trains one",
        ("runs/mini", "1+2"): "runs/mini holds no run",
        ("ropee", "1+2"): "did you mean 'rope'?",
        ("runs/mini/rope/seed-0", "1+2", "--seed", "1"): "go with an encoding's name",
    }.items():
        assert words in refused("ask", *command)
    shutil.rmtree("runs/mini/rope/seed-0/weights")
    assert "its weights are not here" in refused("ask", "rope", "1+2")
