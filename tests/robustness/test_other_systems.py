"""What Linux has and Windows lacks is not needed to read results, nor to train in one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tape_arith import cli
from tests.helpers.tiny_runs import settings

ROOT = Path(cli.__file__).parent
RESULTS = ROOT / "results"
WITHOUT = """
import os, signal, sys

for name in [name for name in dir(signal) if name.startswith("SIG") and name[3] != "_"]:
    if name not in ("SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"):
        delattr(signal, name)
for name in ("O_NONBLOCK", "O_CLOEXEC", "fork", "setsid", "killpg", "getuid", "geteuid", "mkfifo",
             "sched_getaffinity", "getpgid", "statvfs", "getloadavg"):
    delattr(os, name)
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "syslog"):
    sys.modules[name] = None
os_open = os.open


def open_no_folders(path, *arguments, **options):
    if isinstance(path, (str, os.PathLike)) and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return os_open(path, *arguments, **options)


os.open = open_no_folders
"""


def run(here: Path, *arguments: object, prelude: str = WITHOUT) -> subprocess.CompletedProcess[str]:
    code = f"{prelude}\nimport tape_arith.cli\ntape_arith.cli.main()"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        cwd=here,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )


def test_a_command_starts_without_signals_and_calls_of_posix(here: Path) -> None:
    result = run(here, "list")
    assert result.returncode == 0 and "ENCODINGS" in result.stdout, result.stderr


@pytest.mark.slow
def test_results_are_read_and_runs_trained_without_them(here: Path) -> None:
    mini = ("--runs", RESULTS, "--preset", "mini")
    commands: list[tuple[object, ...]] = [
        ("leaderboard", *mini),
        ("heatmap", "--compare", "rope,tape", *mini, "--out", "f.png"),
        ("train", "--pe", "rope", *settings()),
        ("score", "runs/mini/rope/seed-0", "--max-digits", 4),
        ("export", "runs/mini/rope/seed-0"),
        ("generate", *settings(), "--workers", 1),
    ]
    for command in commands:
        result = run(here, *command)
        assert result.returncode == 0, (command, result.stderr)
    assert (here / "runs/mini/rope/seed-0/grid-to-4.json").exists()


@pytest.mark.slow
def test_every_module_can_be_imported_there(here: Path) -> None:
    names = [
        "tape_arith." + file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for folder in ("arith", "models")
        for file in (ROOT / folder).rglob("*.py")
        # The one is for setuptools, the other for Triton, which Windows lacks.
        if file.name not in ("wheel.py", "__init__.py") and "kernels" not in file.parts
    ]
    imports = f"import importlib\nfor name in {names}: importlib.import_module(name)\n"
    result = run(here, "--version", prelude=WITHOUT + imports)
    assert result.returncode == 0, result.stderr
