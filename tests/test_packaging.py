"""The installed package: the list of packages in pyproject.toml is that of the folders."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_folder_with_code_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    folders = {
        f"tape_arith.{file.parent.relative_to(ROOT).as_posix().replace('/', '.')}"
        for top in ("arith", "models")
        for file in (ROOT / top).rglob("*.py")
    }
    assert sorted(folders | {"tape_arith"}) == sorted(settings["packages"])
