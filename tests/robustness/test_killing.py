"""Killed at any moment, a command goes on and ends where an unbroken one does. `killing.py` does
the same for hours: `python -m tests.robustness.killing --help`."""

import random
import signal
from pathlib import Path

import pytest

from tests.robustness import killing

KILLS = {"generate": 6, "train": 5, "extend": 3, "score": 4, "sweep": 2}
"""20 in all: a seed of their own each, so that one command's kills do not depend on another's."""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="sees writes through /proc")
@pytest.mark.parametrize("name", KILLS)
def test_killed_at_any_moment(tmp_path: Path, name: str) -> None:
    draw = random.Random(f"{name} 0")
    made = list(killing.campaign(name, tmp_path, draw, lambda made: made >= KILLS[name]))
    assert len(made) == KILLS[name]
    assert {kill.number for kill in made} == {signal.SIGKILL, signal.SIGTERM}
    assert {kill.when.split()[0] for kill in made} == {"before", "after"}  # a write, so many s
