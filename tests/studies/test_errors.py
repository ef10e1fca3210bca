"""`tape-arith errors` on runs: what it counts agrees with their grids, and what it refuses."""

import json
from pathlib import Path

import pytest

from tape_arith.arith.scoring.grid import Grid, Region
from tape_arith.arith.studies.errors_data import REGIONS
from tests.helpers.tiny_runs import done, refused, settings, untouched

RUNS = [Path(f"runs/mini/{name}/seed-{seed}") for name in ("rope", "fire") for seed in (0, 1)]


def by_region(grid: Grid) -> dict[Region, tuple[int, int, int]]:
    """Problems, exact answers and the sum of first wrong places."""
    counts_by_region = {}
    for region in REGIONS:
        cells = grid.mask(region)
        counts = (grid.total, grid.exact, grid.first_wrong_sum)
        counts_by_region[region] = tuple(int(array[cells].sum()) for array in counts)
    return counts_by_region  # type: ignore[return-value]


@pytest.mark.parametrize("split", ["evaluation", "carry"])
def test_counts_agree_with_the_grids(comparison: Path, split: str) -> None:
    for run in RUNS:
        done("score", run, "--split", split)
    with untouched(comparison):
        content = json.loads(done("errors", *RUNS, "--split", split, "--json").out)
    assert content["evaluation"]["split"] == split and content["evaluation"]["problems"] == 27
    assert [(one["run"], one["seed"]) for one in content["runs"]] == [
        (str(run), int(run.name[-1])) for run in RUNS
    ]
    name = "grid.json" if split == "evaluation" else "grid@carry.json"
    together: dict[tuple[str, str], int] = {}
    for run, one in zip(RUNS, content["runs"], strict=True):
        grid = Grid.load(run / name)
        assert content["evaluation"]["sha256"] == grid.evaluation["sha256"]
        for region, expected in by_region(grid).items():
            counts = one[region]
            places = sum(
                entry["place"] * entry["wrong"] for entry in counts["by_first_wrong_place"]
            )
            assert (counts["problems"], counts["exact"], places) == expected
            key = one["encoding"], region
            together[key] = together.get(key, 0) + counts["wrong"]
    for one in content["encodings"]:
        assert one["seeds"] == [0, 1]
        for region in ("in_distribution", "out_of_distribution"):
            assert one[region]["wrong"] == together[one["encoding"], region] > 0


def test_for_people(comparison: Path) -> None:
    text = done("errors", *RUNS[:2], RUNS[2], "--split", "carry", "--out", "new/errors.svg").out
    assert text.startswith("Exact match by length of the longest carry chain, in distribution\n\n")
    assert "| rope | 0, 1 | out of distribution |" in text and "| fire | 0 | in dis" in text
    assert "hard sums: long carry chains" in text and "preset mini with trained_digits=2" in text
    assert Path("new/errors.svg").read_bytes().startswith(b"<?xml")


def test_the_first_problems_alone(comparison: Path) -> None:
    ten = json.loads(done("errors", RUNS[0], "--problems", 10, "--json").out)["runs"][0]
    assert (
        sum(ten[region]["problems"] for region in ("in_distribution", "out_of_distribution")) == 10
    )
    with untouched(comparison):
        assert "has 27 problems" in refused("errors", RUNS[0], "--problems", 28)


def test_what_is_refused(comparison: Path) -> None:
    done("train", "--pe", "rope", "--out", "new", *settings(steps=5))
    done("train", "--pe", "rope", "--out", "again", *settings())
    with untouched(comparison):
        assert "did you mean 'carry'" in refused("errors", RUNS[0], "--split", "cary")
        assert ".png, .svg or .pdf" in refused("errors", RUNS[0], "--out", "x.jpg")
        assert "cannot be compared" in refused("errors", RUNS[0], "new/mini/rope/seed-0")
        assert "named twice" in refused("errors", RUNS[0], RUNS[0])
        message = refused("errors", RUNS[0], RUNS[1], "again/mini/rope/seed-0")
        assert message.startswith("again/mini/rope/seed-0 is rope, seed 0, once more")
        assert "tape-arith list" in refused("errors", "runs/mini/rope")
