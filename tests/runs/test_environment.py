"""What a run says it ran on."""

import json
import tomllib
from pathlib import Path

import pytest

from tape_arith.arith import machine
from tests.helpers.tiny_runs import done, settings

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_that_of_the_code_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable installation notes the version of the day it was made."""
    monkeypatch.setattr(machine, "version", {"tape-arith": "0.0.1"}.__getitem__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert machine.own_version() == project["version"] != "0.0.1"
    monkeypatch.setattr(machine, "ROOT", tmp_path)  # as it is where it was installed
    assert machine.own_version() == "0.0.1"
    assert machine.commit() is None


def test_a_run_keeps_what_it_ran_on_before(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("train", "--pe", "rope", *settings(), "--no-score")
    file = Path("runs/mini/rope/seed-0/environment.json")
    first = json.loads(file.read_text())
    assert "earlier" not in first
    monkeypatch.setattr("tape_arith.arith.runs.build.own_version", lambda: "9.9.9")
    for _ in range(2):  # the same once more is not told twice
        told = done("train", file.parent, "--steps", 6, "--no-score")
        now = json.loads(file.read_text())
        (before,) = now["earlier"]
        assert now["tape-arith"] == "9.9.9" and before["tape-arith"] == first["tape-arith"]
        assert before["commit"] == first["commit"] and before["command"] == first["command"]
    assert told.code == 0


def test_a_grid_says_what_scored_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("train", "--pe", "rope", *settings(), "--no-score")
    monkeypatch.setattr("tape_arith.arith.runs.build.own_version", lambda: "9.9.9")
    done("score", "runs/mini/rope/seed-0")
    scoring = json.loads(Path("runs/mini/rope/seed-0/grid.json").read_text())["scoring"]
    assert scoring["tape-arith"] == "9.9.9" and scoring["attention"] == "eager"
    assert {"torch", "hardware", "dtype", "threshold"} <= scoring.keys()
