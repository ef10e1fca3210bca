"""Hard sums beside the usual ones: each in a grid of its own, and never in one figure."""

import json
from pathlib import Path

import numpy as np
import pytest

from tape_arith.arith.compare.panels import select_panels
from tape_arith.arith.data.bucket import CARRY, Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures import captions
from tape_arith.arith.runs.folder import RunFolder, find_grids
from tape_arith.arith.runs.weights import trained_decoder
from tape_arith.arith.scoring.comparable import is_same_run
from tape_arith.arith.scoring.evaluation_set import EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.scoring.score import score
from tape_arith.arith.tasks.task import load_task
from tape_arith.models.names.parse import parse, parse_list
from tests.helpers.sealing import changed
from tests.helpers.tiny_runs import contents, done, refused, untouched

ROPE = Path("runs/mini/rope/seed-0")
HARD = "hard sums: long carry chains"


def hard(*names: str) -> None:
    """Score both seeds of each encoding on hard sums."""
    for name in names:
        for seed in (0, 1):
            done("score", f"runs/mini/{name}/seed-{seed}", "--split", CARRY)


def test_a_grid_beside_the_usual_one(comparison: Path) -> None:
    before = contents(comparison)
    told = done("score", ROPE, "--split", CARRY).out
    assert told.startswith("rope seed 0 on the split carry: out of distribution ")
    written = {key for key, text in contents(comparison).items() if before.get(key) != text}
    assert written == {f"{ROPE}/grid@carry.json", f"{ROPE}/timings.json"}
    with untouched(comparison):
        assert done("score", ROPE, "--split", CARRY).out == told  # nothing is done twice

    usual, grid = (Grid.load(ROPE / f"{name}.json") for name in ("grid", "grid@carry"))
    assert "split" not in usual.evaluation and usual.split == "evaluation"
    assert grid.split == CARRY and grid.complete and not is_same_run(usual, grid)
    bucket = Bucket("addition", 3, 0, CARRY)
    assert grid.evaluation["sha256"] == bucket.sha256(27) != usual.evaluation["sha256"]

    problems = bucket.problems(0, 27)
    folder = RunFolder(ROPE)
    decoder, hardware = trained_decoder(folder, parse("rope"), folder.record())
    outcome = score(decoder.eval(), problems, bucket.keys(0, 27), hardware)
    right, total = np.zeros((3, 3)), np.zeros((3, 3))
    for (i, j), share in zip(
        problems.operand_lengths - 1, outcome.num_correct / outcome.answer_tokens, strict=True
    ):
        right[i, j] += share
        total[i, j] += 1
    assert grid.right_sum == pytest.approx(right, abs=1e-6) and right.sum() > 0
    assert np.array_equal(grid.total, total)


def test_each_way_of_scoring_has_its_file(comparison: Path) -> None:
    done("score", ROPE, "--split", CARRY, "--with", "yarn:ramp=paper", "--max-digits", 4)
    assert (ROPE / "grid@carry+yarn@ramp=paper-to-4.json").exists()
    assert "score@carry+yarn@ramp=paper-to-4" in RunFolder(ROPE).timings()
    assert "did you mean 'carry'" in refused("score", ROPE, "--split", "carries")


def test_a_figure_shows_one_split(comparison: Path) -> None:
    usual = done("leaderboard", "--compare", "rope,fire").out
    hard("rope", "fire")
    assert done("leaderboard", "--compare", "rope,fire").out == usual
    told = done("leaderboard", "--compare", "rope,fire", "--split", CARRY).out
    assert f"addition, {HARD}, trained" in told and "| rope | rotary | 2 |" in told

    drawn = done("heatmap", "--compare", "rope,fire", "--split", CARRY)
    assert drawn.out == "runs/mini/rope-fire@carry.png\n"
    done("heatmap", "--compare", "rope,fire")
    assert Path("runs/mini/rope-fire.png").exists()

    assert done("report", "--split", CARRY).out == "runs/mini/report@carry.html\n"
    page = Path("runs/mini/report@carry.html").read_text("utf-8")
    assert HARD in page and "tape-arith report --preset mini --split carry" in page
    assert "tape-arith score runs/mini/rope/seed-1 --split carry" in page
    done("report")
    usual = Path("runs/mini/report.html").read_text("utf-8")
    assert HARD not in usual and "uniform digits" in usual and "--split" not in usual

    ours, _ = select_panels(Path("runs"), "rope,fire")
    theirs, _ = select_panels(Path("runs"), "rope,fire", evaluation_set=EvaluationSet(CARRY))
    assert f"Task addition, {HARD}, trained to 2 digits" in captions.footnote(theirs)
    assert "hard sums" not in captions.footnote(ours)
    with pytest.raises(UsageError, match=r"differs from rope seed 0 .split carry, not eval"):
        captions.checked_panels([ours[0], theirs[1]])


def test_what_is_missing_is_scored_by(comparison: Path) -> None:
    hard("rope")
    told = refused("heatmap", "--compare", "rope,fire,tape+yarn,nope", "--split", CARRY)
    assert "no scored run of fire, tape+yarn, nope in runs/mini on the split carry" in told
    assert "tape-arith score runs/mini/fire/seed-0 --split carry;" in told
    assert "tape-arith score runs/mini/tape/seed-0 --with yarn --split carry;" in told
    assert "tape-arith train --pe nope --preset mini" in told and "rope/" not in told
    left_out = done("leaderboard", "--split", CARRY).err
    assert "fire seeds 0, 1; tape seeds 0, 1: not scored on the split carry yet" in left_out


def test_a_run_that_is_scored_on_hard_sums_alone(comparison: Path) -> None:
    hard("rope")
    for seed in (0, 1):
        Path(f"runs/mini/rope/seed-{seed}/grid.json").unlink()
    told = refused("heatmap", "--compare", "rope,fire")
    assert "tape-arith score runs/mini/rope/seed-0" in told
    assert "rope seeds 0, 1: not scored yet" in done("leaderboard").err
    # The usual sums say what converged.
    board = json.loads(done("leaderboard", "--split", CARRY, "--format", "json").out)
    assert board["sections"][0]["rows"][0]["mark"] == "convergence unknown"


def test_hard_sums_do_not_say_what_converged(comparison: Path) -> None:
    hard("rope")
    grids = find_grids(Path("runs"), names=parse_list("rope"), evaluation_set=EvaluationSet(CARRY))
    assert [grid.converged for grid in grids] == [False, False]
    assert captions.convergence(grids) == "not converged"
    assert "in distribution on the usual sums." in captions.footnote([grids])
    for seed in (0, 1):
        file = Path(f"runs/mini/rope/seed-{seed}/grid.json")
        usual = Grid.load(file)
        usual.exact[:], usual.right_sum[:] = usual.total, usual.total
        usual.save(file)
    [panel], _ = select_panels(Path("runs"), "rope", evaluation_set=EvaluationSet(CARRY))
    assert captions.convergence(panel) is None and panel[0].mean("in_distribution").value == 0.0


def test_a_split_is_read_from_the_grid(comparison: Path) -> None:
    hard("rope", "fire")
    (ROPE / "grid.json").unlink()
    (ROPE / "grid@carry.json").rename(ROPE / "grid.json")  # whatever the file is called
    usual, told = done("leaderboard").out, done("leaderboard", "--split", CARRY).out
    assert "| rope | rotary | 1 (" in usual and "| rope | rotary | 2 |" in told


def test_a_longer_budget_keeps_the_earlier_grids_apart(comparison: Path) -> None:
    hard("rope")
    done("train", ROPE, "--steps", 8)
    assert (ROPE / "at-4-steps/grid@carry.json").exists()
    assert not (ROPE / "grid@carry.json").exists() and (ROPE / "grid.json").exists()


@pytest.mark.parametrize("blocks", [0, 2])
def test_a_grid_that_counts_its_blocks_wrongly(comparison: Path, blocks: int) -> None:
    file = ROPE / "grid.json"
    file.write_bytes(changed(file.read_bytes(), blocks_done=blocks))
    with untouched(comparison):
        assert "grid.json is corrupt: " in refused("score", ROPE, code=1)
    done("score", ROPE, "--fresh")


def test_a_task_without_hard_sums(comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = type(load_task("addition"))
    monkeypatch.delattr(task, "carry_operands")
    before = contents(comparison)
    told = refused("score", ROPE, "--split", CARRY)
    assert told == "task addition has no split 'carry': leave --split out"
    assert contents(comparison) == before
