"""Warm-up, constant, cool-down, and what an extension keeps of them."""

import pytest

from tape_arith.arith.training.config import Schedule
from tests.helpers.small_training import small


def test_the_recipe() -> None:
    schedule = small(steps=1000, warmup=0.1, cooldown=0.1).schedule()
    assert schedule == Schedule(1000, 100, 100) and schedule.cooldown_start == 900
    factors = [schedule.factor(step) for step in range(1000)]
    assert factors[:100] == pytest.approx([(step + 1) / 100 for step in range(100)])
    assert set(factors[100:900]) == {1.0}
    # The first step of the cool-down is the last at the full rate; none is at 0.
    assert factors[900:] == pytest.approx([left / 100 for left in range(100, 0, -1)])


def test_without_warmup_or_cooldown_the_rate_is_constant() -> None:
    assert {
        small(steps=7, warmup=0.0, cooldown=0.0).schedule().factor(step) for step in range(7)
    } == {1.0}


@pytest.mark.parametrize("warmup, cooldown", [(0.1, 0.1), (0.5, 0.5), (0.9, 0.1), (0.0, 0.2)])
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 101])
def test_it_rises_then_falls_within_its_bounds(steps: int, warmup: float, cooldown: float) -> None:
    schedule = small(steps=steps, warmup=warmup, cooldown=cooldown).schedule()
    factors = [schedule.factor(step) for step in range(steps)]
    assert all(0 < factor <= 1 for factor in factors)
    top = factors.index(max(factors))
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)


def test_an_extension_keeps_the_warmup_and_moves_the_cooldown() -> None:
    first = small(steps=100, cooldown=0.1).schedule()
    extended = small(steps=400, cooldown=0.1).schedule(first_steps=100)
    assert extended.warmup_steps == first.warmup_steps == 10
    assert extended.cooldown_steps == 40 and extended.cooldown_start == 360
    before = range(first.cooldown_start)
    assert [first.factor(step) for step in before] == [extended.factor(step) for step in before]
    assert first.factor(95) < extended.factor(95) == 1
