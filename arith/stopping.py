"""Stop in good order when the time is up or a signal asks for it."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_DONE, EXIT_INTERRUPTED, EXIT_PARTLY
from tape_arith.arith.terminal import detach_stdout

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
"""Ctrl-C, a scheduler, a lost terminal, and Slurm's warning before a preemption or time limit."""


class Stopped(Exception):
    """Raised when work ends in good order before it is finished."""


def install_handler(handler: Callable[[int, FrameType | None], Any]) -> dict[signal.Signals, Any]:
    """Install `handler` for _STOP_SIGNALS; return the earlier handlers by signal.

    An ignored SIGHUP stays ignored, as nohup wants it.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            detach_stdout()
        handler(number, frame)

    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    handled = [each for each in _STOP_SIGNALS if not (ignored and each == signal.SIGHUP)]
    return {each: signal.signal(each, handle) for each in handled}


class Stopper:
    """Returns whether to stop when called; `signal` holds the first stop signal."""

    def __init__(self, seconds: float | None = None) -> None:
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None or self.time_is_up

    @property
    def time_is_up(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the time limit; None without one."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 75 after another signal (run again), 3 after the time limit, else 0."""
        if self.signal is not None:
            return EXIT_INTERRUPTED if self.signal == signal.SIGINT else EXIT_AGAIN
        return EXIT_PARTLY if self.time_is_up else EXIT_DONE

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Treat the first of _STOP_SIGNALS as a request to stop after the present step.

        A second Ctrl-C ends the process as usual. Other signals may repeat: Slurm sends SIGTERM
        when a grace period begins and when it ends, and to every process of a job.
        """

        def note(number: int, frame: FrameType | None) -> None:
            self.signal = self.signal or number
            signal.signal(signal.SIGINT, before[signal.SIGINT])

        before = install_handler(note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def seconds(text: str) -> float:
    """Parse a duration: "90", "90s", "25m", "3h". Raises ValueError.

    >>> seconds("25m")
    1500.0
    """
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    value = float(text[:-1]) * unit if unit else float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value
