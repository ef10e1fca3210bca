"""Interleaved timing, and what an option asks for."""

import time
from itertools import count

import pytest

from tape_arith.arith.bench import measure
from tape_arith.arith.bench.measure import TURN, rates, time_interleaved, time_trainings


def test_functions_take_turns_and_the_first_call_is_off_the_clock() -> None:
    """A function that makes a kernel at its first call takes 30 ms then, which no clock may see."""
    calls: list[tuple[str, int]] = []

    def work(name: str, number: int) -> None:
        if (name, number) not in calls:
            time.sleep(0.03)
        calls.append((name, number))

    functions = {name: lambda number, name=name: work(name, number) for name in "ab"}
    taken = time_interleaved(functions, 1e9, most=2)
    assert calls == [(name, number) for number in (0, 1) for name in "aabb"]
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 2, "b": 2}
    assert max(*taken["a"], *taken["b"]) < 0.02


def test_a_short_call_is_repeated_and_counted_once() -> None:
    taken = time_interleaved({"a": lambda _: time.sleep(0.001)}, 0, fill=0.02)["a"]
    assert min(taken) >= 0.001 and sum(taken) / len(taken) < 0.01


def test_trainings_take_the_same_steps_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, int]] = []
    trainings = {name: lambda step, name=name: steps.append((name, step)) for name in "ab"}
    monkeypatch.setattr(measure, "monotonic", count().__next__)  # a second a look
    taken = time_trainings(trainings, seconds=1.5)
    first, second = list(range(TURN)), list(range(TURN, 2 * TURN))
    assert steps == [
        (name, step) for turn in (first, second) for name in "ab" for step in turn + turn
    ]
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 2, "b": 2}
    assert rates(lambda step: step, [2.0, 4.0]) == [sum(first) / 2.0, sum(second) / 4.0]
