"""The command line: the README's three lines, one line for each error, and what is imported."""

import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import tape_arith
from tape_arith import cli
from tape_arith.arith.decoders import cost
from tape_arith.arith.machine import own_version
from tape_arith.arith.runs.config import Config, setting_words
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.terminal import protect_streams
from tape_arith.models.hardware import Hardware
from tests.helpers.tiny_runs import contents, done, refused, settings

ROOT = Path(__file__).resolve().parents[1]
COMMANDS: dict[str, Any] = vars(typer.main.get_command(cli.app))["commands"]
MODULE = [sys.executable, "-m", "tape_arith"]


pytestmark = pytest.mark.usefixtures("here")


def test_the_readme_s_three_lines(here: Path) -> None:
    tiny = settings()[2:]  # as typed: without --preset
    assert done("generate", "--preset", "mini", *tiny).out == "data/addition-bucket-2\n"
    trained = done("train", "--pe", "tape", *tiny)
    (why,) = (line for line in trained.err.splitlines() if line.startswith("preset "))
    assert why.startswith("preset mini: there is no GPU, and paper-40 would take at least ")
    assert "--preset" in why
    assert trained.out.splitlines()[-1] == "runs/mini/tape/seed-0"
    assert trained.out.startswith("tape seed 0: out of distribution ")
    done("train", "--pe", "fire", *tiny)
    assert done("heatmap", "--compare", "fire,tape").out == "runs/mini/fire-tape.png\n"
    assert Path("runs/mini/fire-tape.png").stat().st_size > 10_000


def test_the_preset_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fast(Hardware):
        @property
        def name(self) -> str:
            return "Some GPU"

    monkeypatch.setattr(cost, "detect", lambda: Fast("cuda", torch.bfloat16))
    assert cost.default_preset() == ("paper-40", "preset paper-40: there is a GPU (Some GPU)")


@pytest.mark.parametrize(
    ("pe", "message"), [("rand-rope:l_max=3", "longest tested"), ("nope+yarn", "NoPE has none")]
)
def test_encodings_are_refused_before_anything_is_made(here: Path, pe: str, message: str) -> None:
    assert message in refused("run", "--pe", f"rope,{pe}", *settings())
    assert contents(here) == {}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("trian",), "trian"),
        (("generate", "extra"), "extra"),
        (("train",), "--pe"),
        (("train", "runs/x", "--pe", "rope"), "leave out --pe or RUN"),
        (("train", "--pe", "tape,rope"), "tape-arith run --pe tape,rope"),
        (("train", "--pe", "rope", "--time-limit", "soon"), "not 'soon'"),
        (("list", "--runs", "a", "--runs", "b"), "--runs takes one value and is given twice"),
        (("run", "--pe", "rope", "--seeds", "4-0"), "4-0 counts down: write 0-4"),
        (("run", "--pe", "rope", "--seeds", "0-99999999"), "--seeds takes numbers up to"),
        (("run", "--pe", "rope", "--seeds", "1" * 5_000), "takes numbers up to"),
        (("run", "--pe", "rope", "--seeds", "a,b"), "as in 0,1,2 or 0-2, not 'a,b'"),
        (("train", "--pe", "rope", "--threads", "100000"), "--threads"),
        (("train", "runs/x", "--set", "steps=8"), "RUN continues"),
        (("train", "runs/x"), "runs/x holds no run"),
        (("train", "rope"), "write --pe rope to train an encoding"),
        (("score", "runs/x", "--backend", "flash"), "did you mean 'flash-attn'?"),
        (("score", "runs/x", "--max-digits", "0"), "--max-digits"),
        (("score", "runs/\udcff"), "runs/\\xff is not UTF-8"),
        (("leaderboard", "--runs", __file__), "--runs"),
        (("generate", "--count", "9" * 23), "--count"),
        (("generate", "--verify", "x", "--count", "3"), "--verify DIR only checks"),
        (("generate", "--verify", __file__), "is a file, and a dataset is a folder"),
    ],
)
def test_usage_that_is_refused(here: Path, command: tuple[str, ...], message: str) -> None:
    assert message in refused(*command)
    assert contents(here) == {}


HINTS = {
    "train --lr 1": "--set learning_rate=VALUE",
    "train --learning_rate=1": "--set learning_rate=VALUE",
    "score x --lr 1": "`train --set learning_rate=VALUE`",
    "sweep mini-all --lr 1": "[set] in a sweep file",
    "train --output_dir x": "--runs",
    "heatmap --output_dir x": "--figure",
    "leaderboard --output_dir x": "--out",
    "curves --model rope": "--pe",
    "run --data x": "--datasets",
    "report --max_digits 3": "--max-digits",
    "study errors x --num-samples 3": "write --problems",
    "train --resume": "repeat the command",
    "train --device cpu": "CUDA_VISIBLE_DEVICES= before the command for the CPU",
    "sweep mini-all --set steps=3": "under [set]",
    "train --ckpt x": "--init-from",
    "score x --ckpt x": "the folder of a run",
    "heatmap --format pdf": "the ending of the file in --figure",
}


@pytest.mark.parametrize("line", HINTS)
def test_other_spellings_are_told_the_right_one(line: str) -> None:
    wrong = next(word for word in line.split() if word.startswith("--")).split("=")[0]
    message = refused(*line.split())
    assert f"has no {wrong}: " in message and HINTS[line] in message


@pytest.mark.parametrize(("wrong", "right"), [("eval", "score"), ("resume", "train RUN")])
def test_other_names_of_commands_are_told_the_right_one(wrong: str, right: str) -> None:
    assert refused(wrong, "x").endswith(f": write tape-arith {right}")


REFUSED = {
    "train --preset mini --pe rope --set lr=1": "setting 'lr': did you mean 'learning_rate'?",
    "train --preset mini --pe rope --set n_layer=1": "did you mean 'num_layers'?",
    "train --preset mini --pe rope --set stesp=1": "did you mean 'steps'?",
    "train --preset mini --pe rope --set steps=2.5e0": "'steps' must be",
    "train --preset mini --pe rope --set steps=1e99": "'steps' must be",
    "heatmap rope tape": "heatmap takes encodings as an option: --pe rope,tape",
    "curves --json rope,tape": "curves takes encodings as an option: --pe rope,tape",
    "run rope": "run takes encodings as an option: --pe rope",
    "train --pe rotary": "'p-rope' or 'pope' or 'rope'",
    "train --pe fier": "did you mean 'fire'?",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_people_type_is_answered_with_what_they_mean(line: str, here: Path) -> None:
    assert REFUSED[line] in refused(*line.split())


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
    if columns == 80:
        assert len(lines) < 75
    if not name:
        assert all(re.search(rf"^  {command}\b", text, re.MULTILINE) for command in COMMANDS)


def test_hints_name_what_there_is() -> None:
    hints = tomllib.loads((ROOT / "arith/commands/hints.toml").read_text())
    assert {right.split()[0] for right in hints["commands"]} <= COMMANDS.keys()
    params = [param for command in COMMANDS.values() for param in command.params]
    assert hints["options"].keys() <= {option for param in params for option in param.opts}
    assert setting_words().keys() <= {field.name for field in fields(Config)}
    notes = [note for note in hints["notes"] if "torchrun" not in note]
    named = {word for note in notes for word in re.findall(r"(?<![\w-])--[a-z][a-z-]*", note)}
    assert named <= {word for param in params for word in (*param.opts, *param.secondary_opts)}


def test_an_option_has_one_meaning() -> None:
    """But for what a command makes, an option reads the same wherever it is."""
    meanings: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                meanings.setdefault(option, set()).add(parameter.help)
    several = {option for option, texts in meanings.items() if len(texts) > 1}
    assert several == {"--out", "--format", "--pe", "--seed"}


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
def call(*arguments, heavy=("torch", "pandas", "matplotlib")):
    sys.argv[1:] = arguments
    try:
        cli.main()
    except SystemExit as leaving:
        assert not leaving.code, (arguments, leaving.code)
    for name in heavy:
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
scored = "--runs", RESULTS, "--preset", "mini"
call("heatmap", "--compare", "rope,fire", *scored, "--out", "f.png", heavy=["torch"])
"""


def test_what_is_imported() -> None:
    """Help, listing, completion, generating and drawing start without torch."""
    environment = {**os.environ, "PYTHONPATH": str(Path(tape_arith.__file__).parents[1])}
    light = LIGHT.replace("RESULTS", repr(str(ROOT / "results")))
    result = subprocess.run(
        [sys.executable, "-c", light], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    words = result.stdout.split("COMPLETED")[1].split()
    for completed in ("tape", "tape-heads", "rope,fire", "paper-20", "paper-40", "train"):
        assert completed in words
    assert own_version() not in words  # which --version would tell, where nobody completes


def test_the_console_script() -> None:
    script = Path(sys.executable).with_name("tape-arith")
    if not script.exists():
        pytest.skip("the package is not installed")
    result = subprocess.run([script, "heatmap"], capture_output=True, text=True)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("tape-arith: ") and result.stderr.count("\n") == 1
