"""Run the command line: `python -m tape_arith`, and the script `tape-arith`.

It imports nothing slow itself, so that from the start signals and too little memory give no
traceback, but their exit codes. Nothing is started while the command line is imported, so nothing
is saved.
"""

import os
import signal
import sys
from functools import partial

_CODES = {"SIGINT": 130, "SIGTERM": 75, "SIGHUP": 75, "SIGUSR2": 75}
"""The exit codes of stop signals, as everywhere; Windows has not all."""


def main() -> None:
    """Import and run the command line."""
    codes = {name: code for name, code in _CODES.items() if hasattr(signal, name)}
    numbers = {signal.Signals[name]: code for name, code in codes.items()}
    for number, code in numbers.items():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # not ignored
            signal.signal(number, partial(_leave, code))
    try:
        from tape_arith import cli
    except (MemoryError, ImportError, OSError) as error:
        if isinstance(error, ImportError) and "failed to map segment" not in str(error):
            raise
        sys.exit("tape-arith: out of memory: free some, or run this where there is more")
    try:
        cli.main()
    finally:
        # Python resets handlers while it exits: a repeated SIGTERM would change the exit code.
        for number in numbers.keys() - {signal.SIGINT}:
            signal.signal(number, signal.SIG_IGN)


def _leave(code: int, *_: object) -> None:
    os._exit(code)


if __name__ == "__main__":
    main()
