"""The command line: the README's three lines, one line for each error, and what is imported."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import tape_arith
from tape_arith import cli
from tape_arith.arith.commands.option import PANELS
from tape_arith.arith.decoders import cost
from tape_arith.arith.machine import own_version
from tape_arith.arith.runs.config import Config, setting_words
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.run import Run
from tape_arith.arith.terminal import protect_streams
from tape_arith.models.hardware import Hardware
from tests.helpers.tiny_runs import done, refused, settings

ROOT = Path(__file__).resolve().parents[1]
COMMANDS: dict[str, Any] = dict(cli.all_commands().commands)
MODULE = [sys.executable, "-m", "tape_arith"]


pytestmark = pytest.mark.usefixtures("here")


def test_the_readme_s_three_lines(here: Path) -> None:
    tiny = settings()[2:]  # as typed: without --preset
    assert done("generate", "--preset", "mini", *tiny).out == "data/addition-bucket-2\n"
    trained = done("train", "--pe", "tape", *tiny)
    (why,) = (line for line in trained.err.splitlines() if line.startswith("preset "))
    assert "paper-40" in why and "--preset" in why
    assert trained.out.splitlines()[-1] == "runs/mini/tape/seed-0"
    assert trained.out.startswith("tape seed 0:")
    done("train", "--pe", "fire", *tiny)
    assert done("heatmap", "--compare", "fire,tape").out == "runs/mini/fire-tape.png\n"
    assert Path("runs/mini/fire-tape.png").stat().st_size > 10_000


def test_the_preset_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fast(Hardware):
        @property
        def name(self) -> str:
            return "Some GPU"

    monkeypatch.setattr(cost, "detect", lambda: Fast("cuda", torch.bfloat16))
    preset, why = cost.default_preset()
    assert preset == "paper-40" and "(Some GPU)" in why


def test_a_line_without_utf_8_is_refused() -> None:
    assert "runs/\\xff" in refused("score", "runs/\udcff")


def test_a_number_of_any_length_is_refused() -> None:
    assert "--seeds" in refused("run", "--pe", "rope", "--seeds", "1" * 5_000)


@pytest.mark.parametrize(
    "command",
    [
        ("study", "errors", "runs/x", "--figure", "a.png"),
        ("heatmap", "--pe", "rope", "--out", "a.png"),
        ("leaderboard", "--figure", "a.png"),
        ("tasks", "--out", "a.png"),
        ("report", "--out", "a.png"),
        ("bench", "generate", "--out", "a.png"),
    ],
)
def test_what_cannot_be_replaced_is_refused_before_any_work(
    here: Path, command: tuple[str, ...]
) -> None:
    target = Path("a.png")
    for make in (target.mkdir, partial(target.symlink_to, "b"), partial(os.mkfifo, target)):
        make()
        assert refused(*command, code=1).startswith("cannot write a.png: it is ")
        target.rmdir() if target.is_dir() else target.unlink()


def test_whole_numbers_of_options_may_have_an_exponent(here: Path) -> None:
    done("generate", "--preset", "mini", "--count", "2.5e2", "--workers=1e0", "--out", "data")
    assert json.loads(Path("data/manifest.json").read_text())["count"] == 250
    done("train", "--pe", "rope", "--seed", "1e0", "--no-score", *settings())
    done("train", "runs/mini/rope/seed-1", "--steps", "1e1", "--no-score")
    assert Run(Path("runs/mini/rope/seed-1")).record().config.steps == 10
    for number in ("2.55e1", "1e-3", "e3", "1e13"):
        assert "--count" in refused("generate", "--count", number)


def test_whole_numbers_may_have_an_exponent() -> None:
    config = load_preset("mini")
    texts = {"steps": "2e3", "num_problems": "1.5e6", "learning_rate": "5e-4", "clip": "1e0"}
    changed = config.with_settings(texts)
    assert (changed.steps, changed.num_problems) == (2000, 1_500_000)
    assert (changed.learning_rate, changed.clip) == (5e-4, 1.0)
    assert config.with_settings({"steps": 2e3}).steps == 2000  # as TOML and Python have it


@pytest.mark.parametrize("name", [*COMMANDS, ""])
@pytest.mark.parametrize("columns", [40, 80])
def test_help_names_every_option_whole(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = done(*filter(None, [name]), "--help").out.splitlines()
    assert max(map(len, lines[2:])) <= columns  # the first has the name of this program
    text = "\n".join(lines)
    options = (
        {option for param in COMMANDS[name].params for option in param.opts} if name else set()
    )
    options = {option for option in options if option.startswith("-")}
    assert all(re.search(rf"^  .*{option}\b", text, re.MULTILINE) for option in options)
    assert not re.search(r"<|list\[|\[\[", text)  # words for people, not types
    if columns == 80:
        assert len(lines) < 75
    if not name:
        assert all(re.search(rf"^  {command}\b", text, re.MULTILINE) for command in COMMANDS)


def test_help_groups_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = done("train", "--help").out
    titles = re.findall(r"^(\w[\w ]*):$", text, re.MULTILINE)
    panels = [title for title in PANELS if title in titles]
    assert [title for title in titles if title != "Arguments"] == [*panels, "Options"]
    assert set(panels) >= {"What", "How long", "Machine"}
    (machine,) = re.findall(r"^Machine:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert re.findall(r"^  (--\w+)", machine, re.MULTILINE)[:3] == [
        *("--threads", "--backend", "--compile"),
    ]
    spellings = re.findall(r"^  (-.*?)  ", text, re.MULTILINE)
    assert max(map(len, spellings)) <= 27 and "<str>" not in text and "<=x" not in text


def test_hints_name_what_there_is() -> None:
    hints = tomllib.loads((ROOT / "arith/commands/hints.toml").read_text())
    assert {right.split()[0] for right in hints["commands"]} <= COMMANDS.keys()
    params = [param for command in COMMANDS.values() for param in command.params]
    assert hints["options"].keys() <= {option for param in params for option in param.opts}
    assert setting_words().keys() <= {field.name for field in fields(Config)}
    words = " ".join(hints["notes"].values()).split()
    assert {word for word in words if not word.startswith("-")} <= COMMANDS.keys()
    notes = [note for note in hints["notes"] if "torchrun" not in note]
    named = {word for note in notes for word in re.findall(r"(?<![\w-])--[a-z][a-z-]*", note)}
    assert named <= {word for param in params for word in (*param.opts, *param.secondary_opts)}


def test_an_option_has_one_meaning() -> None:
    """But for what a command makes or compares, an option reads the same wherever it is."""
    meanings: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                meanings.setdefault(option, set()).add(parameter.help)
    several = {option for option, texts in meanings.items() if len(texts) > 1}
    assert several == {"--out", "--format", "--model", "--pe", "--runs", "--seed"}


def test_a_stream_that_is_closed_goes_nowhere(here: Path) -> None:
    generate = [*MODULE, "generate", *settings(), "--out", "there"]
    result = subprocess.run(["sh", "-c", f"{shlex.join(generate)} >&- 2>&-"], capture_output=True)
    assert result.returncode == 0 and b"Traceback" not in result.stderr, result
    assert (here / "there" / "manifest.json").exists()


def test_letters_that_an_encoding_lacks_are_written_as_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    protect_streams()
    print("0.5 \N{PLUS-MINUS SIGN} 0.1", flush=True)
    assert stream.getvalue() == rb"0.5 \xb1 0.1" + b"\n"


# In a process of its own: what the others imported is not in the way.
LIGHT = """
import os, sys
sys.argv = ["tape-arith"]
from tape_arith import cli
def call(*arguments):
    sys.argv[1:] = arguments
    try:
        cli.main()
    except SystemExit as leaving:
        assert not leaving.code, (arguments, leaving.code)
    for name in ("torch", "pandas", "matplotlib"):
        assert name not in sys.modules, (arguments, name)
call("--help")
call("train", "-h")
call("list")
call("list", "--json")
call("generate", "--preset", "mini", "--set", "trained_digits=2", "--count", "50")
call("generate", "--verify", "data/addition-bucket-2")
print("COMPLETED")
os.environ |= {"_TAPE_ARITH_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
for words in ("train --pe ta", "heatmap --compare rope,fi", "train --preset pa"):
    os.environ["COMP_WORDS"] = "tape-arith " + words
    call()
os.environ |= {"COMP_WORDS": "tape-arith --version tr", "COMP_CWORD": "2"}
call()
del os.environ["_TAPE_ARITH_COMPLETE"]
from tape_arith.arith.api import comparisons
assert "torch" not in sys.modules  # nor do figures import it, as import-linter sees
"""


def test_what_is_imported() -> None:
    """Help, listing, completion, generating and comparing start without torch."""
    environment = {**os.environ, "PYTHONPATH": str(Path(tape_arith.__file__).parents[1])}
    result = subprocess.run(
        [sys.executable, "-c", LIGHT], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    words = result.stdout.split("COMPLETED")[1].split()
    for completed in ("tape", "tape-heads", "rope,fire", "paper-20", "paper-40", "train"):
        assert completed in words
    assert own_version() not in words  # which --version would tell, where nobody completes


@pytest.mark.slow
def test_the_console_script() -> None:
    script = Path(sys.executable).with_name("tape-arith")
    if not script.exists():
        pytest.skip("the package is not installed")
    result = subprocess.run([script, "heatmap"], capture_output=True, text=True)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("tape-arith: ") and result.stderr.count("\n") == 1
