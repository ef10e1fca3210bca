"""The frame: ratios, repeats in turn, what was asked for."""

import time

import pytest

from tape_arith.arith.bench.measure import (
    TURN,
    Measurement,
    Options,
    Timing,
    interleaved,
    not_measured,
    rounds,
    steps_in_turn,
    timed,
)
from tape_arith.arith.errors import UsageError
from tape_arith.models.names.parse import parse


def test_the_ratio_is_measured_over_limit() -> None:
    assert Measurement("s", "n", 30.0, "s", 20.0, "rope's").ratio == 1.5
    assert Measurement("s", "n", 0.0, "s", 20.0, "rope's").ratio == 0.0
    assert Measurement("s", "n", 30.0, "s").ratio is None
    assert Measurement("s", "n", None, "s", 20.0, "rope's").ratio is None
    missing = not_measured("train", "rope: MFU", "FLOP/s", "there is no GPU")
    assert missing.value is None and missing.ratio is None and missing.note == "there is no GPU"


def test_the_median_and_the_quartiles() -> None:
    assert Timing.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Timing(3.0, 1.0, 5)
    assert Timing.of([2.0]) == Timing(2.0, 0.0, 1)
    assert Timing(0.5, 0.1, 3).rate(100.0) == pytest.approx((200.0, 40.0))


class Clock:
    """Time that passes only where a test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


def test_contenders_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, order = Clock(monkeypatch), []

    def work(name: str, seconds: float) -> None:
        order.append(name)
        clock.now += seconds

    taken = interleaved(
        {"a": lambda: work("a", 1.0), "b": lambda: work("b", 3.0)}, warmup=2, repeats=3
    )
    assert "".join(order) == "aabb" + "ab" * 3
    assert taken == {"a": Timing(1.0, 0.0, 3), "b": Timing(3.0, 0.0, 3)}


def test_a_stretch_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = Clock(monkeypatch), {"short": 0, "long": 0}

    def work(name: str, seconds: float) -> None:
        calls[name] += 1
        clock.now += seconds

    functions = {"short": lambda: work("short", 0.25), "long": lambda: work("long", 3.0)}
    taken = rounds(functions, repeats=2, at_least=2.0)
    assert taken == {"short": [0.25] * 2, "long": [3.0] * 2}  # a call's, however many there are
    assert calls == {"short": 1 + 2 * 8, "long": 1 + 2 * 1}


def test_trainings_take_turns_and_each_step_off_the_clock_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel for a shape that is new takes 50 s here; nobody's clock may see it."""
    clock, order, kernels = Clock(monkeypatch), [], set()

    def train(name: str, step: int) -> None:
        order.append((name, step))
        clock.now += 1.0 + step + 100.0 * (name == "b") + 50.0 * (step not in kernels)
        kernels.add(step)

    trainings = {"a": lambda step: train("a", step), "b": lambda step: train("b", step)}
    taken = steps_in_turn(trainings, turns=2)
    first, second = list(range(TURN)), list(range(TURN, 2 * TURN))
    assert order == [
        (name, step) for turn in (first, second) for name in "ab" for step in turn + turn
    ]
    assert taken["a"] == [1.0 + step for step in first + second]
    assert taken["b"] == [101.0 + step for step in first + second]


@pytest.mark.parametrize(("seconds", "turns"), [(0.0, 1), (7.9, 1), (8.1, 2), (1e9, 3)])
def test_no_turn_begins_after_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, turns: int
) -> None:
    clock = Clock(monkeypatch)

    def train(step: int) -> None:
        clock.now += 1.0

    taken = steps_in_turn({"a": train}, turns=3, seconds=seconds)  # a turn: 2 * TURN seconds
    assert taken == {"a": [1.0] * turns * TURN}
    assert steps_in_turn({"a": train}, turns=0) == {"a": [1.0] * TURN}


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 1), (3.9, 1), (4.1, 2), (1e9, 5)])
def test_no_round_begins_after_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: int
) -> None:
    clock = Clock(monkeypatch)

    def work() -> None:
        clock.now += 2.0

    taken = rounds({"a": work, "b": work}, repeats=5, seconds=seconds)
    # A round is 4 s; one that began at 4.0 is past 3.9 and not past 4.1.
    assert taken == {"a": [2.0] * expected, "b": [2.0] * expected}
    assert timed(work, warmup=0, repeats=0).repeats == 1


def test_the_config_that_was_asked_for() -> None:
    chosen = Options(settings={"batch_size": "7"}).config("mini", hidden_size=64, batch_size=9)
    assert (chosen.hidden_size, chosen.batch_size, chosen.num_layers) == (64, 7, 4)
    asked = Options(preset="paper-20", settings={"batch_size": "7"}).config("mini", hidden_size=64)
    assert (asked.hidden_size, asked.batch_size, asked.trained_digits) == (1024, 7, 20)
    with pytest.raises(UsageError, match="hidden_size"):
        Options(settings={"hiden_size": "7"}).config("mini")


def test_the_encodings_that_were_asked_for() -> None:
    assert [str(name) for name in Options().names("rope", "tape")] == ["rope", "tape"]
    given = Options(encodings=(parse("fire:width=8"),))
    assert [str(name) for name in given.names("rope")] == ["fire:width=8"]
    with pytest.raises(UsageError, match="measure tape"):
        Options(encodings=(parse("tape+yarn"),)).names("rope")
