"""Running stages: each result is shown as soon as it is measured, and kept as JSON.

torch.utils.benchmark.Compare lays out times alone; rates, limits and ratios get a table of ours.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tape_arith.arith.bench import ALL, STAGES
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import write_document
from tape_arith.arith.runs.build import environment
from tape_arith.arith.runs.record import known_preset
from tape_arith.models.hardware import detect

COLUMNS = ("stage", "what", "measured", "limit or peer", "ratio", "note")
_WIDTHS = (9, 56, 20, 52, 7)  # of the plain table; the note takes what it needs
_COMMON_OPTIONS = frozenset({"seconds", "quick", "threads"})
_FLAGS = {
    "encodings": "--pe",
    "settings": "--set",
    "directory": "--dir",
    "compiled": "--compile",
}
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def run(names: Sequence[str], options: Options, file: Path | None = None) -> bool:
    """Measure the stages `names`, print their results, keep them in `file` (JSON, whole after each
    stage). False if one of several stages failed: its last line says why.

    Raises UsageError for an unknown stage and for an option that no stage takes; Failure and
    UsageError of a stage that is alone.
    """
    stages = choose_stages(names)
    known_preset(options.preset)
    _check_options(stages, options)
    facts = environment(detect(*options.compute)) | {"cores": os.cpu_count(), "stages": stages}
    failed: list[str] = []
    results: list[Result] = []

    def keep(complete: bool) -> None:
        if file is not None:
            write_results(file, results, facts, complete)

    def measure_all() -> Iterator[Result]:
        for stage in stages:
            try:
                yield from load_stage(stage).measure(options)
            except (Failure, UsageError) as error:
                if len(stages) == 1:
                    raise
                failed.append(stage)
                yield Result.missing(stage, "the rest of this stage", "", str(error))
            keep(complete=False)

    for result in show(measure_all(), describe_machine(facts)):
        results.append(result)
    keep(complete=not failed)
    return not failed


def choose_stages(names: Sequence[str]) -> list[str]:
    """The stages `names`, each once; "all" is all of them. Raises UsageError if one is unknown."""
    for name in names:
        if name not in (*STAGES, ALL):
            raise unknown("stage", name, [*STAGES, ALL])
    return list(STAGES) if ALL in names else list(dict.fromkeys(names))


def load_stage(stage: str) -> Any:
    """The module of a stage: its `measure(options)`, and OPTIONS, the options that it takes."""
    return import_module(f"tape_arith.arith.bench.{stage}")


def _check_options(stages: Sequence[str], options: Options) -> None:
    taken = _COMMON_OPTIONS.union(*(load_stage(stage).OPTIONS for stage in stages))
    default = Options()
    for name in (field.name for field in fields(Options)):
        if name not in taken and getattr(options, name) != getattr(default, name):
            flag = _FLAGS.get(name, f"--{name}")
            raise UsageError(f"{', '.join(stages)} would drop {flag}: leave it out")


def describe_machine(facts: Mapping[str, Any]) -> str:
    """The machine and the versions that all results of a call belong to."""
    version = f"tape-arith {facts['tape-arith']} {facts['commit'] or ''}".strip()
    threads = "" if facts["device"] == "cuda" else f", threads: {facts['threads']}"
    return (
        f"{facts['hardware']}{threads}, {facts['dtype']}, torch {facts['torch']}, {version}; "
        "± is half the distance between quartiles"
    )


def show(results: Iterable[Result], heading: str) -> Iterator[Result]:
    """Pass `results` on, each printed on stdout as it comes: a growing table in a terminal, a table
    of Markdown elsewhere."""
    if sys.stdout.isatty():
        table = Table(*COLUMNS, caption=heading)
        with Live(table, console=Console(), vertical_overflow="visible") as live:
            for result in results:
                table.add_row(*cells(result))
                live.refresh()
                yield result
        return
    rules = ("---", "---", "---:", "---", "---:", "---")
    print(f"{heading}\n\n{_markdown(COLUMNS)}\n{_markdown(rules)}", flush=True)
    for result in results:
        print(_markdown(cells(result)), flush=True)
        yield result


def cells(result: Result) -> tuple[str, ...]:
    """One row of the table, in the order of COLUMNS."""
    measured = format_value(result.value, result.unit)
    if result.value and result.spread is not None and result.repeats and result.repeats > 1:
        measured += f" ±{abs(100 * result.spread / result.value):.0f}%"
    limit = ""
    if result.limit is not None:
        limit = f"{format_value(result.limit, result.unit)} {result.limit_name or ''}".rstrip()
    ratio = "" if result.ratio is None else _three_digits(result.ratio)
    return (result.stage, result.name, measured, limit, ratio, result.note)


def _markdown(row: Sequence[str]) -> str:
    """A row of Markdown whose columns are aligned."""
    padded = [text.ljust(width) for text, width in zip(row, _WIDTHS, strict=False)]
    return f"| {' | '.join([*padded, row[-1]])} |"


def format_value(value: float | None, unit: str) -> str:
    """A value with its unit, in three digits and the prefix that fits.

    >>> format_value(41_234.0, "tokens/s"), format_value(0.0123, "s"), format_value(None, "s")
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
    """Three digits, never an exponent.

    >>> [_three_digits(value) for value in (0.5, 1.234, 1234.5, 0.00123)]
    ['0.5', '1.23', '1,234', '0.00123']
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_results(
    path: Path, results: Iterable[Result], facts: Mapping[str, Any], complete: bool
) -> None:
    """Write the JSON of --json, whole or not at all. Raises Failure if the disk refuses.

    `value` null was not measured, and `note` says why; `ratio` is value / limit. `complete` is
    false while a stage is still to be done.
    """
    measurements = [{**asdict(result), "ratio": result.ratio} for result in results]
    content = {"complete": complete, "environment": facts, "measurements": measurements}
    write_document(path, content, "bench")
