"""Run stages: print each result as soon as it is measured, and keep all as JSON."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from matplotlib.ticker import EngFormatter

from tape_arith.arith.bench import ALL, STAGES
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.decoders.environment import machine
from tape_arith.arith.documents import write_document
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.runs.preset import known_preset
from tape_arith.models.hardware import detect

_COLUMNS = ("stage", "what", "measured", "limit or peer", "ratio", "note")
_RULES = ("---", "---", "---:", "---", "---:", "---")
_WIDTHS = (9, 56, 20, 52, 7, 0)  # the note takes what it needs


def run(names: Sequence[str], options: Options, file: Path | None = None) -> bool:
    """Measure the stages `names`, print their results as Markdown, keep them in `file`.

    The file is valid JSON after each stage. Returns False if one of several stages failed: the
    last row of that stage says why. Raises UsageError for an unknown stage. The error of a stage
    that runs alone is raised, after its rows are in the file.
    """
    for name in names:
        if name not in (*STAGES, ALL):
            raise unknown("stage", name, [*STAGES, ALL])
    stages = list(STAGES) if ALL in names else list(dict.fromkeys(names))
    known_preset(options.preset)
    facts = asdict(machine(detect(*options.compute))) | {"cores": os.cpu_count(), "stages": stages}
    version = f"tape-arith {facts['tape_arith']} {facts['commit'] or ''}".strip()
    threads = "" if facts["device"] == "cuda" else f", threads: {facts['threads']}"
    print(
        f"{facts['hardware']}{threads}, {facts['dtype']}, torch {facts['torch']}, {version}; "
        "± is half the distance between quartiles\n"
    )
    print(f"{_markdown(_COLUMNS)}\n{_markdown(_RULES)}", flush=True)
    results: list[Result] = []
    failed: Failure | UsageError | None = None
    for stage in stages:
        try:
            for result in _measure(stage, options):
                results.append(result)
                print(_markdown(_cells(result)), flush=True)
        except (Failure, UsageError) as error:
            failed = error
            results.append(Result(stage, "the rest of this stage", None, "", note=str(error)))
            if len(stages) > 1:
                print(_markdown(_cells(results[-1])), flush=True)
        if file is not None:
            # `ratio` is value / limit; `complete` is true once all stages have succeeded.
            measurements = [{**asdict(result), "ratio": result.ratio} for result in results]
            complete = stage == stages[-1] and not failed
            content = {"complete": complete, "environment": facts, "measurements": measurements}
            write_document(file, content, "bench")
    if failed is not None and len(stages) == 1:
        raise failed
    return failed is None


def _measure(stage: str, options: Options) -> Iterator[Result]:
    measured: Iterator[Result] = import_module(f"tape_arith.arith.bench.{stage}").measure(options)
    return measured


def _cells(result: Result) -> tuple[str, ...]:
    """Return one row of the table, in the order of _COLUMNS."""
    text = EngFormatter(result.unit, places=1)  # with SI prefixes
    measured = "not measured" if result.value is None else text(result.value)
    if result.value and result.spread is not None and result.repeats and result.repeats > 1:
        measured += f" ±{abs(100 * result.spread / result.value):.0f}%"
    limit = f"{text(result.limit)} {result.limit_name or ''}".rstrip() if result.limit else ""
    ratio = result.ratio or 0.0
    share = "" if result.ratio is None else f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
    return (result.stage, result.name, measured, limit, share, result.note)


def _markdown(row: Sequence[str]) -> str:
    """Return a row of Markdown whose columns are aligned."""
    cells = (" ".join(text.split()).replace("|", "\\|") for text in row)
    return f"| {' | '.join(t.ljust(w) for t, w in zip(cells, _WIDTHS, strict=True))} |"
