"""The command line: a file of arith/commands a command, and what becomes of its errors.

What is slow to import (torch, pandas) is imported inside the commands that need it.
"""

import signal
import sys

import typer

from arith.commands import (
    ablate,
    attention,
    bench,
    check,
    curves,
    errors,
    generate,
    heatmap,
    leaderboard,
    listing,
    report,
    run,
    score,
    stability,
    status,
    sweep,
    table,
    train,
)
from arith.commands.conduct import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from arith.errors import Failure, UsageError

app = typer.Typer(
    pretty_exceptions_enable=False,
    help="Length generalization in addition: generate problems, train decoders that differ only "
    "in their positional encoding, score exact match, draw comparison heatmaps.",
)
PANELS = {
    "From problems to grids": {
        "generate": generate,
        "train": train,
        "score": score,
        "run": run,
        "sweep": sweep,
        "status": status,
    },
    "What came out": {
        "heatmap": heatmap,
        "table": table,
        "leaderboard": leaderboard,
        "report": report,
        "curves": curves,
    },
    "What goes on inside": {
        "ablate": ablate,
        "stability": stability,
        "attention": attention,
        "errors": errors,
    },
    "What there is, and how fast": {"list": listing, "check": check, "bench": bench},
}
for panel, commands in PANELS.items():
    for name, module in commands.items():
        register = app.command(name, rich_help_panel=panel, epilog=f"Example: {module.EXAMPLE}")
        register(module.command)


class _Interrupted(BaseException):
    """Ctrl-C where no command takes it itself; not KeyboardInterrupt, whose exit code would be
    1 in typer's hands."""


def _interrupt(*_: object) -> None:
    raise _Interrupted


def _one_line(error: Exception) -> str:
    """typer's own errors know more than their text: which option it was."""
    message = getattr(error, "format_message", lambda: str(error))()
    return " ".join(message.split())


def main() -> None:
    """The console script: errors for people become one line and an exit code."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except (UsageError, typer.TyperException) as error:
        print(f"tape-arith: {_one_line(error)}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except (Failure, OSError) as error:
        print(f"tape-arith: {_one_line(error)}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", EXIT_FAILED))
    except _Interrupted:
        print("tape-arith: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
