"""The commands on tiny runs: what they print, write and refuse."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.suite.tiny import contents, done, refused, settings, untouched

NAMES = ("rope", "tape", "fire", "nope")
TINY = settings(num_layers=2, problems_per_cell=6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of NAMES, to 2 digits trained and to 3 tested."""
    folder = tmp_path_factory.mktemp("studied")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in NAMES:
            done("train", "--pe", name, "--no-score", *TINY)
        done("train", "--pe", "rope", "--seed", 1, "--no-score", *TINY)
    return folder


@pytest.fixture(autouse=True)
def here(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained


def run(name: str, seed: int = 0) -> str:
    return f"runs/mini/{name}/seed-{seed}"


def read(*arguments: object) -> dict[str, Any]:
    content = json.loads(done(*arguments, "--json").out)
    assert isinstance(content, dict)
    return content


# ---- stability ---------------------------------------------------------------------------------


def test_stability(tmp_path: Path) -> None:
    out, plot = tmp_path / "s.csv", tmp_path / "s.png"
    runs = [run("rope"), run("tape"), run("fire"), run("rope", 1)]
    with untouched(Path("runs")):
        told = done("stability", *runs, "--problems", 20, "--out", out, "--plot", plot)
    assert told.out.startswith(
        "| encoding | seeds | trained with | numbers | change | of | layer 1 "
    )
    assert (
        "| rope | 0, 1 | no [BOS] | float32 | indices start at 3 | attention weights |" in told.out
    )
    assert "20 problems" in told.out and plot.stat().st_size > 10_000
    with open(out, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    content = read("stability", *runs, "--problems", 20)
    assert sum(len(one["values"] or [0]) for one in content["series"]) == len(rows)
    assert {one["run"] for one in content["series"]} == set(runs)
    for one in content["series"]:
        if one["encoding"] in ("rope", "tape") and one["change"] != "BOS":
            assert one["at_rounding_level"] == [True, True]
        if one["encoding"] == "fire" and one["measure"] == "attention":
            assert one["at_rounding_level"] == [False, False]


def test_stability_in_float64() -> None:
    content = read("stability", run("tape"), "--problems", 5, "--double")
    exact = [one for one in content["series"] if one["precision"] == "float64"]
    assert len(exact) == len(content["series"]) / 2
    for one in exact:
        if one["change"] != "BOS":
            assert 0 < max(one["values"]) < 1e-12


def test_what_stability_refuses(tmp_path: Path) -> None:
    with untouched(Path("runs")):
        assert "54 problems, and 55 are asked for" in refused(
            "stability", run("rope"), "--problems", 55
        )
        assert "named twice" in refused("stability", run("rope"), f"./{run('rope')}")
        assert "holds no run" in refused("stability", "runs/mini/none/seed-0")
        assert ".png, .svg or .pdf" in refused("stability", run("rope"), "--plot", "x.gif")
    assert "x.gif" not in contents(Path())
    other = ("train", "--pe", "nope", "--no-score", "--out", tmp_path)
    done(*other, *settings(num_layers=2, problems_per_cell=6, steps=6))
    line = refused("stability", run("rope"), tmp_path / "mini/nope/seed-0")
    assert "cannot be compared" in line and "steps 6, not 4" in line
