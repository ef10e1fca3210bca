"""Running stages: each result is shown as soon as it is measured, and kept as JSON."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from tape_arith.arith.bench import ALL, STAGES
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import write_document
from tape_arith.arith.runs.build import environment
from tape_arith.arith.runs.record import known_preset
from tape_arith.models.hardware import detect

_COLUMNS = ("stage", "what", "measured", "limit or peer", "ratio", "note")
_WIDTHS = (9, 56, 20, 52, 7, 0)  # the note takes what it needs
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def run(names: Sequence[str], options: Options, file: Path | None = None) -> bool:
    """Measure the stages `names`, print their results as Markdown, keep them in `file`.

    The file is JSON, complete after each stage. Returns False if one of several stages failed: its
    last line says why. Raises UsageError for an unknown stage; Failure and UsageError of a stage
    that is alone.
    """
    for name in names:
        if name not in (*STAGES, ALL):
            raise unknown("stage", name, [*STAGES, ALL])
    stages = list(STAGES) if ALL in names else list(dict.fromkeys(names))
    known_preset(options.preset)
    facts = environment(detect(*options.compute)) | {"cores": os.cpu_count(), "stages": stages}
    rules = ("---", "---", "---:", "---", "---:", "---")
    print(f"{_describe_machine(facts)}\n\n{_markdown(_COLUMNS)}\n{_markdown(rules)}", flush=True)
    results: list[Result] = []
    failed = False
    for stage in stages:
        try:
            for result in _measure(stage, options):
                results.append(result)
                print(_markdown(_cells(result)), flush=True)
        except (Failure, UsageError) as error:
            if len(stages) == 1:
                raise
            failed = True
            results.append(Result(stage, "the rest of this stage", None, "", note=str(error)))
            print(_markdown(_cells(results[-1])), flush=True)
        if file is not None:
            # `ratio` is value / limit; `complete` is false while a stage is still to be done.
            measurements = [{**asdict(result), "ratio": result.ratio} for result in results]
            complete = stage == stages[-1] and not failed
            content = {"complete": complete, "environment": facts, "measurements": measurements}
            write_document(file, content, "bench")
    return not failed


def _measure(stage: str, options: Options) -> Iterator[Result]:
    measured: Iterator[Result] = import_module(f"tape_arith.arith.bench.{stage}").measure(options)
    return measured


def _describe_machine(facts: dict[str, Any]) -> str:
    """Name the machine and the versions that all results of a call belong to."""
    version = f"tape-arith {facts['tape-arith']} {facts['commit'] or ''}".strip()
    threads = "" if facts["device"] == "cuda" else f", threads: {facts['threads']}"
    return (
        f"{facts['hardware']}{threads}, {facts['dtype']}, torch {facts['torch']}, {version}; "
        "± is half the distance between quartiles"
    )


def _cells(result: Result) -> tuple[str, ...]:
    """Return one row of the table, in the order of _COLUMNS."""
    measured = _format_value(result.value, result.unit)
    if result.value and result.spread is not None and result.repeats and result.repeats > 1:
        measured += f" ±{abs(100 * result.spread / result.value):.0f}%"
    limit = ""
    if result.limit is not None:
        limit = f"{_format_value(result.limit, result.unit)} {result.limit_name or ''}".rstrip()
    ratio = "" if result.ratio is None else _three_digits(result.ratio)
    return (result.stage, result.name, measured, limit, ratio, result.note)


def _markdown(row: Sequence[str]) -> str:
    """Return a row of Markdown whose columns are aligned."""
    return f"| {' | '.join(t.ljust(w) for t, w in zip(row, _WIDTHS, strict=True))} |"


def _format_value(value: float | None, unit: str) -> str:
    """Return a value with its unit, in three digits and the prefix that fits.

    >>> _format_value(41_234.0, "tokens/s"), _format_value(0.0123, "s"), _format_value(None, "s")
    ('41.2 k tokens/s', '12.3 ms', 'not measured')
    """
    if value is None:
        return "not measured"
    size = abs(value)
    if unit == "s":  # seconds have no kilo, and milli and micro
        scale, prefix = next((pair for pair in _SMALL if size >= pair[0] or not size), _SMALL[-1])
    else:
        scale, prefix = next((pair for pair in _PREFIXES if size >= pair[0]), (1.0, ""))
    # GB/s, but "41.2 k tokens/s"
    joint = "" if not prefix or unit.split("/")[0] in ("B", "FLOP", "s") else " "
    return f"{_three_digits(value / scale)} {prefix}{joint}{unit}".rstrip()


def _three_digits(value: float) -> str:
    """Return three digits, never an exponent.

    >>> [_three_digits(value) for value in (0.5, 1.234, 1234.5, 0.00123)]
    ['0.5', '1.23', '1,234', '0.00123']
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
