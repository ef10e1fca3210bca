"""When to stop in good order: the time is up, or somebody said so. No torch here."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_DONE, EXIT_INTERRUPTED, EXIT_PARTLY
from tape_arith.arith.terminal import detach_stdout

WISHES = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
"""A person's, what runs us, a terminal that is gone, and what Slurm sends ahead of a preemption or
the end of the time."""

Handler = Callable[[int, FrameType | None], Any]


class Stopped(Exception):
    """Work was left in good order before its end."""


def hear(handler: Handler) -> dict[signal.Signals, Any]:
    """Have `handler` hear of WISHES; the handlers before, by signal. A SIGHUP that is ignored stays
    ignored, for that is what nohup is for."""

    def heard(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            detach_stdout()
        handler(number, frame)

    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    wishes = [each for each in WISHES if not (ignored and each == signal.SIGHUP)]
    return {each: signal.signal(each, heard) for each in wishes}


class Stopper:
    """Call it to ask whether to stop. `reason` says why, once it says yes."""

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
        """Until the time is up; None where there is no limit."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    @property
    def exit_code(self) -> int:
        """Where a signal stopped it: 130 (interrupted by somebody), or 75 (preempted by what runs
        it, which is to run it again); 3 (partly done) where the time did; else 0."""
        if self.signal is not None:
            return EXIT_INTERRUPTED if self.signal == signal.SIGINT else EXIT_AGAIN
        return EXIT_PARTLY if self.time_is_up else EXIT_DONE

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the first of WISHES as a wish to stop after the present step. A Ctrl-C after it ends
        the process as usual. The others are the same wish however often they come: Slurm sends
        SIGTERM when a time of grace begins, again at its end, and to every process of a job at
        once; what cannot wait any longer sends SIGKILL."""

        def note(number: int, frame: FrameType | None) -> None:
            self.signal = self.signal or number
            signal.signal(signal.SIGINT, before[signal.SIGINT])

        before = hear(note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def seconds(text: str) -> float:
    """A duration: "90", "90s", "25m", "3h".

    >>> seconds("25m")
    1500.0
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    unit = units.get(text[-1:], 0.0)
    number = text[:-1] if unit else text
    value = float(number) * (unit or 1.0)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value
