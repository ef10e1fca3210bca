"""Sweeps draw no figure and time no step, which takes longer than all runs of a test."""

from pathlib import Path

import pytest

from tape_arith.arith.figures import ablations, heatmap
from tape_arith.arith.sweeps import results
from tape_arith.arith.training.step import Stepper


@pytest.fixture(autouse=True)
def nothing_drawn_or_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """But by fixtures of a module or session: figures are empty files, and a step takes 2 s."""

    def save(figure: object, path: Path) -> None:
        path.touch()

    monkeypatch.setattr(results, "save", save)
    for figure in (heatmap, ablations):
        monkeypatch.setattr(figure, "compose", lambda *_: None)
    monkeypatch.setattr(Stepper, "timed_step", lambda _: 2.0)
