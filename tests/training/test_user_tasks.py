"""Tasks in names, paths and records: runs of two tasks, or of two versions of one, never mix."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import tape_arith
from tape_arith.arith.commands.completion import complete_task
from tape_arith.arith.files import sha256
from tape_arith.arith.registry.names import parse_task
from tape_arith.arith.runs.find import find_runs
from tape_arith.arith.runs.preset import known_preset, load_preset, preset_of, presets
from tape_arith.arith.runs.run import Run
from tests.helpers.tiny_runs import SETTINGS, done, refused, settings, untouched

NO_CARRY = '''"""Addition that forgets its carries."""

import numpy as np

from tape_arith.arith.tasks.families.numbers import Digits, Int64
from tape_arith.arith.tasks.families.two_operands import TwoOperands, longer


class NoCarry(TwoOperands):
    """The sum of each place by itself, times a constant.

    times  a constant
    """

    version = 1
    symbol = "+"
    example = "48+5"

    def __init__(self, *, times: int = 1) -> None:
        super().__init__()
        self.times = times

    def answer(self, a: Digits, b: Digits) -> Digits:
        values = (a.values + b.values) * self.times % 10
        return Digits(values, np.maximum(a.lengths, b.lengths))

    def answer_digits(self, lengths: Int64) -> Int64:
        return longer(lengths)
'''


def train(*options: object, pe: str = "rope", **other: object) -> Run:
    return Run(Path(done("train", "--pe", pe, *settings(**other), *options).out.split()[-1]))


@pytest.mark.usefixtures("undrawn")
def test_a_task_has_one_name_wherever_it_comes_from(here: Path) -> None:
    """By --task, --set, --preset and a sweep's file; beside the preset's own runs, not in them."""
    path = "runs/mini@or@op=xor/rope/seed-0"
    assert str(train("--task", "Or:spaces=0:op=xor").path) == path
    record = Run(Path(path)).record()
    assert record.config.task == "or:op=xor" == record.preset.removeprefix("mini@")
    assert "task" not in record.settings
    with untouched(Path("runs")):  # the same run again, finished
        assert str(train(task="or:op=xor").path) == path
        preset = ["--preset", "mini@or:spaces=0:op=xor", *settings()[2:]]
        assert done("train", "--pe", "rope", *preset).out.endswith(f"{path}\n")
    assert str(train("--task", "addition:pad=false").path) == "runs/mini/rope/seed-0"
    Path("bits.toml").write_text(
        'preset = "mini"\nencodings = ["rope"]\nseeds = [0]\n[set]\ntask = "or:spaces=0"\n'
        + "".join(f"{key} = {value}\n" for key, value in SETTINGS.items())
    )
    dry = json.loads(done("sweep", "bits.toml", "--dry-run", "--json").out)
    assert dry["jobs"][0]["id"] == "train/bits/mini@or/rope/seed-0"

    assert [run.path.parts[1] for run in find_runs(Path("runs"))] == [
        "mini",
        "mini@or@op=xor",
    ]
    assert "mini@or:op=xor" in refused("heatmap", "--compare", "rope")
    drawn = done("heatmap", "--compare", "rope", "--preset", "mini@or:op=xor").out
    assert drawn.split()[-1] == "runs/mini@or@op=xor/rope.png"
    line = refused("heatmap", "--compare", "fire", "--preset", "mini@or:op=xor")
    assert line.endswith("--preset mini@or:op=xor")


@pytest.mark.usefixtures("undrawn")
def test_tasks_of_a_sweep_stand_in_one_table(here: Path) -> None:
    """Grids of one axis and of two; each task has ranks and folders of its own."""
    Path("tasks.toml").write_text(
        'preset = "mini"\nencodings = ["rope"]\nseeds = [0]\n[set]\n'
        + "".join(f"{key} = {value}\n" for key, value in SETTINGS.items())
        + '[grid]\ntask = ["addition", "copy:hints=false"]\n'
    )
    done("sweep", "tasks.toml")
    table = pd.read_csv("runs/sweeps/tasks/table.csv", dtype=str)
    rows = zip(table.encoding, table.task, table.seeds, strict=True)
    assert list(rows) == [("rope", "addition", "0"), ("rope", "copy", "0")]
    assert Path("runs/tasks/task=copy/mini@copy/rope/seed-0/grid.json").exists()


def test_names_of_presets() -> None:
    assert preset_of("mini", "addition") == preset_of("mini@sort", "addition") == "mini"
    assert preset_of("mini@copy", "sort") == "mini@sort" == known_preset("mini@sort:pad=false")
    assert load_preset("mini@sort").task == "sort"
    for config in map(load_preset, presets()):
        assert config.task == str(parse_task(config.task))
    assert known_preset("mini@gone.py:Task") == "mini@gone.py:Task"
    listed = json.loads(done("list", "mini@sort:pad=false", "--json").out)
    assert listed["preset"] == "mini@sort" and listed["config"]["task"] == "sort"


@pytest.mark.parametrize(
    ("word", "completions"),
    [
        ("su", ["subtraction", "sum"]),
        ("modular_sum:m", ["modular_sum:modulus="]),
        ("sort:pad=true:o", ["sort:pad=true:order=reversed", "sort:pad=true:order=plain"]),
        ("gone.py:Task:x", []),
        ("sotr:x", []),
    ],
)
def test_a_shell_completes_tasks_and_their_options(word: str, completions: list[str]) -> None:
    assert complete_task(word) == completions


def test_a_file_that_changes_is_another_task(here: Path) -> None:
    file = Path("no_carry.py")
    file.write_text(NO_CARRY)
    run = train("--task", "no_carry.py:NoCarry:times=1")
    assert str(run.path) == "runs/mini@no_carry.py@NoCarry/rope/seed-0"
    assert list(run.record().sources) == ["task no_carry.py:NoCarry"]
    first = done("score", run.path, "--json").out

    file.write_text(NO_CARRY.replace("times: int = 1", "times: int = 3"))
    with untouched(run.path):
        for command in (["score"], ["train"], ["ask", "1+1"]):
            assert "no_carry.py:NoCarry" in refused(command[0], run.path, *command[1:])
    other = train("--task", "no_carry.py:NoCarry", "--seed", "1", pe="nope")
    assert done("score", other.path, "--json").out != first  # the new file is loaded
    assert "versions" in refused("heatmap", "--compare", "all")

    file.unlink()  # its results are read without it
    assert str(run.path) in done("list").out
    assert "no_carry.py" in refused("score", run.path)
    shutil.rmtree(other.path)
    assert tape_arith.leaderboard(preset="mini@no_carry.py:NoCarry").encoding.item() == "rope"


def test_a_task_inside_the_folder_of_a_run_is_never_run(here: Path) -> None:
    Path("no_carry.py").write_text(NO_CARRY)
    run = train("--task", "no_carry.py:NoCarry", "--no-score")
    inside = f"{run.path}/mine.py"
    Path(inside).write_text(NO_CARRY + "\n\nopen('executed', 'w')\n")
    record = run.record()
    config = replace(record.config, task=f"{inside}:NoCarry")
    sources = {f"task {inside}:NoCarry": sha256(Path(inside))}
    run.write_record(replace(record, config=config, sources=sources))
    for command in ("score", "train"):
        assert "own code" in refused(command, run.path, code=1)
    done("list")
    assert not Path("executed").exists()


def test_a_dataset_of_another_task_is_refused(here: Path) -> None:
    """Of another format, and of a file that has changed since."""
    file = Path("no_carry.py")
    file.write_text(NO_CARRY)
    task = ["--task", "no_carry.py:NoCarry"]
    for chosen in (["--task", "addition:pad=true"], task):
        done("generate", *settings(), *chosen, "--count", 64)
    assert str(file) in refused("train", "--pe", "rope", *settings(), "--data", file)
    data = Path("data/no_carry.py@NoCarry-bucket-2")
    padded = Path("data/addition@pad=true-bucket-2")
    with untouched(here):
        line = refused("train", "--pe", "rope", *settings(), "--data", padded)
        assert line.startswith(str(padded)) and "addition:pad=true" in line
        line = refused("train", "--pe", "rope", *settings(), "--data", data)
        assert "no_carry.py:NoCarry" in line
    assert train(*task, "--data", data).record().data is not None
    file.write_text(NO_CARRY.replace("times: int = 1", "times: int = 3"))
    with untouched(here):
        line = refused("train", "--pe", "nope", *settings(), *task, "--data", data)
        assert "file has" in line
    assert train(*task, "--seed", "0", pe="nope").record().data is None


@pytest.mark.parametrize("task", ["addition:order=plain", "parity"])
def test_a_task_that_cannot_be_exported_leaves_nothing(task: str, here: Path) -> None:
    run = train("--task", task, "--no-score")
    with untouched(here):
        assert f"task {task} " in refused("export", run.path)
