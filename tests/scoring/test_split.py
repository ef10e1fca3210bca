"""Hard problems beside the usual ones: each in a grid of its own, and never in one figure."""

import json
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.selection import Selection
from tape_arith.arith.data.bucket import CARRY, Bucket
from tape_arith.arith.decoders.weights import trained_decoder
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.comparable import is_same_run
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import panels_of
from tape_arith.arith.registry.names import parse, parse_list
from tape_arith.arith.runs.find import find_grids
from tape_arith.arith.runs.run import Run
from tape_arith.arith.scoring.score import score
from tape_arith.arith.tasks.load import load_task
from tape_arith.models.hardware import detect
from tape_arith.models.runner import Runner
from tests.helpers.boards import seeds_shown
from tests.helpers.tiny_runs import contents, done, refused, untouched

ROPE = Path("runs/mini/rope/seed-0")
HARD = "hard problems: long carry chains"


@pytest.fixture(scope="module")
def scored_once(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The comparison, with rope and fire scored on hard problems too. Not to be changed."""
    folder = tmp_path_factory.mktemp("hard") / "place"
    shutil.copytree(trained, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, seed in product(("rope", "fire"), (0, 1)):
            done("score", f"runs/mini/{name}/seed-{seed}", "--split", CARRY)
    return folder


@pytest.fixture
def hard(scored_once: Path, here: Path) -> Path:
    """A working folder with a copy of it."""
    shutil.copytree(scored_once, here, dirs_exist_ok=True)
    return here


def test_a_grid_beside_the_usual_one(comparison: Path) -> None:
    before = contents(comparison)
    printed = done("score", ROPE, "--split", CARRY).out
    assert "split carry:" in printed
    written = {key for key, text in contents(comparison).items() if before.get(key) != text}
    assert written == {f"{ROPE}/grid@carry.json", f"{ROPE}/run.json"}
    with untouched(comparison):
        assert done("score", ROPE, "--split", CARRY).out == printed  # nothing is done twice

    done("score", ROPE, "--split", CARRY, "--with", "yarn:ramp=paper", "--max-digits", 4)
    assert (ROPE / "grid@carry+yarn@ramp=paper-to-4.json").exists()
    assert "score@carry+yarn@ramp=paper-to-4" in Run(ROPE).record().seconds
    usual, grid = (Grid.load(ROPE / f"{name}.json") for name in ("grid", "grid@carry"))
    assert "split" not in usual.content()["evaluation"] and usual.split == "evaluation"
    assert grid.split == CARRY and grid.complete and not is_same_run(usual, grid)
    bucket = Bucket("addition", 3, 0, CARRY)
    assert grid.evaluation.sha256 == bucket.sha256(27) != usual.evaluation.sha256

    problems = bucket.problems(0, 27)
    folder = Run(ROPE)
    decoder = trained_decoder(folder, parse("rope"), folder.record()).eval()
    outcome = score(Runner(decoder, detect()), problems, bucket.keys(0, 27))
    right, total = np.zeros((3, 3)), np.zeros((3, 3))
    for (i, j), share in zip(
        problems.axis_lengths - 1, outcome.num_correct / outcome.answer_tokens, strict=True
    ):
        right[i, j] += share
        total[i, j] += 1
    assert grid.right_sum == pytest.approx(right, abs=1e-6) and right.sum() > 0
    assert np.array_equal(grid.total, total)


def test_a_figure_shows_one_split(hard: Path) -> None:
    assert seeds_shown(split=CARRY) == {"rope": 2, "fire": 2}
    assert (
        done("heatmap", "--compare", "rope,fire", "--split", CARRY).out
        == "runs/mini/rope-fire@carry.png\n"
    )
    assert done("report", "--split", CARRY).out == "runs/mini/report@carry.html\n"
    page = Path("runs/mini/report@carry.html").read_text("utf-8")
    assert HARD in page and "seed-1 --split carry" in page

    standard, _ = Selection(Path("runs"), "rope,fire").panels()
    carry, _ = Selection(Path("runs"), "rope,fire", evaluation_set=EvaluationSet(CARRY)).panels()
    assert [HARD in captions.footnote(panels) for panels in (carry, standard)] == [True, False]
    with pytest.raises(UsageError, match="carry, not"):
        panels_of([*standard[0].grids, *carry[1].grids])


def test_missing_grids_are_named_with_their_commands(hard: Path) -> None:
    for seed in (0, 1):
        Path(f"runs/mini/rope/seed-{seed}/grid.json").unlink()
    assert refused("heatmap", "--compare", "rope,fire").endswith(f"tape-arith score {ROPE}")
    assert "rope seeds 0, 1:" in done("leaderboard").err
    # The standard grid says what converged.
    board = json.loads(done("leaderboard", "--split", CARRY, "--format", "json").out)
    marks = {row["encoding"]: row["mark"] for row in board["sections"][0]["rows"]}
    assert marks["rope"] == "convergence unknown"


def test_hard_sums_do_not_say_what_converged(hard: Path) -> None:
    grids = find_grids(Path("runs"), names=parse_list("rope"), evaluation_set=EvaluationSet(CARRY))
    assert [grid.converged for grid in grids] == [False, False]
    panels = panels_of(grids)
    assert panels[0].convergence == "not converged"
    assert (
        "below 99\N{NO-BREAK SPACE}% in distribution on the usual problems."
        in captions.footnote(panels)
    )
    for seed in (0, 1):
        file = Path(f"runs/mini/rope/seed-{seed}/grid.json")
        grid = Grid.load(file)
        grid.exact[:], grid.right_sum[:] = grid.total, grid.total
        grid.save(file)
    [panel], _ = Selection(Path("runs"), "rope", evaluation_set=EvaluationSet(CARRY)).panels()
    assert panel.convergence is None and panel.mean("in_distribution") == 0.0


def test_a_split_is_read_from_the_grid(hard: Path) -> None:
    (ROPE / "grid.json").unlink()
    (ROPE / "grid@carry.json").rename(ROPE / "grid.json")  # whatever the file is called
    assert seeds_shown()["rope"] == 1 and seeds_shown(split=CARRY)["rope"] == 2


def test_a_longer_budget_keeps_the_earlier_grids_apart(hard: Path) -> None:
    done("train", ROPE, "--steps", 8)
    assert (ROPE / "at-4-steps/grid@carry.json").exists()
    assert not (ROPE / "grid@carry.json").exists() and (ROPE / "grid.json").exists()


def test_a_task_without_carries(comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(type(load_task("addition")), "columns")
    with untouched(comparison):
        assert "'carry'" in refused("score", ROPE, "--split", CARRY)
