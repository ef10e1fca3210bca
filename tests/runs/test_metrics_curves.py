"""Curves and last states out of lines of metrics."""

from pathlib import Path

import pytest

from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.metrics import by_length, curve, last_states, states
from tests.helpers.tiny_runs import done, settings


def line(step: int, inside: float, outside: float | None) -> dict[str, object]:
    grid = {"in_distribution": inside, "out_of_distribution": outside, "by_length": {"1": inside}}
    return {"step": step, "loss": 1.0, "exact_match": inside, "small_grid": grid}


def lines(count: int) -> list[dict[str, object]]:
    """Two lines a hundred steps, of which one is an evaluation."""
    made: list[dict[str, object]] = []
    for k in range(1, count + 1):
        made += [{"step": 100 * k - 50, "loss": 2.0, "exact_match": None}]
        made += [line(100 * k, 0.9 + 0.01 * (k % 3), 0.1 * (k % 4))]
    return made


def test_the_last_five_states() -> None:
    last = last_states(lines(9))
    assert last is not None
    assert last.steps == (500, 600, 700, 800, 900)
    assert last.values == pytest.approx((0.1, 0.2, 0.3, 0.0, 0.1))
    inside = last_states(lines(9), "in_distribution")
    assert inside is not None and inside.values == pytest.approx((0.92, 0.9, 0.91, 0.92, 0.9))


@pytest.mark.parametrize("count", [0, 1])
def test_one_state_has_no_spread(count: int) -> None:
    assert last_states(lines(count)) is None


def test_fewer_than_five_are_told_as_they_are() -> None:
    last = last_states(lines(3))
    assert last is not None and last.steps == (100, 200, 300)


def test_nothing_longer_was_tested() -> None:
    made = [line(100, 0.5, None), line(200, 0.7, None)]
    assert last_states(made) is None
    assert last_states(made, "in_distribution") is not None


def test_a_run_that_was_not_looked_at_has_no_curves() -> None:
    made: list[dict[str, object]] = [{"step": 20, "loss": 2.0, "exact_match": None}]
    assert last_states(made) is None and curve(made, "in_distribution") == []
    assert by_length(made) == {} and states(made) == {}


def test_a_run_by_command(here: Path) -> None:
    """Its own lines are read, with and without curves; the weights are the same."""
    made = settings(steps=4, num_layers=2)
    done("train", "--pe", "tape", *made, "--no-score")
    done("train", "--pe", "tape", *made, "--no-score", "--no-curves", "--out", "blind")
    looked, blind = (RunFolder(Path(root, "mini/tape/seed-0")) for root in ("runs", "blind"))
    assert curve(looked.metrics(), "out_of_distribution")[0][0] == 4
    assert list(by_length(looked.metrics())) == [1, 2, 3]
    assert states(looked.metrics())["norm"][0][1][0] == pytest.approx(2**0.5)
    assert "small_grid" not in blind.metrics()[-1] and "state" in blind.metrics()[-1]
    assert looked.final.read_bytes() == blind.final.read_bytes()
    assert looked.record() == blind.record()


def test_run_takes_no_curves_too(here: Path) -> None:
    done("run", "--pe", "rope", "--no-curves", *settings())
    assert "small_grid" not in RunFolder(Path("runs/mini/rope/seed-0")).metrics()[-1]
