"""A task in plain text is a task like others: that of the README, against regular expressions."""

import re
from pathlib import Path

import pytest

from tape_arith.arith.contracts import task as contract
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.registry.locate import folder
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems
from tests.helpers.tiny_runs import done, refused, settings

README = folder("task") / "README.md"
NAME = "run_lengths.py:RunLengths"
TINY = settings(task=NAME)


@pytest.fixture(autouse=True)
def run_lengths(here: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "class RunLengths" in block]
    Path("run_lengths.py").write_text(code)


def written(problems: Problems) -> list[tuple[str, str]]:
    lines = load_task(NAME).vocabulary.lines(problems.tokens).splitlines()
    return [(question, answer) for question, _, answer in (line.partition("=") for line in lines)]


def test_problems_are_right_and_every_length_is_drawn() -> None:
    problems = Bucket(NAME, 12, 0, "train").problems(0, 600)
    pairs = written(problems)
    for question, answer in pairs:
        runs = re.finditer(r"0+|1+", question)
        assert answer == "".join(f"{len(run[0])}{run[0][0]}" for run in runs)
    assert sorted({len(question) for question, _ in pairs}) == list(range(1, 13))
    assert len({question for question, _ in pairs if len(question) == 12}) > 40
    again = Bucket(NAME, 12, 0, "train").problems(300, 600)
    assert written(again) == pairs[300:]
    assert written(Bucket(NAME, 12, 1, "train").problems(0, 600)) != pairs
    bounds = load_task(NAME).final_lengths(problems.axis_lengths, problems.prompt_lengths)
    assert (problems.lengths <= bounds).all() and (problems.final_lengths == bounds).all()


def test_it_is_checked_trained_and_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    in_process = [check for check in contract.CHECKS if check is not contract.check_processes]
    monkeypatch.setattr(contract, "CHECKS", in_process)
    assert "BROKEN" not in done("check", NAME).out
    done("train", "--pe", "rope", *TINY)
    (run,) = Path("runs").glob("*/rope/seed-0")
    assert "2110" in done("ask", run, "110").out  # the right answer, whatever its own is
    assert "write it as in 11101" in refused("ask", run, "12")


def test_a_symbol_that_the_vocabulary_lacks_is_named() -> None:
    code = Path("run_lengths.py").read_text().replace("{len(list(run))}{bit}", "{bit}*")
    Path("starred.py").write_text(code.replace("RunLengths", "Starred"))
    message = refused("train", "--pe", "rope", *settings(task="starred.py:Starred"))
    assert "'*'" in message and "`symbols`" in message
