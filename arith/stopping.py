"""Turn signals and time limits into orderly stops."""

import os
import re
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_DONE, EXIT_INTERRUPTED, EXIT_PARTLY

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""The signal of a lost terminal; Windows has none."""
PREEMPTION: signal.Signals | None = getattr(signal, "SIGUSR2", None)
"""Slurm's signal before preemption or time limit; Windows has none."""
_STOP_SIGNALS = tuple(filter(None, (signal.SIGINT, signal.SIGTERM, HANGUP, PREEMPTION)))
"""Signals of Ctrl-C, a scheduler, a lost terminal, and Slurm."""


class Stopped(Exception):
    """Raised when work stops in good order before its end."""


def install_handler(handler: Callable[[int, FrameType | None], Any]) -> dict[signal.Signals, Any]:
    """Install `handler` for _STOP_SIGNALS; return the earlier handlers by signal.

    An ignored SIGHUP stays ignored, as nohup requires.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if number == HANGUP:
            _detach_stdout()
        handler(number, frame)

    ignored = HANGUP is not None and signal.getsignal(HANGUP) == signal.SIG_IGN
    handled = [number for number in _STOP_SIGNALS if not (ignored and number == HANGUP)]
    return {number: signal.signal(number, handle) for number in handled}


class Stopper:
    """Tells, when called, whether to stop; `signal` is the first stop signal."""

    def __init__(self, time_limit: float | None = None) -> None:
        self.deadline = None if time_limit is None else time.monotonic() + time_limit
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None or self.time_is_up

    @property
    def time_is_up(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 75 after another signal (run again), 3 after the time limit, or 0."""
        if self.signal is not None:
            return EXIT_INTERRUPTED if self.signal == signal.SIGINT else EXIT_AGAIN
        return EXIT_PARTLY if self.time_is_up else EXIT_DONE

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Treat _STOP_SIGNALS as requests to stop after the current step.

        A second Ctrl-C ends the process as usual. Other signals may be repeated, because Slurm
        sends SIGTERM at both ends of a grace period, and to every process of a job.
        """

        def note(number: int, frame: FrameType | None) -> None:
            self.signal = self.signal or number
            if number == signal.SIGINT:
                signal.signal(signal.SIGINT, before[signal.SIGINT])

        before = install_handler(note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def is_urgent(should_stop: Callable[[], bool]) -> bool:
    """Tell whether to stop even before there is anything new to save, because a signal asks for it.

    A time limit waits for that, so that a repeated call always gets a little further.
    """
    return isinstance(should_stop, Stopper) and should_stop.signal is not None


@contextmanager
def stopping(given: Stopper | None) -> Iterator[Stopper]:
    """Let Ctrl-C or a notebook's stop button save and end the work after the current step.

    given  a stopper that handles signals already, as a command's does
    """
    stopper = given or Stopper()
    # Only the main thread gets signals.
    if given is not None or current_thread() is not main_thread():
        yield stopper
        return
    with stopper.handling_signals(), suppress(Stopped):
        yield stopper
    if stopper.signal is not None:
        raise KeyboardInterrupt("saved: the same call continues from here")


def seconds(text: str) -> float:
    """Parse a duration: "90", "90s", "25m", "3h", "1h30m", "1:30:00". Raises ValueError.

    >>> seconds("25m"), seconds("1h30m"), seconds("1:30:00")
    (1500.0, 5400.0, 5400.0)
    """
    words = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text, re.ASCII)
    clock = re.fullmatch(r"(\d+):([0-5]?\d):([0-5]?\d)", text, re.ASCII)
    if text and (parts := clock or words):
        hours, minutes, rest = (int(number or 0) for number in parts.groups())
        value = 3600.0 * hours + 60.0 * minutes + rest
    else:
        unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
        value = float(text[:-1]) * unit if unit else float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def _detach_stdout() -> None:
    """Discard stdout after the terminal hung up, unless stdout is a file.

    Nobody reads stdout any more, so a failed write must not be an error.
    """
    with suppress(OSError):
        if not stat.S_ISREG(os.fstat(1).st_mode):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)
