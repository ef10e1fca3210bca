"""`tape-arith study` on tiny runs: its output, files and refusals."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.runs.record import InitFrom
from tape_arith.arith.runs.run import Run
from tape_arith.arith.studies import attention, errors, inputs
from tape_arith.arith.studies.first_errors import has_decimals
from tape_arith.arith.studies.inputs import comparable_runs
from tape_arith.arith.studies.study import INSIDE, OUTSIDE, Study
from tape_arith.arith.tasks.load import load_task
from tape_arith.models.hardware import Hardware
from tests.helpers.exported_runs import made_run
from tests.helpers.tiny_runs import contents, done, refused, untouched


@pytest.fixture(autouse=True)
def in_trained(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)


def run(name: str, seed: int = 0) -> str:
    return f"runs/mini/{name}/seed-{seed}"


def study(*arguments: object) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the facts and the rows of a study."""
    with untouched(Path("runs")):
        facts = json.loads(done("study", *arguments, "--format", "json").out)
    return facts, pd.DataFrame(facts.pop("rows"))


def variant(root: Path, encoding: str, **settings: Any) -> Path:
    """Make a run of other settings, with random weights."""
    config = Run(Path(run("rope"))).record().config
    return made_run(root, encoding, replace(config, **settings))[0].path


def test_stability_is_measured_on_the_evaluation_set(tmp_path: Path) -> None:
    runs = [run("tape"), run("fire"), str(variant(tmp_path, "rope", leading_bos=3))]
    figure, options = tmp_path / "s.svg", ("--problems", 9, "--double", "--format", "json")
    with untouched(Path("runs")):
        result = done("study", "stability", *runs, *options, "--figure", figure)
    assert result.err.endswith("s.svg\n") and figure.stat().st_size > 10_000
    facts = json.loads(result.out)
    rows = pd.DataFrame(facts["rows"])
    bucket = comparable_runs([Path(runs[0])]).bucket
    assert facts["evaluation"]["sha256"] == bucket.sha256(9)
    assert sum(facts["evaluation"]["problems"].values()) == 9
    assert rows.run.unique().tolist() == runs and rows.leading_bos.unique().tolist() == [0, 3]
    shifts = rows[rows.change != "BOS"]
    assert shifts[shifts.encoding == "tape"].at_rounding_level.all()
    assert not shifts[shifts.encoding == "fire"].at_rounding_level.any()
    fine = shifts[(shifts.precision == "float64") & (shifts.encoding == "tape")]
    assert 0 < fine.value.max() < 1e-12
    table = pd.read_csv(StringIO(Study("stability", facts, rows).to_csv()))
    assert table.columns.tolist() == rows.columns.tolist()
    np.testing.assert_allclose(table.value, rows.value, rtol=1e-9)


def test_no_number_depends_on_the_precision_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = variant(tmp_path, "rope", problems_per_cell=100)
    tables = []
    for dtype in (torch.bfloat16, torch.float32):
        monkeypatch.setattr(inputs, "detect", lambda dtype=dtype, **_: Hardware("cpu", dtype))
        tables.append(study("errors", noisy)[1])
    pd.testing.assert_frame_equal(tables[0], tables[1])


def test_attention(tmp_path: Path) -> None:
    runs, example = [run("rope"), run("rope", 1), run("fire")], ("--problem", "12+3")
    facts, rows = study("attention", *runs, "--problems", 1000, *example, "--layer", 1)
    # Trained to 2 digits, tested to 3, 3 problems a cell: 4 cells in distribution, 5 out of it.
    assert facts["evaluation"]["problems"] == {INSIDE: 12, OUTSIDE: 15}
    assert facts["example"]["tokens"] == [*"21+3=51", "[EOS]"]
    first = rows[rows.run == run("rope")]
    assert first.groupby(["region", "measure"]).size().to_dict() == {
        (INSIDE, "distance"): 2 + 2 + 2 + 3,
        (OUTSIDE, "distance"): 3 + 3 + 2 + 4,
        (INSIDE, "place"): 2,
        (OUTSIDE, "place"): 2,
    }
    maps = rows[rows.measure == "map"]
    assert set(maps.layer) == {1} and set(maps["head"]) == {1, 2}
    sums = maps.groupby(["run", "head", "query"]).weight.sum()
    assert len(sums) == 3 * 2 * 7 and sums.to_numpy() == pytest.approx(1, abs=1e-5)
    drawn = ("--figure", tmp_path / "a.svg")
    text = done("study", "attention", run("rope"), "--problems", 10, *example, *drawn).out
    assert text.count("10 problems") == 2
    assert list(contents(tmp_path)) == ["a-distance.svg", "a-maps.svg", "a-places.svg"]


@pytest.mark.parametrize(
    ("task", "decimals", "places"),
    [
        ("addition", True, True),
        ("sort", True, False),
        ("copy:hints=true", False, False),
        ("multiplication", True, True),
        ("addition:pad=true", True, False),
        ("addition:scratchpad=true", False, False),
        ("or:op=xor", False, True),
    ],
)
def test_what_answers_to_a_task_have(task: str, decimals: bool, places: bool) -> None:
    loaded = load_task(task)
    assert (has_decimals(loaded), attention._has_equal_places(loaded)) == (decimals, places)


@pytest.mark.parametrize(
    ("task", "problem", "settings", "has_all"),
    [
        ("multiplication", "12x7", {}, True),
        ("copy:hints=true", "12", {"loops": 2}, False),
        ("sort", "12,7", {"trained_operands": 2, "tested_operands": 3}, False),
    ],
)
def test_every_task_is_studied(
    task: str, problem: str, settings: dict[str, int], has_all: bool, tmp_path: Path
) -> None:
    """Carry chains, digits one more or less and equal places where there are any.

    The maps are of the last layer, that of the last loop.
    """
    studied = comparable_runs([variant(tmp_path, "rope", task=task, **settings)])
    wrong, seen = errors.measure(studied), attention.measure(studied, 3, problem)
    text = errors.to_markdown(wrong)
    assert ("carry chain" in text) == has_all and "Wrong answers" in text
    assert ("one less" in text) == ("22 %" in text) == (has_all or task == "sort")
    text, drawn = attention.to_markdown(seen), attention.figures(seen)
    assert ("place" in set(seen.rows.measure)) == has_all
    assert bool(seen.facts["example"]["equal_places"]) == has_all
    assert seen.facts["example"]["layer"] == seen.rows.layer.max()
    assert ("Place addressing" in text) == ("-places" in drawn) == has_all
    assert errors.figures(wrong)[""].axes
    assert ("2 numbers" in text) == (task == "sort")


@pytest.mark.parametrize("split", ["evaluation", "carry"])
def test_errors_agree_with_the_grids(comparison: Path, split: str) -> None:
    runs = [Path(run(*which)) for which in (("rope", 0), ("rope", 1), ("fire", 0))]
    for folder in runs * (split == "carry"):
        done("score", folder, "--split", split)
    facts, rows = study("errors", *runs, "--split", split)
    assert facts["evaluation"]["split"] == split
    for folder in runs:
        grid = Grid.load(folder / ("grid.json" if split == "evaluation" else "grid@carry.json"))
        assert facts["evaluation"]["sha256"] == grid.evaluation.sha256
        for region in (INSIDE, OUTSIDE):
            counts = rows[(rows.run == str(folder)) & (rows.region == region)]
            exact = counts[counts.error == "exact"].problems.sum()
            places = (counts.place * counts.problems).sum()
            cells = grid.mask(region)
            assert counts.problems.sum() == facts["evaluation"]["problems"][region]
            assert (counts.problems.sum(), exact, places) == tuple(
                int(array[cells].sum()) for array in (grid.total, grid.exact, grid.first_wrong_sum)
            )
    text = done("study", "errors", *runs, "--split", split, "--problems", 10).out
    seeds = {
        line.split(" | ")[0]: line.split(" | ")[1] for line in text.splitlines() if "| 0" in line
    }
    assert (seeds["| RoPE"], seeds["| FIRE"]) == ("0, 1", "0")
    assert ("hard problems" in text) == (split == "carry")


def test_runs_of_other_settings_or_origins_are_studied_apart(tmp_path: Path) -> None:
    begun = Run(variant(tmp_path, "rope@from=rope"))
    origin = InitFrom("rope", 0, "ab" * 32, 4, 128, "cd" * 32)
    begun.write_record(replace(begun.record(), init_from=origin))
    others = {begun.path: "steps_before 4, not None", variant(tmp_path, "nope", steps=6): "steps 6"}
    for path, difference in others.items():
        assert difference in refused("study", "errors", run("rope"), path)
