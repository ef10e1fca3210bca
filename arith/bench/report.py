"""Measurements for people, as a table, and for programs, as JSON."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tape_arith.arith.bench.measure import Measurement, Options
from tape_arith.arith.documents import write_document

COLUMNS = ("stage", "what", "measured", "limit or peer", "ratio", "note")
# Of the plain table; the note takes what it needs.
WIDTHS = (9, 56, 20, 52, 7)
NOT_MEASURED = "not measured"

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_UNPREFIXED = ("%", "x", "")
_SYMBOLS = ("B", "FLOP", "MAC", "s")


def figure(value: float | None, unit: str) -> str:
    """A value with its unit, in three digits and the prefix that fits.

    >>> figure(41_234.0, "tokens/s"), figure(0.0123, "s"), figure(1.5, "x"), figure(None, "s")
    ('41.2 k tokens/s', '12.3 ms', '1.5 x', 'not measured')
    """
    if value is None:
        return NOT_MEASURED
    if unit in _UNPREFIXED or value == 0:
        return f"{_digits(value)} {unit}".rstrip()
    size = abs(value)
    scale, prefix = next(((s, p) for s, p in _PREFIXES if size >= s), (1.0, ""))
    if unit == "s":  # seconds have no kilo, and milli and micro
        scale, prefix = next(((s, p) for s, p in _SMALL if size >= s), _SMALL[-1])
    # GB/s, TFLOP; but "41.2 k tokens/s"
    joint = prefix if not prefix or unit.split("/")[0] in _SYMBOLS else f"{prefix} "
    return f"{_digits(value / scale)} {joint}{unit}"


def _digits(value: float) -> str:
    """Three digits, never an exponent.

    >>> [_digits(value) for value in (0.5, 1.234, 98.76, 1234.5, 0.00123)]
    ['0.5', '1.23', '98.8', '1,234', '0.00123']
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cells(line: Measurement) -> tuple[str, ...]:
    """One line of the table, in the order of COLUMNS."""
    measured = figure(line.value, line.unit)
    if line.value and line.spread is not None and line.repeats and line.repeats > 1:
        measured += f" ±{abs(100 * line.spread / line.value):.0f}%"
    limit = ""
    if line.limit is not None:
        limit = f"{figure(line.limit, line.unit)} {line.limit_name or ''}".rstrip()
    ratio = "" if line.ratio is None else _digits(line.ratio)
    return (line.stage, line.name, measured, limit, ratio, line.note)


def shown(lines: Iterable[Measurement]) -> Iterator[Measurement]:
    """Pass `lines` on, each shown on stdout when it comes: a growing table in a terminal, a
    table of Markdown elsewhere."""
    if sys.stdout.isatty():
        table = Table(*COLUMNS, caption="± is half the distance between quartiles")
        with Live(table, console=Console(), vertical_overflow="visible") as live:
            for line in lines:
                table.add_row(*cells(line))
                live.refresh()
                yield line
        return
    print(_plain(COLUMNS), flush=True)
    print(_plain(("---", "---", "---:", "---", "---:", "---")), flush=True)
    for line in lines:
        print(_plain(cells(line)), flush=True)
        yield line


def _plain(row: tuple[str, ...]) -> str:
    """A line of Markdown whose columns stand below each other."""
    padded = [text.ljust(width) for text, width in zip(row, WIDTHS, strict=False)]
    return f"| {' | '.join([*padded, row[-1]])} |"


def content(
    lines: Iterable[Measurement], environment: dict[str, Any], options: Options, complete: bool
) -> dict[str, Any]:
    """What --json writes, but for what arith/documents.py adds: keys are stable.

    `value` null is what was not measured, and `note` says why; `ratio` is value / limit.
    `complete` is false while stages that were asked for are not done.
    """
    asked = asdict(options) | {
        "encodings": [str(name) for name in options.encodings],
        "settings": dict(options.settings),
    }
    for key in ("directory", "run"):
        asked[key] = None if asked[key] is None else str(asked[key])
    return {
        "complete": complete,
        "environment": environment,
        "options": asked,
        "measurements": [{**asdict(line), "ratio": line.ratio} for line in lines],
    }


def write(
    path: Path,
    lines: Iterable[Measurement],
    environment: dict[str, Any],
    options: Options,
    complete: bool,
) -> None:
    """Write `content` to `path`, whole or not at all. Errors: Failure where the disk refuses."""
    write_document(path, content(lines, environment, options, complete), "bench")
