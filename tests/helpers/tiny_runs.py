"""Commands run in this process, at sizes that take a tenth of a second."""

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from tape_arith import cli

SETTINGS = {
    "trained_digits": "2",
    "tested_digits": "3",
    "num_problems": "64",
    "num_layers": "1",
    "hidden_size": "16",
    "num_heads": "2",
    "head_dim": "8",
    "mlp_size": "16",
    "batch_size": "8",
    "groups": "1",
    "steps": "4",
    "learning_rate": "0.001",
    "cooldown": "0.25",
    "problems_per_cell": "3",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
"""What a command handles until its process ends, which here goes on."""


class Result(NamedTuple):
    """A command's exit code and output."""

    code: int
    out: str
    err: str


def settings(**other: object) -> list[str]:
    """Return the options of the tiny preset, with `other` in place of some settings."""
    pairs = {**SETTINGS, **{key: str(value) for key, value in other.items()}}
    options = [("--set", f"{key}={value}") for key, value in pairs.items()]
    return ["--preset", "mini", *(word for option in options for word in option)]


def call(*arguments: object) -> Result:
    """Run a command as the console script does; unexpected errors come through."""
    out, err = io.StringIO(), io.StringIO()
    argv, handlers = sys.argv, {number: signal.getsignal(number) for number in SIGNALS}
    sys.argv = ["tape-arith", *map(str, arguments)]
    code: object = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as leaving:
        code = leaving.code or 0
    finally:
        sys.argv = argv
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Result(code if isinstance(code, int) else 1, out.getvalue(), err.getvalue())


def done(*arguments: object) -> Result:
    """Run a command that must succeed."""
    result = call(*arguments)
    assert result.code == 0, result.err
    return result


def refused(*arguments: object, code: int = 2, after: bool = False) -> str:
    """Run a command that must end with `code` and one line on stderr, and return that line.

    With `after`, lines of the work done until then may come before.
    """
    result = call(*arguments)
    lines = result.err.splitlines()
    assert result.code == code, (result.code, result.err)
    assert result.out == ""
    assert lines and (after or len(lines) == 1), result.err
    assert lines[-1].startswith("tape-arith: "), result.err
    return lines[-1].removeprefix("tape-arith: ")


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Fail if the block adds, removes or changes a file below `folder`."""
    before = contents(folder)
    yield
    assert contents(folder) == before
