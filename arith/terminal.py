"""Print messages and progress for people.

A failed write to stderr is ignored, because the work matters more than the message. A failed write
of data to stdout is an error.
"""

import io
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

_SECONDS_BETWEEN_LINES = 30.0
_STDERR = 2

# Control characters except tab and line feed, invisible characters and those that change the
# direction of text, and lone surrogates, which cannot be encoded.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def escape_control(text: str) -> str:
    r"""Escape characters that a terminal would interpret or cannot show.

    >>> escape_control("\x1b[31mred")
    '\\x1b[31mred'
    """
    return _UNSHOWN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def say(text: str) -> None:
    """Print a line to stderr; stdout is for data."""
    print(escape_control(text), file=sys.stderr, flush=True)


def hanging(text: str, width: int) -> str:
    """Break lines longer than `width`; each goes on below its last column.

    Two spaces or more begin a column.

    >>> print(hanging("  rope  2017  Queries and keys, rotated", 30))
      rope  2017  Queries and
                  keys, rotated
    """
    lines = list[str]()
    for line in text.split("\n"):
        columns = re.match(r".*\S {2,}(?=\S)", line)
        start = columns.end() if columns else 0
        if not 0 < start <= 0.6 * width:
            start = 2 * (len(line) - len(line.lstrip(" ")))
        keep: Any = {"break_long_words": False, "break_on_hyphens": False}
        lines += wrap(line, width, subsequent_indent=" " * start, **keep) or [""]
    return "\n".join(lines)


def show(text: str) -> None:
    """Print data to stdout; in a terminal, long lines are broken."""
    print(hanging(text, get_terminal_size().columns) if sys.stdout.isatty() else text)


Bar = Callable[..., None]
"""A function that shows the amount done and, optionally, a note."""


@contextmanager
def bar(title: str, total: int, done: int = 0) -> Iterator[Bar]:
    """Show progress from `done` to `total`: a bar in a terminal, else a line every 30 seconds."""
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
    """Writes to stderr and ignores failures, such as a closed terminal or a full disk."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def protect_streams() -> None:
    """Make writing to stdout and stderr safe.

    Discards output to a closed stream (`>&-`), escapes characters that the encoding lacks, and
    ignores failed writes to stderr.
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


def silence_drawing() -> None:
    """Keep the warnings of the libraries that draw off stderr: they are for programmers."""
    modules = r"tape_arith\.arith\.(figures|studies)|contextlib|matplotlib|seaborn|fontTools"
    if not sys.warnoptions:  # python -W asks for them
        warnings.filterwarnings("ignore", module=modules)
    for library in ("matplotlib", "fontTools"):
        logging.getLogger(library).setLevel(logging.ERROR)


def duration(seconds: float) -> str:
    """Format seconds in a unit that suits their size.

    >>> duration(59), duration(90), duration(166_176)
    ('59 seconds', '1.5 minutes', '1.9 days')
    """
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
