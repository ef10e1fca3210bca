"""The contract of tasks: every task keeps it, and each check has a slip that it alone sees."""

import json
import subprocess
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from tape_arith.arith.contracts import task as task_contract
from tape_arith.arith.contracts.promises import as_text
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.tasks.load import load_task, task_hash
from tests.helpers.tiny_runs import call, done, refused, settings

FORMATS = (
    "addition:order=plain:scratchpad=true",
    "addition:hints=true:markers=99:pad=true:spaces=9",
    "passkey:key=5:depths=3:spaces=4",
    "recall:gaps=3:keys=116",
    "multiplication:b_digits=3:scratchpad=true",
    "sum:scratchpad=true:hints=true",
)
MORE_FORMATS = (
    "copy:hints=true",
    "modular-sum:modulus=10000:spaces=3",
    "multiplication:scratchpad=true",
    "or:op=xor:pad=true",
    "sort:order=plain:pad=true",
    "subtraction:hints=true:order=plain",
)
MINE = '''
import numpy as np

from tape_arith.arith.tasks.families.numbers import digits_of
from tape_arith.arith.tasks.families.strings import OneString
from tape_arith.arith.tasks.families.writing import Field


class Mine(OneString):
    """The same string."""

    version = 1
    example = "3014"

    def answer(self, string):
        return string

    def answer_digits(self, lengths):
        return lengths[:, 0]
'''
SLIPS = {
    "builds": """
    def draw(self, lengths, halves, most):
        return super().draw(lengths[1:], halves, most)
""",
    "tokens": """
    def answer_fields(self, drawn, write):
        marks = np.full((len(drawn.lengths), 1), 2, np.uint8)
        return [Field(marks, np.ones(len(marks), np.int64)), *super().answer_fields(drawn, write)]

    def answer_bound(self, lengths):
        return lengths[:, 0] + 1
""",
    "bounds": """
    def prompt_bound(self, lengths):
        return lengths[:, 0]
""",
    "final length": """
    def answer_bound(self, lengths):
        return np.full(len(lengths), lengths.max())
""",
    "lengths": """
    def draw(self, lengths, halves, most):
        return super().draw(np.minimum(lengths, 20), halves, most)
""",
    "cells": """
    def problems(self, drawn, lengths, format_halves):
        made = super().problems(drawn, lengths, format_halves)
        return made._replace(axis_lengths=np.maximum(lengths, 2))
""",
    "slices": """
    def draw(self, lengths, halves, most):
        string = super().draw(lengths, halves, most)
        string.values[:, 0] = np.random.default_rng().integers(10, size=len(lengths))
        return string
""",
    "processes": """
    first = np.random.default_rng().permutation(10).astype(np.uint8)

    def draw(self, lengths, halves, most):
        string = super().draw(lengths, halves, most)
        string.values[:, 0] = self.first[string.values[:, 0]]
        return string
""",
    "answers": """
    def answer(self, string):
        shown = string.values[:, 0] > 0
        return type(string)(string.values * shown[:, None], string.lengths * shown)
""",
    "reading": """
    def read(self, written):
        string = digits_of([str(int(written))])
        return string, string.lengths[None]
""",
    "any length": """
    def answer_digits(self, lengths):
        return np.minimum(lengths[:, 0], 18)
""",
}


def write(slip: str = "") -> None:
    Path("mine.py").write_text(MINE + slip)


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes the same problems, without starting one."""

    def run(command: list[str], **_: object) -> CompletedProcess[str]:
        return CompletedProcess(command, 0, task_contract.problems_hash("mine.py:Mine"))

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    "name",
    [
        *(*known_names("task"), *FORMATS),
        *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_FORMATS),
    ],
)
def test_every_task_keeps_it(name: str) -> None:
    report = task_contract.examine(name)
    assert report.holds and not report.warnings, as_text(report)


@pytest.mark.parametrize("check", SLIPS)
def test_each_check_sees_its_slip_alone(
    check: str, here: Path, request: pytest.FixtureRequest
) -> None:
    if check != "processes":
        request.getfixturevalue("one_process")
    write(SLIPS[check])
    report = task_contract.examine("mine.py:Mine")
    assert [outcome.check for outcome in report.outcomes if not outcome.holds] == [check]


@pytest.mark.usefixtures("one_process")
def test_a_bound_that_tells_of_the_answers_beside_it_is_seen(here: Path) -> None:
    write(
        """
    odd = 0

    def answer(self, string):
        self.odd = int(string.values.sum() % 2)
        return string

    def answer_digits(self, lengths):
        return lengths[:, 0] + self.odd
"""
    )
    (broken,) = [each for each in task_contract.examine("mine.py:Mine").outcomes if not each.holds]
    assert broken.check == "final length" and "other problems" in broken.happened


PLACE = """
    from tape_arith.arith.tasks.task import Axis

    axes = (OneString.axes[0], Axis("depth", "depth", counts="places", places=3))
"""


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(
    ("slip", "broken", "happened"),
    [
        (PLACE, "", ""),
        (PLACE.replace(", places=3", ""), "builds", "0 places on the axis depth"),
        (PLACE.replace('"places"', '"digits"'), "builds", "3 places on the axis depth"),
        (
            PLACE + SLIPS["bounds"].replace("lengths[:, 0]", "lengths.sum(axis=1) + 1"),
            "lengths",
            "another depth: no place",
        ),
    ],
)
def test_a_place_has_a_number_and_makes_no_prompt_longer(
    slip: str, broken: str, happened: str, here: Path
) -> None:
    write(slip)
    outcomes = [each for each in task_contract.examine("mine.py:Mine").outcomes if not each.holds]
    assert [outcome.check for outcome in outcomes] == [broken] * bool(broken)
    assert all(happened in outcome.happened for outcome in outcomes)


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(
    ("slip", "broken"),
    [
        ("\n    axes = 3 * OneString.axes\n", "builds: axes of "),
        ("\n    axes = ()\n", "builds: axes of "),
        (SLIPS["bounds"], "bounds: "),
    ],
)
def test_what_breaks_a_promise_is_not_trained(slip: str, broken: str, here: Path) -> None:
    write(slip)
    line = refused("train", "--pe", "rope", "--task", "mine.py:Mine", *settings())
    assert "mine.py:Mine" in line and f"({broken}" in line
    assert not Path("runs").exists()


def test_it_is_checked_by_name_and_by_file(here: Path) -> None:
    write()
    for name in ("mine.py:Mine", "sort:pad=true"):
        content = json.loads(done("check", name, "--json").out)
        assert content["name"] == name and content["holds"] and len(content["outcomes"]) == 11
    write(SLIPS["reading"])
    result = call("check", "mine.py:Mine")
    assert result.code == 1 and "ValueError" in result.out and "int()" in result.out
    write("\n    def answer(self, string):\n        return {1: string}[len(string.lengths)]\n")
    for command in (("check",), ("train", "--pe", "rope", *settings(), "--task")):
        said = call(*command, "mine.py:Mine")
        text = said.out + said.err
        assert "KeyError: 2000" in text and "(line 22" in text
        assert "looks into" not in text and said.code in (1, 2)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"{MINE}\n    def read(self, written):\n        return {{}}[written]\n", "(line 22 of"),
        (MINE.replace("version = 1", "").replace("example =", "other ="), "version, example:"),
        (MINE.replace("def answer_digits", "def other_digits"), "lacks answer_digits:"),
        (MINE.replace("def answer(", "def other("), "define `answer` or `answer_fields`"),
        (f'{MINE}\n    symbols = "→"\n', "'→' in `symbols` is not in Latin-1"),
        ("import nothing_of_the_kind\n\n\nclass Mine:\n    pass\n", "cannot be imported"),
    ],
)
def test_what_is_not_defined_is_named(source: str, message: str, here: Path) -> None:
    Path("mine.py").write_text(source)
    line = refused("check", "mine.py:Mine")
    assert "mine.py:Mine" in line and message in line


@pytest.mark.usefixtures("one_process")
def test_an_answer_may_be_of_other_symbols(here: Path) -> None:
    start = MINE.replace("version = 1", 'version = 1\n    symbols = "YN"').partition(
        "    def answer("
    )[0]
    letters = """    def answer_fields(self, string, write):
        odd = string.values[:, 0] % 2 == 1
        return [write.symbol("Y", odd), write.symbol("N", ~odd)]

    def answer_digits(self, lengths):
        return 0 * lengths[:, 0] + 1
"""
    Path("mine.py").write_text(start + letters)
    report = task_contract.examine("mine.py:Mine")
    assert report.holds, as_text(report)
    own = load_task("mine.py:Mine")
    assert [own.text("3014"), own.text("40")] == ["3014=Y", "40=N"]


def test_lengths_that_a_task_of_one_s_own_may_have(here: Path) -> None:
    twice = MINE.replace("return lengths[:, 0]", "return 2 * lengths[:, 0]")
    Path("mine.py").write_text(twice)
    task_hash("mine.py:Mine")
    reach = load_task("mine.py:Mine").places(np.array([[3], [5]]))
    assert reach.tolist() == [6, 10]  # hints and places reach the end of an answer
    write("\n    axes = (OneString.axes[0]._replace(shortest=3),)\n")
    task_hash("mine.py:Mine")
    with pytest.raises(UsageError, match="digits, not 2"):
        Bucket("mine.py:Mine", 2, 0, "train")
    assert Bucket("mine.py:Mine", 3, 0, "train").num_cells == 1


@pytest.mark.parametrize(
    ("returned", "described"),
    [
        ("[3, 4]", "list"),
        ("string.values", "ndarray"),
        ("string._replace(values=string.values / 2)", "Digits(float64[1, 4], int64[1])"),
        ("string._replace(lengths=string.lengths[:, None])", "Digits(uint8[1, 4], int64[1, 1])"),
        ("string._replace(values=string.values[0])", "Digits(uint8[4], int64[1])"),
    ],
)
def test_numbers_of_another_shape_are_described(returned: str, described: str, here: Path) -> None:
    Path("mine.py").write_text(MINE.replace("return string", f"return {returned}"))
    line = refused("check", "mine.py:Mine")
    assert line.endswith(f"not {described}") or f"not {described}" in line


def test_a_task_that_fails_later_is_blamed(here: Path) -> None:
    """At lengths that no check has met."""
    write(SLIPS["final length"].replace("np.full(", "exit(0) if lengths.max() == 9 else np.full("))
    task_hash("mine.py:Mine")  # as training and scoring do first: it is loaded anew
    with pytest.raises(Failure, match=r"mine\.py:Mine.* \(line 22"):
        Bucket("mine.py:Mine", 9, 0, "train")
