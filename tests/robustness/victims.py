"""The commands that are killed, at sizes that take seconds, and what each leaves."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arith.files import sha256
from arith.scoring import grid_file
from arith.suite.folders import RunFolder
from tests.robustness.processes import finish
from tests.training.small import final_weights, untimed

TINY = {
    "trained_digits": 2,
    "tested_digits": 3,
    "num_layers": 1,
    "hidden_size": 16,
    "num_heads": 2,
    "head_dim": 8,
    "mlp_size": 16,
    "batch_size": 8,
    "groups": 1,
}
PROBLEMS, STEPS, MORE_STEPS, PER_CELL = 2_000, 250, 350, 6_000  # met again and again
RUN = "runs/mini/rand-rope/seed-0"  # the encoding that draws at random
SWEEP = """# Killed.
preset = "mini"
encodings = ["rope", "rope+yarn"]
seeds = [0]
[set]
{settings}
"""


@dataclass(frozen=True)
class Victim:
    """A command, what has to be there before it, and what it leaves that must be the same."""

    argv: list[str]
    begin: Callable[[Path], None]
    result: Callable[[Path], Any]
    alone: list[str] | None = None
    """The command in one process, to be killed at its writes; None: as it is."""


def settings(**other: int) -> list[str]:
    pairs = TINY | {"num_problems": PROBLEMS, "problems_per_cell": PER_CELL, "steps": STEPS} | other
    return ["--preset", "mini", *(f"--set={key}={value}" for key, value in pairs.items())]


def empty(folder: Path) -> None:
    """Nothing has to be there."""


def trained(folder: Path) -> None:
    """A finished run, trained once and copied."""
    made = folder.parent / "trained"
    if not made.exists():
        made.mkdir()
        finish(["train", "--pe", "rand-rope", "--no-score", "--threads=1", *settings()], made)
    shutil.copytree(made, folder, dirs_exist_ok=True)


def sweep_file(folder: Path) -> None:
    pairs = TINY | {"num_problems": PROBLEMS, "problems_per_cell": 50, "steps": 100}
    lines = "\n".join(f"{key} = {value}" for key, value in pairs.items())
    (folder / "killed.toml").write_text(SWEEP.format(settings=lines))


def hashes(folder: Path) -> dict[str, str]:
    """Of a dataset: every byte."""
    return {file.name: sha256(file) for file in sorted((folder / "data").iterdir())}


def run(folder: Path) -> dict[str, Any]:
    """Of a run: every bit of its weights, and every line of its metrics."""
    there = RunFolder(folder / RUN)
    assert there.finished()
    weights = {key: value.numpy().tobytes() for key, value in final_weights(there).items()}
    return {**weights, "metrics": untimed(there.metrics())}


def grids(folder: Path) -> dict[str, Any]:
    """Of all runs: every count of their grids."""
    files = sorted(folder.rglob("grid*.json"))
    counts = ("exact", "total", "right_share", "first_wrong", "blocks_done", "budget")
    return {
        file.relative_to(folder).as_posix(): [grid_file.load(file).content()[k] for k in counts]
        for file in files
    }


def sweep(folder: Path) -> dict[str, Any]:
    """Of a sweep: its grids, its weights, its tables."""
    tables = {str(t.relative_to(folder)): t.read_text() for t in folder.rglob("*.md")}
    final = [RunFolder(file.parents[1]) for file in folder.rglob("final.safetensors")]
    weights = {
        f"{there.path.relative_to(folder)} {name}": value.numpy().tobytes()
        for there in final
        for name, value in final_weights(there).items()
    }
    return {**grids(folder), **weights, **tables}


GENERATE = [
    "generate",
    *settings(trained_digits=8, tested_digits=8),
    "--count=2500000",
    "--out=data",
]
VICTIMS = {
    "generate": Victim([*GENERATE, "--workers=2"], empty, hashes, alone=[*GENERATE, "--workers=1"]),
    "train": Victim(
        ["train", "--pe=rand-rope", "--no-score", "--threads=1", *settings()], empty, run
    ),
    "extend": Victim(
        ["train", RUN, f"--steps={MORE_STEPS}", "--no-score", "--threads=1"], trained, run
    ),
    "score": Victim(["score", RUN, "--threads=1"], trained, grids),
    "sweep": Victim(["sweep", "killed.toml", "--slots=2", "--threads=1"], sweep_file, sweep),
}
