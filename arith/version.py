"""Which version and which commit of the suite this is. No torch here."""

import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
"""Of the source tree, where this is one."""


def project() -> dict[str, Any] | None:
    """What the source tree's pyproject.toml says of the package; None where it was installed."""
    file = ROOT / "pyproject.toml"
    if not file.exists():
        return None
    about: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    return about


def own_version() -> str:
    """That of the source tree, where this is one: what is noted of an editable installation is of
    the day it was made. Else the installed version."""
    about = project()
    return str(about["version"]) if about is not None else version("tape-arith")


def commit() -> str | None:
    """The commit of the source tree, with "+" where files differ from it; None outside git."""
    if project() is None:  # a repository around an installed package is not ours
        return None
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    )
    return result.stdout.strip()
