"""What a language model is asked, and what is said where its library is missing."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tape_arith.arith.harness import model
from tape_arith.arith.harness.prompts import Prompts, plain
from tape_arith.arith.tasks.load import load_task
from tests.helpers.small_training import small
from tests.helpers.tiny_runs import refused, untouched

PLAIN = small(task="addition:order=plain", trained_digits=3, tested_digits=40)


def test_problems_are_put_as_people_write_them() -> None:
    problems = load_task(PLAIN.task).parse("48+905")
    (asked,) = Prompts(PLAIN, "{problem}=", 0).of(problems)
    assert asked == ("48+905", "48+905=", "953")
    (asked,) = Prompts(PLAIN, r"Q: {problem}?\nA: {answer}", 0).of(problems)
    assert asked.prompt == "Q: 48+905?\nA:"
    assert Prompts(PLAIN, "{problem}=", 0).most_tokens == 41 + 2
    names = ["sort", "parity", "sum:order=plain", "addition:pad=true"]
    assert [plain(name) for name in names] == [
        "sort:order=plain",
        "parity",
        "sum:order=plain",
        "addition:order=plain:pad=true",
    ]


def test_examples_are_right_of_trained_lengths_and_the_same_each_time() -> None:
    prompts = Prompts(PLAIN, "What is {problem}? {answer}", 5)
    first, second = prompts.of(PLAIN.evaluation_bucket().problems(0, 2))
    *examples, last = first.prompt.split("\n")
    assert last == f"What is {first.problem}?" and second.prompt.split("\n")[:-1] == examples
    assert len(set(examples)) == 5
    for line in examples:
        problem, answer = line.removeprefix("What is ").split("? ")
        a, b = problem.split("+")
        assert int(a) + int(b) == int(answer) and max(len(a), len(b)) <= 3


def test_a_missing_library_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(model, "version", missing)
    with untouched(here):
        assert refused("harness", "--model-api", "hf", "--model-args", "pretrained=x") == (
            "language models need lm-eval: pip install 'tape-arith[harness]'"
        )
