"""Print messages and progress for people, and turn their signals into orderly stops.

A failed write to stderr is ignored, because the work is worth more than the message; a failed
write of data to stdout is an error.
"""

import io
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_DONE, EXIT_INTERRUPTED, EXIT_PARTLY

_SECONDS_BETWEEN_LINES = 30.0
_STDOUT, _STDERR = 1, 2

# Control characters except tab and line feed, characters that change the direction of text or are
# invisible, and lone surrogates, which cannot be encoded.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def escape_control(text: str) -> str:
    r"""Escape the characters of `text` that a terminal would obey or cannot show.

    >>> escape_control("\x1b[31mred")
    '\\x1b[31mred'
    """
    return _UNSHOWN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def say(text: str) -> None:
    """Print a line to stderr; stdout is for data."""
    print(escape_control(text), file=sys.stderr, flush=True)


Bar = Callable[..., None]
"""A function that shows the amount done and, if it is given, a note."""


@contextmanager
def bar(title: str, total: int, done: int = 0) -> Iterator[Bar]:
    """Show progress from `done` to `total`: a bar in a terminal, else a line every half minute."""
    if not sys.stderr.isatty():
        yield _lines(title, total, done)
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description:<24}", markup=False),
        rich.BarColumn(bar_width=24),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[note]}", markup=False),
    )
    with rich.Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(escape_control(title), total=total, completed=done, note="")

        def update(done: int, note: str = "") -> None:
            progress.update(task, completed=done, note=note)

        yield update


def _lines(title: str, total: int, already: int) -> Bar:
    began = last = time.monotonic()

    def update(done: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _SECONDS_BETWEEN_LINES and done < total:
            return
        last = now
        rate = (done - already) / max(now - began, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if done < total and rate else ""
        say(f"{title}: {done:,} of {total:,}{left}{'; ' + note if note else ''}")

    return update


class LossyStderr(io.FileIO):
    """Writes to stderr and ignores failures, as of a closed terminal or pipe, or a full disk."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def protect_streams() -> None:
    """Make stdout and stderr safe to write to.

    Output to a closed stream (`>&-`) is discarded, a character that the encoding lacks is written
    as an escape sequence, and failed writes to stderr are ignored.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until exit)
            setattr(sys, name, nowhere)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    stderr = sys.stderr
    if isinstance(stderr, io.TextIOWrapper) and stderr.fileno() == _STDERR:
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(LossyStderr(_STDERR, "w", closefd=False)),
            encoding=stderr.encoding,
            errors=stderr.errors,
            line_buffering=True,
        )


def detach_stdout() -> None:
    """Discard stdout after the terminal hung up, unless stdout is a file.

    Nobody reads it any more, through a pipe or not, so a failed write must not be an error.
    """
    with suppress(OSError):
        if not stat.S_ISREG(os.fstat(_STDOUT).st_mode):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, _STDOUT)
            os.close(nowhere)


# ---- stopping ------------------------------------------------------------------------------

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
"""Sent by Ctrl-C, a scheduler, a lost terminal, and Slurm before a preemption or time limit."""


class Stopped(Exception):
    """Raised when work stops in good order before it is finished."""


def install_handler(handler: Callable[[int, FrameType | None], Any]) -> dict[signal.Signals, Any]:
    """Install `handler` for _STOP_SIGNALS; return the earlier handlers by signal.

    An ignored SIGHUP stays ignored, as nohup requires.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            detach_stdout()
        handler(number, frame)

    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    handled = [each for each in _STOP_SIGNALS if not (ignored and each == signal.SIGHUP)]
    return {each: signal.signal(each, handle) for each in handled}


class Stopper:
    """A callable that tells whether to stop; `signal` holds the first stop signal."""

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
        """130 after Ctrl-C, 75 after another signal (run again), 3 after the time limit, else 0."""
        if self.signal is not None:
            return EXIT_INTERRUPTED if self.signal == signal.SIGINT else EXIT_AGAIN
        return EXIT_PARTLY if self.time_is_up else EXIT_DONE

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Treat the first of _STOP_SIGNALS as a request to stop after the current step.

        A second Ctrl-C ends the process as usual. Repeats of other signals are ignored: Slurm sends
        SIGTERM when a grace period begins and when it ends, and to every process of a job.
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


def duration(seconds: float) -> str:
    """Write seconds in the unit that suits their size.

    >>> duration(59), duration(90), duration(166_176)
    ('59 seconds', '1.5 minutes', '1.9 days')
    """
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
