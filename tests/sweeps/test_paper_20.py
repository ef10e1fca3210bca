"""The sweep of the paper's short setting, rehearsed: its own file and code path, tiny sizes."""

import json
import shutil
from pathlib import Path

import pytest

from tape_arith.arith.scoring import grid_file
from tape_arith.arith.sweeps.sweep import FOLDER, load_sweep
from tests.helpers.tiny_runs import SETTINGS, contents, done


@pytest.mark.slow
def test_it_trains_scores_and_leaves_what_can_be_carried_away(here: Path) -> None:
    own = "\n".join(f"{key} = {value}" for key, value in SETTINGS.items())
    text = (FOLDER / "paper-20.toml").read_text("utf-8").replace("[0, 1, 2]", "[0]")
    Path("rehearsal.toml").write_text(f"{text}\n[set]\n{own}\n", "utf-8")
    done("sweep", "rehearsal.toml", "--time-limit", "20m")
    before = contents(here)
    again = done("sweep", "rehearsal.toml", "--time-limit", "20m")
    after = contents(here)
    assert "all 26 jobs are done" in again.err  # 12 trained, 14 scored
    assert {name for name in before if before[name] != after[name]} <= {
        name for name in before if "sweeps/rehearsal/" in name
    }
    # Weights stay behind; all that is told of the runs comes along.
    shutil.copytree(
        "runs", "carried", ignore=shutil.ignore_patterns("weights", "*.safetensors", "sweeps")
    )
    board = json.loads(
        done(
            "leaderboard", "--runs", "carried/rehearsal", "--preset", "paper-20", "--format", "json"
        ).out
    )
    names = {row["encoding"] for section in board["sections"] for row in section["rows"]}
    assert names == {str(name) for name in load_sweep("paper-20").names}
    for file in Path("carried").rglob("grid*.json"):
        assert grid_file.load(file).complete
        kept = {path.name for path in file.parent.iterdir()}
        assert {"run.json", "environment.json", "metrics.jsonl", "timings.json"} <= kept
