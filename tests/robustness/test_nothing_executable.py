"""What is read is never run: a run brings no code along, and its names stay text in pages and on
terminals. That no code of ours unpickles or evaluates is a rule of ruff (pyproject.toml)."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tape_arith import cli
from tests.helpers.child_processes import finish
from tests.helpers.documents import edit
from tests.helpers.tiny_runs import call, done, settings

pytestmark = pytest.mark.usefixtures("undrawn")

ROOT = Path(cli.__file__).parent
RUN = Path("runs/mini/rope/seed-0")
TRAP = '''"""An encoding that leaves a mark when it is imported."""

from tape_arith.models.encodings.rope import RoPE

open("sprung", "w").close()


class Mine(RoPE):
    """Rope by another name."""

    kind = "rotary"
    paper = "none"
'''
TASK_TRAP = TRAP.replace("models.encodings.rope", "arith.tasks.copy").replace("RoPE", "Copy")
TASK_TRAP += "    chance = 0.5\n"
ESCAPE = "\x1b[31mred\x1b]0;title\x07\u202e\x9b2J"


def assert_not_sprung(*commands: tuple[object, ...]) -> None:
    """Run commands, and those that any run gets, that must run nothing of its files."""
    every = (("score", RUN, "--fresh"), ("train", RUN), ("status", "runs"), ("report",))
    for command in (*every, ("leaderboard", "--costs"), ("study", "errors", RUN), *commands):
        result = call(*command)
        assert not Path("sprung").exists(), command
        assert "Traceback" not in result.err, result.err


def test_a_user_s_file_runs_where_it_is_named(world: Path) -> None:
    """The control: the trap does spring."""
    Path("mine.py").write_text(TRAP)
    done("train", "--pe", "mine.py:Mine", "--no-score", *settings())
    assert Path("sprung").exists()


@pytest.mark.parametrize(
    ("recorded", "place"),
    [(True, Path.absolute), (False, Path)],
    ids=["absolute and its hash recorded", "relative and no hash"],
)
def test_a_run_brings_no_code(world: Path, recorded: bool, place: Callable[[Path], Path]) -> None:
    file = RUN / "mine.py"
    file.write_text(TRAP)
    name = f"{place(file)}:Mine"
    sha256 = hashlib.sha256(TRAP.encode()).hexdigest()
    edit(RUN / "run.json", encoding=name, sources={name: sha256} if recorded else {})
    assert_not_sprung(("train", RUN, "--steps", "99"), ("list",), ("study", "stability", RUN))
    assert "never executed" in call("score", RUN, "--fresh").err
    edit(RUN / "grid.json", encoding=name)
    assert call("leaderboard", "--costs").code == 0 and not Path("sprung").exists()


def test_a_run_brings_no_task(world: Path) -> None:
    file = RUN / "task.py"
    file.write_text(TASK_TRAP)
    name = f"{file}:Mine"
    run, grid = (json.loads((RUN / part).read_text()) for part in ("run.json", "grid.json"))
    edit(RUN / "run.json", config=run["config"] | {"task": name})
    edit(RUN / "grid.json", evaluation=grid["evaluation"] | {"task": name})
    assert_not_sprung(
        ("tasks",),
        ("heatmap", "--compare", "rope"),
        ("curves", "--compare", "rope"),
    )
    assert "a guess is right in 50" in call("leaderboard").out


def test_no_escape_reaches_the_terminal(world: Path) -> None:
    folder = Path(f"runs/mini/{ESCAPE}/seed-0")
    shutil.copytree(RUN, folder)
    grid = RUN / "grid.json"
    original = grid.read_bytes()
    for key, value in (("encoding", ESCAPE), (ESCAPE, 1)):
        grid.write_bytes(original)
        edit(grid, **{key: value})
        for command in (
            ("list",),
            ("status", "runs"),
            ("leaderboard",),
            ("score", folder),
            ("score", ESCAPE),
            ("train", "--pe", ESCAPE),
            ("sweep", f"{ESCAPE}.toml"),
            ("study", "errors", folder, RUN),
        ):
            result = call(*command)
            assert not set(result.out + result.err) & set("\x1b\x07\x9b\u202e\r"), command
            assert "Traceback" not in result.err


def test_every_command_says_what_it_may_run() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    table = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    stated = {name for cell in table for name in re.findall("`([a-z]+)`", cell)}
    assert stated == cli.all_commands().commands.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoding", "task"])
def test_commands_that_read_run_no_file_of_the_user_s_own(here: Path, kind: str) -> None:
    """Of runs whose hashes are recorded and unchanged; the control is that scoring springs."""
    Path("mine.py").write_text({"encoding": TRAP, "task": TASK_TRAP}[kind])
    named, compared = {
        "encoding": (["--pe", "mine.py:Mine"], "mine.py:Mine"),
        "task": (["--pe", "rope", "--task", "mine.py:Mine"], "rope"),
    }[kind]
    finish(["train", *named, *settings()], here)  # in another process: imports happen once
    Path("sprung").unlink()
    (run,) = (file.parent for file in Path("runs").rglob("run.json"))
    preset = ("--preset", run.parts[1].replace("mine.py@Mine", "mine.py:Mine"))
    for command in (
        ("list",),
        ("list", "mine.py:Mine"),
        ("list", "--costs"),
        ("status", "runs"),
        ("doctor",),
        ("leaderboard", *preset),
        ("heatmap", "--compare", compared, *preset),
        ("curves", "--compare", compared, *preset),
        ("report", *preset),
        ("tasks",),
    ):
        done(*command)
        assert not Path("sprung").exists(), command
    done("score", run, "--fresh")
    assert Path("sprung").exists()
