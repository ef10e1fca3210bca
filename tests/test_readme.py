"""Commands of every README parse, and every folder with code is installed."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from tape_arith import cli
from tape_arith.arith.compare.panels import ALL
from tape_arith.arith.runs.record import presets
from tape_arith.models.names import parse_list

ROOT = Path(cli.__file__).parent
READMES = [*ROOT.glob("README.md"), *ROOT.glob("arith/*/README.md"), *ROOT.glob("models/README.md")]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in READMES)
COMMANDS: dict[str, Any] = vars(typer.main.get_command(cli.app))["commands"]


def blocks(language: str) -> list[str]:
    """Code blocks of all READMEs in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


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
            if options.get(option) not in (None, "", ALL):
                parse_list(options[option])
        assert options.get("preset") in (None, *presets()), line


def test_every_folder_with_code_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    folders = {
        f"tape_arith.{file.parent.relative_to(ROOT).as_posix().replace('/', '.')}"
        for top in ("arith", "models")
        for file in (ROOT / top).rglob("*.py")
    }
    assert sorted(folders | {"tape_arith"}) == sorted(settings["packages"])
