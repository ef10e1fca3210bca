"""Encodings and tasks that are added: a file in the folder, a file on disk, an installed package.

Their code runs when a decoder or a problem is built, and never before.
"""

import json
import os
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import zip_longest
from pathlib import Path

import pytest

import tape_arith
from tape_arith import models
from tape_arith.arith.commands.completion import complete_encoding
from tape_arith.arith.contracts.examples import decoder_for
from tape_arith.arith.registry import locate as locate_module
from tape_arith.arith.registry.locate import locate, locations
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.run import Run
from tape_arith.arith.tasks.load import load_task
from tape_arith.models.errors import UsageError
from tests.contracts.test_encoding import HEAD, SLIPS
from tests.helpers.tiny_runs import done, refused, settings

ENCODING = '''"""A user's own."""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.sequences import Sequences

Path("imported").touch()


class Helper:
    """Stands above, so it is not the encoding."""


class Mine(PositionalEncoding):
    """A learned vector for each index, scaled.

    More about it.
    """

    kind = "absolute"
    paper = "Nobody 2026, arXiv 0000.00000"

    def __init__(
        self, setting: Setting, *, scale: float = 1.0, how: Literal["add", "not"] = "add"
    ) -> None:
        super().__init__(setting)
        self.scale, self.how = scale, how
        self.table = nn.Parameter(torch.zeros(setting.max_length, setting.hidden_size))

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        return x + self.scale * self.table[index] if self.how == "add" else x
'''
TASK = '''"""Repeating the first operand."""

from pathlib import Path

from tape_arith.arith.tasks.families.numbers import Digits, Int64
from tape_arith.arith.tasks.families.two_operands import TwoOperands

Path("imported").touch()


class Repeat(TwoOperands):
    """The first operand."""

    version = 3
    symbol = "x"
    example = "48x5"

    def answer_digits(self, lengths: Int64) -> Int64:
        return lengths[:, 0]

    def answer(self, a: Digits, b: Digits) -> Digits:
        return a
'''
ROOT = Path(models.__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODELS_README = (ROOT / "models" / "README.md").read_text(encoding="utf-8")
TASKS_README = (ROOT / "arith" / "tasks" / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def site(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder of installed packages, and an empty working folder."""
    site = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(site)
    clear_caches()
    before = set(sys.modules)
    yield site
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("theirs", "others"):
            del sys.modules[name]
    clear_caches()


def states() -> dict[str, tuple[str, list[str]]]:
    """Return the state and the grids of each listed run."""
    runs = json.loads(done("list", "--json").out)["runs"]
    return {run["path"]: (run["state"], run["grids"]) for run in runs}


def clear_caches() -> None:
    locations.cache_clear()
    load_task.cache_clear()


def install(site: Path, package: str, points: dict[str, dict[str, str]], **files: str) -> None:
    """As an installer would: the files of a package, its name and its entry points by group."""
    inner = site / package / "inner"
    inner.mkdir(parents=True)
    for outer in (inner.parent, inner):
        (outer / "__init__.py").write_text("from pathlib import Path\n\nPath('imported').touch()\n")
    for name, text in files.items():
        (inner / f"{name}.py").write_text(text)
    info = site / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = [
        f"[tape_arith.{group}]\n"
        + "".join(f"{name} = {package}.inner.{place}\n" for name, place in names.items())
        for group, names in points.items()
    ]
    (info / "entry_points.txt").write_text("".join(lines))
    clear_caches()


@pytest.fixture
def package(site: Path) -> Path:
    points = {"encodings": {"their_own": "mine:Mine"}, "tasks": {"their_task": "task:Repeat"}}
    install(site, "theirs", points, mine=ENCODING, task=TASK)
    return site


def test_a_package_is_listed_without_running_it(package: Path) -> None:
    content = json.loads(done("list", "--json").out)
    (entry,) = (entry for entry in content["encodings"] if entry["name"] == "their-own")
    assert entry["package"] == "theirs 1.2" and entry["problem"] == ""
    assert entry["options"]["scale"] == {"type": "float", "default": 1.0, "meaning": ""}
    assert content["task_packages"] == {"their-task": "theirs 1.2"}
    assert "their-own" in complete_encoding("their")
    assert str(parse("Their_Own:scale=1+rope")) == "rope+their-own"
    assert "'slope'" in refused("check", "their-own:slope=2")
    assert not Path("imported").exists()
    assert not any(name.startswith("theirs") for name in sys.modules)


def test_a_package_is_trained_and_its_run_is_read_without_it(package: Path) -> None:
    done("train", "--pe", "their-own:scale=2+rope", "--task", "their-task", *settings(steps=2))
    folder = Run(Path("runs/mini@their-task/rope+their-own@scale=2/seed-0"))
    record = folder.record()
    task = {"task their-task": locate("task", "their-task").sha256()}
    assert record.encoding == "rope+their-own:scale=2" and record.config.task == "their-task"
    assert record.sources == {"their-own": locate("encoding", "their-own").sha256()} | task
    assert '"version": 3' in folder.grid_file().read_text()
    assert json.loads(done("check", "their-own", "--json").out)["holds"]

    points = package / "theirs-1.2.dist-info" / "entry_points.txt"
    points.write_text(points.read_text().replace("their_", "their_other_"))
    clear_caches()
    assert states()[str(folder.path)] == ("trained", ["grid"])
    assert "rope+their-own:scale=2" in set(tape_arith.leaderboard().encoding)
    assert "rope+their-own:scale=2" in refused("score", folder.path)


def test_a_name_cannot_be_two_things(site: Path) -> None:
    points = {"encodings": {"rope": "mine", "mine": "mine"}, "tasks": {"addition": "task"}}
    install(site, "theirs", points, mine=ENCODING, task=TASK)
    install(site, "others", {"encodings": {"mine": "mine"}}, mine=ENCODING)
    for command in (("check", "abacus+rope"), ("heatmap", "--compare", "fire,rope")):
        message = refused(*command)
        assert "models/encodings/rope.py" in message and "(theirs.inner.mine)" in message
    message = refused("check", "mine")
    assert "theirs 1.2" in message and "others 1.2" in message
    message = refused("train", "--pe", "fire", *settings())
    assert "arith/tasks/addition.py" in message and "theirs 1.2" in message
    assert "models/encodings/rope.py" in done("list").out
    assert str(parse("fire")) == "fire" and not Path("imported").exists()


def test_a_package_must_give_what_it_says(site: Path) -> None:
    files = {
        "mine": ENCODING,
        "task": TASK,
        "raises": f"import no_such_module\n{ENCODING}",
        "symbol": TASK.replace('"x"', '"%"').replace("48x5", "48%5"),
        "width": TASK.replace("lengths[:, 0]", "lengths[:, 0] * 0 + 1"),
    }
    encodings = {"zz": "mine", "gone": "gone", "mine": "task", "raises": "raises"}
    tasks = {"not-one": "mine", "no-symbol": "symbol", "too-long": "width"}
    install(site, "theirs", {"encodings": encodings, "tasks": tasks}, **files)
    (line,) = (line for line in done("list").out.splitlines() if line.split()[:1] == ["gone"])
    assert line.endswith("theirs 1.2)") and str(parse("zz")) == "zz"
    for options, message in {
        ("--pe", "gone"): "theirs.inner.gone",
        ("--pe", "mine"): "(theirs.inner.task)",
        ("--pe", "raises"): "ModuleNotFoundError",
        ("--pe", "rope", "--task", "not-one"): "exactly one",
        ("--pe", "rope", "--task", "no-symbol"): "'%'",
        ("--pe", "rope", "--task", "too-long"): "answer_bound",
    }.items():
        assert message in refused("train", *options, *settings(), after=True)


def test_a_file_on_disk(here: Path) -> None:
    Path("mine.py").write_text(ENCODING)
    for spelling in ("mine.py:Mine", "./mine.py:Mine:scale=1.0", f"{here}/mine.py:Mine"):
        assert str(parse(spelling)) == "mine.py:Mine"
    assert not Path("imported").exists()
    done("run", "--pe", "./mine.py:Mine:scale=2,mine.py:Mine+rope", *settings(steps=2))
    assert not Path("__pycache__").exists()
    for slug in ("mine.py@Mine@scale=2", "mine.py@Mine+rope"):
        record = Run(Path(f"runs/mini/{slug}/seed-0")).record()
        assert record.sources == {"mine.py:Mine": locate("encoding", "mine.py:Mine").sha256()}
    assert Path("runs/mini/mine.py@Mine@scale=2-mine.py@Mine+rope.png").exists()
    assert "mine.py:Mine:scale=2" in set(tape_arith.leaderboard().encoding)
    assert "'slope'" in refused("check", "mine.py:Mine:slope=2")
    assert "'yarn'" in refused("train", "--pe", "mine.py:Mine+yarn", *settings())


SCALED = """from tape_arith.models.encodings.sinusoidal import Sinusoidal


class Mine(Sinusoidal):
    def __init__(self, setting, *, scale: float = 1.0):
        super().__init__(setting)
        self.scale = scale

    def embed(self, x, index, seqs):
        return super().embed(x, index, seqs) * self.scale
"""


def test_a_modifier_before_a_file_on_disk(here: Path) -> None:
    Path("mine.py").write_text(SCALED)
    done("train", "--pe", "aug-mine.py:Mine:scale=2:a=4", *settings(steps=2))
    record = Run(Path("runs/mini/aug-mine.py@Mine@a=4@scale=2/seed-0")).record()
    assert record.sources == {"aug-mine.py:Mine": locate("encoding", "mine.py:Mine").sha256()}
    assert tape_arith.leaderboard().encoding.tolist() == [record.encoding]
    Path("mine.py").write_text(SCALED.replace("scale", "per"))
    assert "option per" in refused("check", "aug-mine.py:Mine")


def test_a_changed_file_is_not_the_one_that_was_trained(here: Path) -> None:
    file, run = Path("mine.py"), "runs/mini/mine.py@Mine/seed-0"
    file.write_text(ENCODING)
    train = ("train", "--pe", "mine.py:Mine", *settings(steps=2))
    done(*train)
    weights = Path(run, "weights/final.safetensors").read_bytes()
    done(*train)
    file.write_text(ENCODING.replace("self.scale *", "self.scale +"))  # as long as before
    for command in (train, ("train", run), ("train", run, "--steps", 4), ("score", run)):
        assert "(SHA-256" in refused(*command)
    assert Path(run, "weights/final.safetensors").read_bytes() == weights
    done(*train, "--seed", 1)
    assert "versions of mine.py:Mine" in refused("leaderboard")
    done(*train, "--fresh")
    assert Path(run, "weights/final.safetensors").read_bytes() != weights
    file.unlink()
    assert "'mine.py'" in refused("score", run)
    assert states()[run] == ("trained", ["grid"])
    clear_caches()
    done("curves", "--pe", "mine.py:Mine", "--figure", "figure.png", "--preset", "mini")
    done("report", "--out", "page.html")
    assert "mine.py:Mine" in Path("page.html").read_text()
    content = json.loads(done("leaderboard", "--costs", "--format", "json").out)
    ((row,),) = (section["rows"] for section in content["sections"])
    assert row["kind"] == "absolute" and row["parameters"] > 0 and row["flops_a_token"] == 0
    assert row["encoding"] == "mine.py:Mine"


def test_an_encoding_that_breaks_a_promise_is_not_trained(here: Path) -> None:
    """A leak scores well by one teacher-forced pass."""
    Path("mine.py").write_text(HEAD + SLIPS["causal"]["causal"][0])
    for command in (("train", "--pe", "mine.py:Mine"), ("run", "--pe", "rope,mine.py:Mine")):
        line = refused(*command, *settings())
        assert "mine.py:Mine" in line and "(causal)" in line
    assert not Path("runs").exists()


def test_the_code_that_runs_is_the_code_that_was_hashed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two edits within a second, of one size: bytecode kept next to the file would be stale."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for value in ("1", "2", "1"):
        Path("mine.py").write_text(f"VALUE = {value}\n")
        os.utime("mine.py", (1, 1))
        module = locate("encoding", "mine.py:Mine").load()
        assert vars(module)["VALUE"] == int(value)
        assert locate("encoding", "mine.py:Mine").load() is module
    assert not Path("__pycache__").exists()
    Path("mine.py").write_text("x = 1\nraise KeyError('here')\n")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"'here' \(line 2"):
            locate("encoding", "mine.py:Mine").load()


@contextmanager
def added(kind: str, name: str, text: str) -> Iterator[Path]:
    """A copy of the folder of encodings or tasks, in place of ours, with one file more."""
    folder, place = locate_module.folder, Path(f"{kind}s").absolute()
    package = f"tape_arith.{'models' if kind == 'encoding' else 'arith'}.{kind}s"
    shutil.copytree(folder(kind), place)
    (place / f"{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locate_module, "folder", lambda k: place if k == kind else folder(k))
        patch.setattr(import_module(package), "__path__", [str(place)])
        clear_caches()
        yield place
    clear_caches()
    sys.modules.pop(f"{package}.{name}", None)


def test_an_encoding_in_one_file(here: Path) -> None:
    """Added to the folder of encodings it is listed, trained and scored."""
    with added("encoding", "zz_test", ENCODING.replace("Mine", "ZzTest")) as encodings:
        done("train", "--pe", "zz_test:scale=2", *settings(steps=2))
        run = Run(Path("runs/mini/zz-test@scale=2/seed-0"))
        assert run.record().encoding == "zz-test:scale=2" and run.record().sources == {}
        assert run.grid_file().exists()
        (encodings / "zz_broken.py").write_text("class Zz(:\n")
        clear_caches()
        for command in (("list",), ("train", "--pe", "zz-broken", *settings())):
            assert "zz_broken.py" in refused(*command)


def test_the_readme_s_task_in_one_file(here: Path) -> None:
    (text,) = re.findall(r'```python\n("""Addition that forgets.*?)```', TASKS_README, re.DOTALL)
    with added("task", "zz_no_carry", text):
        assert "zz-no-carry" in done("list").out.split()
        tiny = ("--task", "zz-no-carry", *settings(steps=2))
        done("generate", *tiny, "--format", "text", "--out", "a.txt")
        for line in Path("a.txt").read_text().split():
            a, b, c = re.split("[x=]", line)
            digits = zip_longest(a, b, fillvalue="0")
            assert c == "".join(str((int(x) + int(y)) % 10) for x, y in digits)
        done("train", "--pe", "rope", *tiny)
        run = Run(Path("runs/mini@zz-no-carry/rope/seed-0"))
        assert run.record().config.task == "zz-no-carry" and run.grid_file().exists()


def test_the_readme_s_example(here: Path) -> None:
    """The encoding that the README shows keeps the contract, and the other code there runs."""
    blocks = re.findall(r"^```python\n(.*?)^```$", README + MODELS_README, flags=re.M | re.S)
    functions, example, script = blocks
    assert set(re.findall(r"tape_arith\.(\w+)", functions)) <= set(tape_arith.__all__)
    Path("mine.py").write_text(example)
    report = json.loads(done("check", "mine.py:Mine", "--json").out)
    assert report["holds"] and report["name"] == "mine.py:Mine"
    assert len(report["warnings"]) == 1  # nothing but that a twin is missing
    done("train", "--pe", "mine.py:Mine:slope=0.5", *settings(steps=2))
    Path("twin.py").write_text(script)
    runpy.run_path("twin.py")


def test_the_readme_s_pattern_of_layers(here: Path) -> None:
    text = locate_module.folder("encoding").joinpath("README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)
    Path("early.py").write_text(block)
    assert json.loads(done("check", "early.py:EarlyALiBi", "--json").out)["holds"]
    layers = decoder_for("early.py:EarlyALiBi", num_layers=4).pe.layers
    assert [type(layer).__name__ for layer in layers] == 2 * ["AdditiveBiasLayer"] + 2 * [
        "PositionalLayer"
    ]
