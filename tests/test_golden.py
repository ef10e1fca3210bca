"""Freeze what a change of the code must not change: data, weights, grids, statistics, exit codes.

`golden.json` beside this file holds hashes. `python -m tests.test_golden` writes it anew and keeps
the runs of other machines; an entry may change only together with a decision that CHANGELOG names.
Weights and grids are equal bit for bit on a machine whose runs are in the file. Elsewhere ten steps
in float32, before differences of rounding grow, are compared closely.
"""

import hashlib
import json
import platform
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tape_arith.arith.runs.find import find_runs
from tape_arith.models import hardware
from tests.helpers.child_processes import start, wait_until
from tests.helpers.committed_runs import ROOTS
from tests.helpers.tiny_runs import call, done

GOLDEN = Path(__file__).parent / "golden.json"
SETTINGS = {
    "trained_digits": 2,
    "tested_digits": 4,
    "num_problems": 4096,
    "num_layers": 2,
    "hidden_size": 32,
    "num_heads": 2,
    "head_dim": 16,
    "mlp_size": 32,
    "batch_size": 64,
    "steps": 60,
    "learning_rate": 0.01,
    "problems_per_cell": 8,
}
TINY = ["--preset", "mini", *(f"--set={key}={value}" for key, value in SETTINGS.items())]
GRID_KEYS = ("exact", "total", "right_share", "first_wrong", "budget", "evaluation")
KILLED = "rope"
LISTS = ("--task", "sort", "--set=trained_operands=2", "--set=tested_operands=3")
RUNS: dict[str, tuple[str, ...]] = {
    KILLED: (),
    "fire": (),
    "tape+yarn": (),
    "rand-rope": (),
    "abacus+fire": (),
    "rope, two loops": ("--set=loops=2",),
    "rope, reverse": ("--task", "reverse"),
    "rope, sort": LISTS,
}
"""Each run, named by its encoding first, and what it changes."""
FAST = (KILLED, "tape+yarn", "rope, sort")
FIRST_STEPS = ("--set=steps=10",)
WRONG_COMMANDS = (
    "trane",
    "train",
    "train --pe",
    "train --pe roppe",
    "train --pe rope:base=x",
    "train --pe rope --preset minni",
    "train --pe rope --set steps=0",
    "train --pe rope --set stepps=3",
    "train --pe rope,fire --preset mini",
    "train nowhere",
    "train --pe rope --preset mini --data nowhere",
    "train --pe rope --steps 5",
    "score nowhere",
    "score nowhere --with yarrn",
    "generate --preset mini --format xml",
    "generate --verify nowhere",
    "run --pe rope --seeds x",
    "sweep nothing",
    "heatmap --compare rope,fire --runs nowhere",
    "leaderboard --preset mini --runs nowhere",
    "check roppe",
    "status nowhere",
    "generate --preset mini --count 10 --out /dev/null/x",
    "train --pe rope --preset mini --out /dev/null/x",
)


def test_data_is_frozen(golden: dict[str, Any], tmp_path: Path) -> None:
    with chdir(tmp_path):
        assert _frozen_data() == golden["data"]


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in RUNS]
)
def test_training_and_grid_are_frozen(
    name: str, golden: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = golden["runs"].get(_machine(), {}).get(name)
    if exact is not None:
        with chdir(tmp_path):
            assert _frozen_run(name) == exact
        return
    monkeypatch.setattr(hardware, "_cpu_has_bfloat16", lambda: False)
    monkeypatch.chdir(tmp_path)
    run = _frozen_run(name, *FIRST_STEPS)
    close = golden["float32"][name]
    shapes = {key: facts["shape"] for key, facts in run["tensors"].items()}
    assert shapes == {key: facts["shape"] for key, facts in close["tensors"].items()}
    assert _losses() == pytest.approx(close["losses"], rel=2e-3)
    assert run["grid"]["total"] == close["grid"]["total"]


def test_leaderboard_of_the_results_is_frozen(golden: dict[str, Any]) -> None:
    assert dict(_leaves(_frozen_leaderboard())) == {
        place: pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
        for place, value in _leaves(golden["leaderboard"])
    }


def test_wrong_commands_keep_their_exit_codes(golden: dict[str, Any], tmp_path: Path) -> None:
    with chdir(tmp_path):
        assert _frozen_exit_codes() == golden["exit_codes"]
    assert not list(tmp_path.iterdir()), "a wrong command left files"


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(GOLDEN.read_text())
    return content


def _frozen_data() -> dict[str, str]:
    """Hashes of the files of a preset's dataset and of small ones; not of their manifests."""
    done("generate", "--preset", "mini", "--count", "100000", "--out", "mini")
    done("generate", *TINY, "--seed", "3", "--workers", "2", "--out", "tiny")
    done("generate", *TINY, "--format", "text", "--out", "tiny.txt")
    files = [*sorted(Path().glob("*/*.npy")), Path("tiny.txt")]
    return {str(file): _sha256(file.read_bytes()) for file in files}


def _frozen_run(name: str, *changes: str) -> dict[str, Any]:
    """Final weights and grid of a tiny training; that of KILLED is killed and goes on."""
    encoding, *_ = name.split(",")
    train = ["train", "--pe", encoding, *TINY, *RUNS[name], *changes, "--threads", "1"]
    if name == KILLED:
        _kill_in_the_middle(train)
    done(*train)
    run = next(Path("runs").glob("*/*/seed-0"))
    change = ["--with", "yarn"] if encoding.endswith("+yarn") else []
    grid = json.loads(done("score", run, "--json", "--threads", "1", *change).out)
    arrays = load_file(run / "weights" / "final.safetensors")
    return {
        "tensors": {key: _tensor_facts(arrays[key]) for key in sorted(arrays)},
        "grid": {key: grid[key] for key in GRID_KEYS},
    }


def _losses() -> list[float]:
    metrics = next(Path("runs").glob("*/*/seed-0/metrics.jsonl"))
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]


def _tensor_facts(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "norm": float(np.linalg.norm(array.astype(np.float64))),
        "sha256": _sha256(np.ascontiguousarray(array).tobytes()),
    }


def _frozen_leaderboard() -> dict[str, Any]:
    """The rows of the leaderboards of all committed runs of mini; not the prose around them."""
    boards = {}
    for runs in (root for root in ROOTS if find_runs(root, "mini")):
        output = done("leaderboard", "--preset", "mini", "--runs", runs, "--format", "json")
        sections = json.loads(output.out)["sections"]
        boards[runs.name] = [row for section in sections for row in section["rows"]]
    return boards


def _frozen_exit_codes() -> dict[str, int]:
    return {command: call(*command.split()).code for command in WRONG_COMMANDS}


def _kill_in_the_middle(arguments: list[str]) -> None:
    """Start a training in another process and kill it when some of its steps are done."""
    metrics = Path("runs/mini") / KILLED / "seed-0" / "metrics.jsonl"
    with start(arguments) as process:
        wait_until(lambda: metrics.is_file() or process.poll() is not None)
        process.kill()
    assert metrics.is_file(), "the training ended before it could be killed"


def _frozen_runs(*changes: str) -> dict[str, Any]:
    runs = {}
    for name in RUNS:
        with TemporaryDirectory() as folder, chdir(Path(folder)):
            runs[name] = _frozen_run(name, *changes) | ({"losses": _losses()} if changes else {})
    return runs


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested JSON with its place."""
    if isinstance(value, dict | list):
        yield place, len(value)
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, f"{place}.{key}")
    else:
        yield place, value


def _machine() -> str:
    """Name what decides how a CPU rounds: torch, vector instructions, processor."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, {capability}, {_processor()}"


def _processor() -> str:
    """Vendor and family, which decide the kernels that oneDNN and BLAS choose."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    keys = {key.strip(): value.strip() for key, value in facts.items()}
    flags = _sha256(keys.get("flags", "").encode())[:8]
    names = [keys.get(key, "") for key in ("vendor_id", "cpu family", "model")]
    return " ".join([*names, flags])


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write() -> None:
    """Write golden.json from the code as it is, one entry a line."""
    torch.set_num_threads(1)
    content: dict[str, Any] = {"leaderboard": _frozen_leaderboard()}
    runs = json.loads(GOLDEN.read_text())["runs"]
    with TemporaryDirectory() as folder, chdir(Path(folder)):
        content["exit_codes"] = _frozen_exit_codes()
        content["data"] = _frozen_data()
        content["runs"] = runs | {_machine(): _frozen_runs()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hardware, "_cpu_has_bfloat16", lambda: False)
            content["float32"] = _frozen_runs(*FIRST_STEPS)
    sections = [
        f'"{title}": {{\n'
        + ",\n".join(
            f' "{key}": {json.dumps(value, sort_keys=True)}'
            for key, value in sorted(entries.items())
        )
        + "\n}"
        for title, entries in sorted(content.items())
    ]
    GOLDEN.write_text("{" + ",\n".join(sections) + "}\n")


if __name__ == "__main__":
    _write()
