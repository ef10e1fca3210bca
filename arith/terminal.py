"""Progress on stderr: a bar in a terminal, a plain line every half minute elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tape_arith.arith.escape_control import plain

SECONDS_BETWEEN_LINES = 30.0


class Bar(Protocol):
    """Call it with how much is done, and what else there is to say."""

    def __call__(self, done: int, note: str = "") -> None: ...


def say(text: str) -> None:
    """A line for people; data goes to stdout."""
    print(plain(text), file=sys.stderr, flush=True)


@contextmanager
def bar(title: str, total: int, done: int = 0) -> Iterator[Bar]:
    """A bar from `done` to `total`; call what it yields with how much is done, and a note."""
    if sys.stderr.isatty():
        with _terminal_bar(title, total, done) as update:
            yield update
    else:
        yield _lines(title, total, done)


@contextmanager
def _terminal_bar(title: str, total: int, done: int) -> Iterator[Bar]:
    columns = (
        TextColumn("{task.description:<24}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(plain(title), total=total, completed=done, note="")

        def update(done: int, note: str = "") -> None:
            if note:
                progress.update(task, completed=done, note=note)
            else:
                progress.update(task, completed=done)

        yield update


def _lines(title: str, total: int, already: int) -> Bar:
    began = last = time.monotonic()
    kept = ""

    def update(done: int, note: str = "") -> None:
        nonlocal last, kept
        kept = note or kept
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES and done < total:
            return
        last = now
        rate = (done - already) / max(now - began, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if 0 < done < total and rate else ""
        say(f"{title}: {done:,} of {total:,}{left}{'; ' + kept if kept else ''}")

    return update
