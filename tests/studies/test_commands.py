"""The commands on tiny runs: what they print, write and refuse."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.weights import trained_decoder, trained_record
from tape_arith.arith.studies.inputs import Sample
from tape_arith.arith.studies.stability import deviations
from tape_arith.models.backends import AttentionChoice
from tape_arith.models.names.parse import parse
from tests.helpers.tiny_runs import contents, done, refused, settings, untouched

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


def read_json(*arguments: object) -> dict[str, Any]:
    content = json.loads(done(*arguments, "--json").out)
    assert isinstance(content, dict)
    return content


# ---- stability ---------------------------------------------------------------------------------


def test_stability(tmp_path: Path) -> None:
    out, plot = tmp_path / "s.csv", tmp_path / "s.png"
    runs = [run("rope"), run("tape"), run("fire"), run("rope", 1)]
    with untouched(Path("runs")):
        result = done("stability", *runs, "--problems", 20, "--out", out, "--plot", plot)
    assert result.out.startswith(
        "| encoding | seeds | trained with | numbers | change | of | layer 1 "
    )
    assert (
        "| rope | 0, 1 | no [BOS] | float32 | indices start at 3 | attention weights |"
        in result.out
    )
    assert "20 problems" in result.out and plot.stat().st_size > 10_000
    with open(out, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    content = read_json("stability", *runs, "--problems", 20)
    assert sum(len(one["values"] or [0]) for one in content["series"]) == len(rows)
    assert {one["run"] for one in content["series"]} == set(runs)
    for one in content["series"]:
        if one["encoding"] in ("rope", "tape") and one["change"] != "BOS":
            assert one["at_rounding_level"] == [True, True]
        if one["encoding"] == "fire" and one["measure"] == "attention":
            assert one["at_rounding_level"] == [False, False]


def test_the_problems_are_the_evaluation_set_s() -> None:
    """As scored: not the training's, and of the tested lengths."""
    folder = RunFolder(Path(run("tape")))
    record = trained_record(folder)
    decoder, _ = trained_decoder(folder, parse("tape"), record, AttentionChoice("eager"))
    bucket = Bucket("addition", 3, 0, "evaluation")
    expected = deviations(
        decoder.eval(), Sample(bucket.problems(0, 20), bucket.keys(0, 20), np.arange(20)), "cpu"
    )
    content = read_json("stability", run("tape"), "--problems", 20)
    assert content["evaluation"]["sha256"] == bucket.sha256(20)
    for ours, theirs in zip(content["series"], expected, strict=True):
        assert (ours["change"], ours["measure"]) == (theirs.change, theirs.measure)
        assert tuple(ours["values"]) == theirs.values


def test_runs_trained_with_bos_beside_others(tmp_path: Path) -> None:
    options = settings(num_layers=2, problems_per_cell=6, leading_bos=3)
    done("train", "--pe", "rope", "--no-score", "--out", tmp_path, *options)
    result = done("stability", run("rope"), tmp_path / "mini/rope/seed-0", "--problems", 9).out
    assert "| rope | 0 | no [BOS] |" in result and "| rope | 0 | 0 to 3 [BOS] |" in result
    assert "[BOS] not trained" in result
    content = read_json("attention", run("rope"), tmp_path / "mini/rope/seed-0", "--problems", 9)
    assert [one["leading_bos"] for one in content["runs"]] == [0, 3]


def test_stability_in_float64() -> None:
    content = read_json("stability", run("tape"), "--problems", 5, "--double")
    exact = [one for one in content["series"] if one["precision"] == "float64"]
    assert len(exact) == len(content["series"]) / 2
    for one in exact:
        if one["change"] != "BOS":
            assert 0 < max(one["values"]) < 1e-12


def test_what_stability_refuses(tmp_path: Path) -> None:
    with untouched(Path("runs")):
        assert "54 problems: 55 are too many" in refused("stability", run("rope"), "--problems", 55)
        assert "named twice" in refused("stability", run("rope"), f"./{run('rope')}")
        assert "holds no run" in refused("stability", "runs/mini/none/seed-0")
        assert ".png, .svg or .pdf" in refused("stability", run("rope"), "--plot", "x.gif")
    assert "x.gif" not in contents(Path())
    other = ("train", "--pe", "nope", "--no-score", "--out", tmp_path)
    done(*other, *settings(num_layers=2, problems_per_cell=6, steps=6))
    line = refused("stability", run("rope"), tmp_path / "mini/nope/seed-0")
    assert "cannot be compared" in line and "steps 6, not 4" in line


# ---- attention ---------------------------------------------------------------------------------


def test_attention(tmp_path: Path) -> None:
    runs = [run("rope"), run("rope", 1), run("fire"), run("nope")]
    how = ("--problems", 10, "--problem", "12+3", "--heads", 2)
    with untouched(Path("runs")):
        result = done("attention", *runs, *how, "--plot", tmp_path / "a.png")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a-distance.png", "a-maps.png", "a-places.png"]
    assert result.out.startswith(
        "| encoding | trained with | seed | best head | place, in distribution"
    )
    assert "10 in distribution and 10 out of distribution" in result.out
    assert all(f"drawn: {tmp_path / name}" in result.err for name in names)
    content = read_json("attention", *runs, *how)
    assert [one["run"] for one in content["runs"]] == runs
    for one in content["runs"]:
        for patterns in one["regions"].values():
            assert patterns["problems"] == 10 and 0 < patterns["best_head"] <= 1
            assert len(patterns["place"]) == len(patterns["diagonal"]) == 2
    maps = content["maps"]
    assert (maps["tokens"], maps["layers"], maps["heads"]) == (list("21+3=51"), [2], [2])
    for weights in maps["weights"].values():
        assert [sum(row) for row in weights[0][0]] == pytest.approx([1] * 7, abs=1e-5)


def test_regions_are_what_they_say() -> None:
    """To 2 digits trained, to 3 tested, 6 problems a cell: 4 cells in distribution, 5 out of it."""
    (one,) = read_json("attention", run("rope"), "--problems", 1000)["runs"]
    inside, outside = one["regions"]["in distribution"], one["regions"]["out of distribution"]
    assert (inside["problems"], outside["problems"]) == (24, 30)
    # Places that an operand has: the longer one's digits.
    assert inside["positions"] == 6 * (1 + 2 + 2 + 2) and outside["positions"] == 6 * 5 * 3
    assert len(inside["uniform"]) == 2 + 2 + 2 + 3 and len(outside["uniform"]) == 3 + 3 + 2 + 4


def test_what_attention_refuses(tmp_path: Path) -> None:
    plot = ("--plot", tmp_path / "a.png")
    for written in ("12*3", "12+", "012+3", "12+3+4", "-1+2", "1.5+2", ""):
        line = refused("attention", run("rope"), "--problem", written, *plot)
        assert line == (
            f"'{written}' is no problem of addition: two numbers with '+' between them and without "
            "leading zeros, as in 123+45"
        )
    assert "add --plot or --json" in refused("attention", run("rope"), "--problem", "1+2")
    assert "no layer 3: they are 1 to 2" in refused(
        "attention", run("rope"), "--problem", "1+2", "--layers", 3, *plot, after=True
    )
    assert "--heads takes whole numbers" in refused("attention", run("rope"), "--heads", "x")
    assert ".png, .svg or .pdf" in refused("attention", run("rope"), "--plot", "x.gif")
    assert list(tmp_path.iterdir()) == []
