"""READMEs: commands parse and survive being typed in order; what is installed of the folders."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tape_arith import cli
from tape_arith.arith.compare.selection import ALL
from tape_arith.arith.decoders import cost
from tape_arith.arith.machine import own_version
from tape_arith.arith.registry.names import parse_list
from tape_arith.arith.runs.preset import PRESETS_FOLDER, presets
from tests.helpers.tiny_runs import SETTINGS, done

FILES = ("pyproject.toml", "README.md", "py.typed")
ROOT = Path(cli.__file__).parent
READMES = [
    *ROOT.glob("README.md"),
    *ROOT.glob("arith/*.md"),
    *ROOT.glob("arith/*/README.md"),
    *ROOT.glob("models/README.md"),
]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in READMES)
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
ELSEWHERE = {"make"}
"""Programs of the README that set up an environment, which is there."""
COMMANDS: dict[str, Any] = dict(cli.all_commands().commands)


def blocks(language: str) -> list[str]:
    """Code blocks of all READMEs in a language."""
    return [code for other, code in BLOCK.findall(TEXT) if other == language]


def test_every_command_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a reader would have written the example
    Path("mine.py").write_text(next(code for code in blocks("python") if "class Mine(" in code))
    text = "\n".join(blocks("sh")).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith("tape-arith ")]
    assert len(READMES) > 5 and len(lines) > 40
    for line in lines:
        name, *words = shlex.split(line.split(" > ")[0], comments=True)[1:]
        if name == "--help":
            continue
        # Raises what the command line would say of an option that does not exist.
        command = COMMANDS[name]
        options = command.make_context(name, words).params
        for option in ("pe", "compare"):
            if options.get(option) not in (None, [], [ALL]):
                parse_list(",".join(options[option]))
        assert options.get("preset") in (None, *presets()), line


@pytest.mark.slow
@pytest.mark.parametrize("suitable", ["mini", "paper-40"])
def test_the_blocks_survive_being_typed_in_order(
    here: Path, monkeypatch: pytest.MonkeyPatch, suitable: str
) -> None:
    """Presets are tiny; the one that is taken where none is named is a CPU's, then a GPU's."""
    shutil.copytree(PRESETS_FOLDER, here / "presets")
    monkeypatch.setattr("tape_arith.arith.runs.preset.PRESETS_FOLDER", here / "presets")
    for preset in (here / "presets").iterdir():
        text = preset.read_text()
        # `ask` is given three digits.
        for key, value in {**SETTINGS, "trained_digits": "3", "tested_digits": "4"}.items():
            text = re.sub(rf"^{key} = .*", f"{key} = {value}", text, flags=re.MULTILINE)
        preset.write_text(text)
    monkeypatch.setattr(cost, "default_preset", lambda: (suitable, "it suits this machine"))
    typed = 0
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for language, code in BLOCK.findall(readme):
        if "class Mine(" in code:
            Path("mine.py").write_text(code)
        elif language == "python":
            Path("block.py").write_text(code)
            runpy.run_path("block.py")
        else:
            for line in code.splitlines():
                program, *words = shlex.split(line, comments=True)
                assert program == "tape-arith" or program in ELSEWHERE, line
                if program == "tape-arith":
                    print(line)  # what a failure shows last is the line that failed
                    done(*words)
                    typed += 1
                    if "ours.tgz" in words:
                        shutil.copy("ours.tgz", "theirs.tgz")  # as if another lab had sent one
    assert typed == len(re.findall("^tape-arith ", readme, flags=re.MULTILINE)) > 10


def test_every_folder_with_code_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    folders = {
        f"tape_arith.{file.parent.relative_to(ROOT).as_posix().replace('/', '.')}"
        for top in ("arith", "models")
        for file in (ROOT / top).rglob("*.py")
    }
    assert sorted(folders | {"tape_arith"}) == sorted(settings["packages"])


def copied_tree(tree: Path) -> Path:
    """Copy what a wheel is built from."""
    for folder in ("arith", "models"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("*.py"), *(ROOT / name for name in FILES)):
        shutil.copy(file, tree)
    return tree


def built(kind: str, tree: Path, folder: Path) -> Path:
    """Build the wheel or the source archive ("sdist") of a tree in `folder`."""
    out = folder / "built"
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, capture_output=True)
    return next(out.iterdir()).rename(folder / f"{tree.name}.{kind}")


SCRIPT = """
from torch import Tensor

import tape_arith
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.sequences import Sequences


class Mine(PositionalEncoding):
    def indices(self, seqs: Sequences) -> Tensor:
        return super().indices(seqs) + 1


reveal_type(tape_arith.train("rope", preset="mini"))
reveal_type(tape_arith.leaderboard(preset="mini"))
tape_arith.train(3)
tape_arith.trian("rope")
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="needs mypy: pip install mypy")
def test_a_script_is_checked_against_the_types_of_an_installed_wheel(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    with zipfile.ZipFile(built("wheel", copied_tree(tmp_path / "tree"), tmp_path)) as wheel:
        wheel.extractall(packages)
    (packages / "others.pth").write_text(str(Path(torch.__file__).parents[1]))
    (tmp_path / "script.py").write_text(SCRIPT)
    python = str(tmp_path / "venv" / "bin" / "python")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "script.py"],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    *lines, last = result.stdout.splitlines()
    assert last == "Found 2 errors in 1 file (checked 1 source file)", result.stdout
    for line, words in zip(
        lines,
        ["tape_arith.arith.api.run.Run", "DataFrame", 'has incompatible type "int"', '"trian"'],
        strict=True,
    ):
        assert words in line


@pytest.mark.slow
def test_what_is_installed_knows_its_commit(tmp_path: Path) -> None:
    """Of a wheel, and of one by way of a source archive: neither is in a repository."""
    tree, archive = copied_tree(tmp_path / "tree"), tmp_path / "archive"
    with (tree / "pyproject.toml").open("a") as project:
        project.write('\n[project.urls]\nRepository = "https://example.org/suite"\n')
    as_somebody = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    for words in (["init", "-q"], ["add", "."], [*as_somebody, "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", str(tree), *words], check=True)
    head = ["git", "-C", str(tree), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()

    def version(wheel: Path) -> str:
        installed = wheel.with_suffix("")
        zipfile.ZipFile(wheel).extractall(installed)
        (metadata,) = installed.glob("*.dist-info/METADATA")
        text = metadata.read_text(encoding="utf-8")
        assert "](https://example.org/suite/raw/HEAD/results/small-20/comparison.png)" in text
        assert "](https://example.org/suite/blob/HEAD/SECURITY.md)" in text
        assert not re.search(r"\]\((?!https://)", text)
        command = [sys.executable, "-P", "-m", "tape_arith", "--version"]
        variables = {**os.environ, "PYTHONPATH": str(installed)}
        return subprocess.check_output(command, env=variables, cwd=tmp_path, text=True).strip()

    with tarfile.open(built("sdist", tree, tmp_path)) as source:
        source.extractall(archive, filter="data")
    (unpacked,) = archive.iterdir()
    for source_tree in (tree, unpacked):
        assert (
            version(built("wheel", source_tree, tmp_path))
            == f"tape-arith {own_version()} ({commit})"
        )


def test_the_table_is_that_of_the_leaderboard() -> None:
    readme = _table((ROOT / "README.md").read_text(encoding="utf-8"))
    leaderboard = _table((ROOT / "results/small-20/leaderboard.md").read_text(encoding="utf-8"))
    assert len(readme) == 7
    for name, row in readme.items():
        del row["all cells in the paper, %"]
        assert {key: leaderboard[name][key] for key in row} == row


def _table(text: str) -> dict[str, dict[str, str]]:
    """Return the rows of the pipe tables that have encodings, by encoding and head."""
    rows: dict[str, dict[str, str]] = {}
    heads: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if "encoding" in cells:
            heads = cells
        elif not line.startswith("|"):
            heads = []
        elif heads and "---" not in cells:
            row = dict(zip(heads, cells, strict=True))
            rows[row["encoding"]] = row
    return rows
