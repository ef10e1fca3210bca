"""The runs that `tape-arith curves` takes, and its refusals."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from tape_arith.arith.runs.run import Run
from tests.helpers.tiny_runs import done, refused, settings, untouched


def curves(*arguments: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(done("curves", *arguments, "--json").out)
    return content


def test_by_command(comparison: Path) -> None:
    result = done("curves", "--compare", "rope,tape")
    path = Path(result.out.strip())
    assert path == Path("runs/mini/curves-rope-tape.png") and path.stat().st_size > 10_000
    with untouched(comparison):
        content = curves("--compare", "rope,tape")
    assert content["schema"] == 2 and content["preset"] == "mini"
    assert content["seeds"] == {"rope": [0, 1], "tape": [0, 1]}
    rows = pd.DataFrame(content["rows"])
    values = rows.set_index(["encoding", "seed", "quantity", "part", "step"]).value
    for seed in (0, 1):
        (line,) = Run(Path(f"runs/mini/tape/seed-{seed}")).metrics()
        grid, of_run = line["small_grid"], values["tape", seed]
        assert of_run["loss", 0, 4] == line["loss"]
        assert of_run["held_out", 0, 4] == line["exact_match"]
        for region in ("in_distribution", "out_of_distribution"):
            assert of_run[region, 0, 4] == grid[region]
        assert of_run["by_length"].tolist() == list(grid["by_length"].values())
        assert of_run["state norm"].tolist() == line["state"]["norm"]
    assert not any("state" in key for _, key, _, _ in values["rope"].index)


def test_runs_without_a_small_grid_are_drawn(here: Path) -> None:
    done("train", "--pe", "rope", "--no-curves", "--no-score", *settings())
    content = curves("--compare", "rope")
    assert content["rows"]["quantity"] == ["loss", "held_out"] and content["seeds"] == {"rope": [0]}
    done("curves", "--compare", "rope", "--out", "old.svg")
    assert Path("old.svg").stat().st_size > 10_000


def test_lengths_are_of_the_task_before_anything_is_scored(here: Path) -> None:
    options = settings(task="modular-sum")
    done("train", "--pe", "rope", "--no-score", *options)
    content = curves("--compare", "rope")
    (axis,) = content["axes"]
    assert (axis["name"], axis["trained"], axis["tested"]) == ("terms", 2, 3)


def test_small_grids_of_other_lengths_are_not_compared(comparison: Path) -> None:
    """Those of versions before 0.11 have other lengths from 17 digits on."""
    file = comparison / "runs/mini/rope/seed-1/metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        del line["small_grid"]["by_length"]["3"]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert curves("--compare", "rope,tape")["seeds"] == {"rope": [0], "tape": [0, 1]}
    assert "rope seed 1:" in done("curves", "--pe", "rope", "--json").err


def test_all_of_them(comparison: Path) -> None:
    named = curves("--compare", "fire,rope,tape")
    with untouched(comparison):
        assert curves("--compare", "all") == named
    done("train", "--pe", "alibi", "--no-score", *settings(learning_rate=0.002))
    done("train", "runs/mini/rope/seed-0", "--steps", 8, "--no-score")
    Path("runs/mini/tape/seed-1/run.json").write_text("{")
    result = done("curves", "--compare", "all", "--json")
    assert json.loads(result.out)["seeds"] == {"fire": [0, 1], "rope": [1], "tape": [0]}
    for run in ("alibi seed 0", "rope seed 0", "tape/seed-1"):
        assert run in result.err
    with untouched(comparison):
        assert "learning_rate" in refused("curves", "--compare", "rope,alibi", after=True)
    done("train", "--pe", "rope", "--no-score", "--preset", "paper-20", *settings()[2:])
    assert "paper-20" in refused("curves", "--compare", "all", after=True)
    assert curves("--pe", "all", "--preset", "paper-20")["preset"] == "paper-20"
