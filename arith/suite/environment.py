"""What a run ran on: recorded, so that a number can be traced and a resume can be promised."""

import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from models.hardware import Hardware

# What must be equal for a resumed training to be bit for bit that of an unbroken one.
DECIDES_BITS = ("torch", "device", "hardware", "dtype", "attention", "processes")


def environment(hardware: Hardware) -> dict[str, Any]:
    """What environment.json says: versions, commit, command, machine."""
    return {
        "tape-arith": own_version(),
        "commit": commit(),
        "command": " ".join(["tape-arith", *sys.argv[1:]]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": hardware.device,
        "hardware": hardware.name,
        "dtype": hardware.dtype_name,
        "threads": hardware.threads,
        "attention": hardware.attention,
        "system": f"{platform.system()} {platform.machine()}",
    }


def own_version() -> str:
    """What the source tree's pyproject.toml says, where this is one: what is noted of an editable
    installation is of the day it was made. Else the installed version."""
    file = _root() / "pyproject.toml"
    if not file.exists():
        return version("tape-arith")
    return file.read_text(encoding="utf-8").split('\nversion = "')[1].split('"')[0]


def commit() -> str | None:
    """The commit of the source tree, with "+" where files differ from it; None outside git."""
    if not (_root() / "pyproject.toml").exists():  # installed: a repository around it is not ours
        return None
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(_root()), *arguments], capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def _root() -> Path:
    return Path(__file__).resolve().parents[2]
