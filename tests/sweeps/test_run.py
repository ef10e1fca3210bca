"""`run`, from nothing to a heatmap: the files it leaves, and that it does nothing twice."""

import csv
import shutil
from pathlib import Path

import pytest

from tape_arith.arith import stopping
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.find import find_runs
from tape_arith.arith.runs.run import Run
from tape_arith.arith.sweeps import run_sweep
from tests.helpers.tiny_runs import call, contents, done, refused, settings

SMALL = {"run.json", "metrics.jsonl"}


def test_every_run_leaves_its_folder(trained: Path) -> None:
    folders = find_runs(trained / "runs")
    grids = {"rope": {"grid.json"}, "fire": {"grid.json"}, "tape": {"grid+yarn.json"}}
    assert len(folders) == 6
    for folder in folders:
        record = folder.record()
        assert folder.path == trained / "runs" / "mini" / record.encoding / f"seed-{record.seed}"
        names = {path.name for path in folder.path.iterdir()}
        assert names == SMALL | grids[record.encoding] | {"weights"}
        assert folder.state().trained and record.data is not None
        way = "score" if record.encoding != "tape" else "score+yarn"
        assert set(record.seconds) == {"train", way}
        (machine,) = record.machines
        assert machine.command.split()[1:4] == ["run", "--pe", "rope,fire,tape+yarn"]
        assert machine.device == "cpu" and machine.threads and machine.torch and machine.python
        # All but the weights is small, and says nothing of the machine it lay on.
        documents = {k: v for k, v in contents(folder.path).items() if "weights" not in k}
        assert sum(map(len, documents.values())) < 100_000
        assert not any(str(trained).encode() in text for text in documents.values())
    place = trained / "runs" / "mini"
    assert (place / "rope-fire-tape+yarn.png").read_bytes().startswith(b"\x89PNG")
    with open(place / "table.csv", newline="", encoding="utf-8") as file:
        rows = {row["encoding"]: row["seeds"] for row in csv.DictReader(file)}
    assert rows == dict.fromkeys(("rope", "fire", "tape+yarn"), "0 1")
    assert (place / "table.md").read_text().startswith("| encoding")


def test_a_second_call_does_nothing_twice(comparison: Path) -> None:
    runs = comparison / "runs"
    before = contents(runs)
    times = {path: path.stat().st_mtime_ns for path in runs.rglob("seed-*/**/*")}
    again = done("run", "--pe", "rope,fire,tape+yarn", "--seeds", "0,1", *settings())
    assert "training" not in again.err and "score " not in again.err
    assert again.out == "runs/mini/rope-fire-tape+yarn.png\n"
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("seed-*/**/*")} == times
    assert contents(runs) == before


def test_a_call_that_only_fails_redraws_what_is_scored(
    comparison: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call before it may have been killed between its last grid and its figure."""
    done("train", "--pe", "nope", "--no-score", *settings(steps=6))
    figure, table = Path("runs/mini/rope-fire.png"), Path("runs/mini/table.csv")
    table.write_text("of fewer runs")
    result = call("run", "--pe", "rope,fire,nope", *settings())
    assert result.code == 2 and "(steps: 6," in result.err
    assert result.out == f"{figure}\n" and figure.exists()
    assert table.read_text().count("\n") == 3
    # Where nothing can be done, this is said before anything is generated.
    shutil.rmtree("data")
    assert "(steps: 4," in refused("run", "--pe", "rope", *settings(steps=6))
    assert not Path("data").exists()

    def draw(runs: object) -> None:
        raise UsageError("two versions")

    # Failed jobs are named, whatever keeps the figure from being drawn.
    monkeypatch.setattr(run_sweep, "draw_comparison", draw)
    result = call("run", "--pe", "nope,rope", *settings())
    assert result.code == 2 and "(job train/mini/nope/seed-0)" in result.err
    assert "two versions" in refused("run", "--pe", "fire", *settings(), after=True)


def test_a_run_that_differs_from_the_others_is_left_out_with_the_reason(comparison: Path) -> None:
    begun = done("run", "--pe", "rope,tape@from=rope", *settings())
    assert begun.out == "runs/mini/rope.png\n" and Path("runs/mini/rope.png").exists()
    assert "tape@from=rope seed 0:" in begun.err


@pytest.mark.parametrize("changed", [{"steps": 8}, {"learning_rate": 0.002}])
def test_a_figure_is_of_the_requested_recipe_alone(
    comparison: Path, changed: dict[str, float]
) -> None:
    """A run of another one in the same folder is no seed of it, even if it comes first."""
    done("train", "--pe", "rope", "--fresh", *settings(**changed))
    for recipe, seed in ((settings(), 1), (settings(**changed), 0)):
        done("run", "--pe", "rope", "--seeds", seed, *recipe)
        with open("runs/mini/table.csv", newline="", encoding="utf-8") as file:
            assert [row["seeds"] for row in csv.DictReader(file)] == [str(seed)]


def test_a_call_that_is_stopped_draws_no_part(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figure would stay beside that of the call that ends the work."""
    command = ("run", "--pe", "rope,nope", *settings())
    with monkeypatch.context() as patch:
        patch.setattr(
            stopping.Stopper,
            "time_is_up",
            property(lambda _: Path("runs/mini/rope/seed-0/grid.json").exists()),
        )
        stopped = call(*command)
    assert stopped.code == 3 and stopped.out == ""
    assert not list(Path("runs").rglob("*.png"))
    figure = done(*command).out.strip()
    assert [*map(str, Path("runs").rglob("*.png"))] == [figure]


def test_a_training_whose_time_is_up_goes_on(
    comparison: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With problems made as needed, it ends with the bits of the unbroken run on a dataset."""
    shutil.rmtree("data")  # which training would read
    train = ("train", "--pe", "tape", "--runs", "slow", *settings())
    slow = Run(Path("slow/mini/tape/seed-0"))
    # It asks after every step but the last: first it stops after two of four, then after three.
    for questions in (1, 0):
        answers = iter([False] * questions + [True] * 100)
        with monkeypatch.context() as patch:
            patch.setattr(stopping.Stopper, "time_is_up", property(lambda _: next(answers)))  # noqa: B023
            assert call(*train).code == 3
    assert not slow.state().trained and "not scored" in done("list", "--runs", "slow").out
    assert "from step" in done(*train).err
    assert slow.record().data is None and len(slow.metrics()) == 1
    unbroken = Run(Path("runs/mini/tape/seed-0"))
    assert slow.final.read_bytes() == unbroken.final.read_bytes()


def test_a_precision_that_is_asked_for_is_kept_and_recorded(here: Path) -> None:
    for precision in ("bfloat16", "float32"):
        runs = f"runs-{precision}"
        done("run", "--pe", "nope", *settings(), "--precision", precision, "--runs", runs)
        (machine,) = Run(Path(runs, "mini/nope/seed-0")).record().machines
        assert machine.dtype == precision
    weights = [path.read_bytes() for path in sorted(here.rglob("final.safetensors"))]
    assert len(weights) == 2 and weights[0] != weights[1]
