"""The command line, killed just before one of its writes, or counting them.

    python aimed.py NUMBER SIGNAL FILE tape-arith's arguments

Before the write of that number it sends itself the signal; in any case FILE tells how many there
were. Only a test runs this: nothing of it is in the command line itself.
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cli
from tests.robustness.writes import watched


def main() -> None:
    number, which, file, *arguments = sys.argv[1:]
    sys.argv[1:] = arguments
    count = 0

    def watcher(what: str, path: str) -> None:
        nonlocal count
        count += 1
        if count == int(number):
            signal.raise_signal(int(which))

    owner = os.getpid()
    try:
        with watched(Path.cwd(), watcher):
            cli.main()
    finally:
        if os.getpid() == owner:
            Path(file).write_text(str(count))


if __name__ == "__main__":
    main()
