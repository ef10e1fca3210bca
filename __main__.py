"""Run the command line: `python -m tape_arith`, and the script `tape-arith`.

It imports nothing slow itself, so that from the start Ctrl-C and too little memory give no
traceback. Nothing is begun while the command line is imported, so nothing is saved.
"""

import os
import signal
import sys

_EXIT_INTERRUPTED = 130


def main() -> None:
    """Import and run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(_EXIT_INTERRUPTED))
    try:
        from tape_arith import cli
    except (MemoryError, ImportError, OSError) as error:
        if isinstance(error, ImportError) and "failed to map segment" not in str(error):
            raise
        sys.exit("tape-arith: out of memory: free some, or run this where there is more")
    cli.main()


if __name__ == "__main__":
    main()
