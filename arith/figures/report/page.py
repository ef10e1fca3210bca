"""One HTML file that loads nothing: template, style, script and data."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.board import WORDS
from tape_arith.arith.figures.heatmap import ticks
from tape_arith.arith.figures.report.content import Report, Run, content
from tape_arith.arith.figures.style import scale_end
from tape_arith.arith.figures.tables import Row
from tape_arith.arith.files import write_text
from tape_arith.arith.scoring.grid import REGION_WORDS

_HASH = 12
"""Characters of a hash that tell two runs apart."""
_LEFT, _BOTTOM, _SIDE = 15.0, 15.0, 84.0
"""Where the cells of a map lie in its square of 100 x 100; style.css and report.js say the same."""


def write(report: Report, path: Path) -> None:
    """Write the page to `path`, whole or not at all.

    Raises UsageError if the grids must not be compared, Failure if the disk refuses.
    """
    write_text(path, page(report))


def page(report: Report) -> str:
    """Return the page as text. Raises UsageError if the grids must not be compared."""
    numbers = content(report)
    first = report.panels[0][0]
    style, script, template = map(_package_file, ("style.css", "report.js", "template.html"))
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {"pieces": _pieces, "is_hash": _is_hash}
    return environment.from_string(template).render(
        policy=_policy(style, script),
        style=style,
        script=script,
        data=_packed(numbers),
        numbers=numbers,
        report=report,
        first=first,
        summary=_summary(report),
        plot=_plot(first.max_digits, first.trained_digits),
        facts=_facts(report.runs),
        configurations=_configurations(report.runs),
        hash_length=_HASH,
        **_leaderboard(report),
    )


def _packed(numbers: object) -> str:
    """Return JSON, deflated so that thirty grids of five seeds fit, in base64 for report.js."""
    text = json.dumps(numbers, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _policy(style: str, script: str) -> str:
    """Return a content security policy: this style, this script, and nothing from anywhere."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _package_file(name: str) -> str:
    return files("tape_arith.arith.figures.report").joinpath(name).read_text(encoding="utf-8")


def _pieces(name: str) -> list[str]:
    """Cut an encoding's name before each option or joint, where it may be broken."""
    return re.split("(?=[:+@])", name)


def _is_hash(value: object) -> bool:
    return re.fullmatch("[0-9a-f]{64}", str(value)) is not None


def _summary(report: Report) -> dict[str, str]:
    """Return the comparison as a list of terms."""
    first = report.panels[0][0]
    evaluation = first.evaluation
    seeds = sorted({len(panel) for panel in report.panels})
    return {
        "Preset": first.preset,
        "Task": f"{evaluation['task']}, version {evaluation['version']}",
        "Trained to": f"{first.trained_digits} digits",
        "Tested to": f"{first.max_digits} digits",
        "Encodings": str(len(report.panels)),
        "Seeds an encoding": " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1])))),
        "Problems": captions.SPLITS.get(first.split, first.split) or "uniform digits",
        "Problems a cell": f"{evaluation['problems_per_cell']:,}",
        "Evaluation set": evaluation["sha256"],
    }


def _leaderboard(report: Report) -> dict[str, Any]:
    """Return heads, notes and sections of rows; a column without any number is left out."""
    board = report.board
    cells = board.cells()
    heads = [head for head in cells[0] if head not in WORDS]
    known = [head for head in heads if any(row[head].value is not None for row in cells)]
    values = [value for row in board.rows for value in row.values["out_of_distribution"]]
    end = scale_end(max(values, default=1.0))
    rows = iter(
        {"row": row, "place": place, "cells": cells[place], "strip": _strip(row, end)}
        for place, row in enumerate(board.rows)
    )
    notes = replace(board, left_out=()).notes()[1:]
    if any("\N{EN DASH}" in row.percent(region) for row in board.rows for region in row.means):
        notes.insert(0, captions.RANGES)
    if unknown := [head for head in heads if head not in known]:
        notes.append(f"Not known of any run here, so without a column: {', '.join(unknown)}.")
    return {
        "heads": known,
        "outside": f"{REGION_WORDS['out_of_distribution']}, %",
        "end": f"{100 * end:g}",
        "sections": [
            {**section._asdict(), "rows": [next(rows) for _ in section.rows]}
            for section in board.sections
        ],
        "notes": notes,
    }


def _strip(row: Row, end: float) -> dict[str, Any]:
    """Return seeds and interval out of distribution from 0 to `end`, as places from 3 to 99.

    All seeds lie on it; an interval may leave it.
    """
    interval, values = row.means["out_of_distribution"], row.values["out_of_distribution"]
    shares = [interval.low, min(interval.high, end)] if interval else []
    return {
        "interval": [f"{3 + 96 * share / end:.2f}" for share in shares],
        "seeds": [f"{3 + 96 * share / end:.2f}" for share in values],
        "label": ", ".join(
            f"seed {seed}: {100 * share:.1f} %"
            for seed, share in zip(row.seeds, values, strict=False)
        ),
    }


def _plot(max_digits: int, trained_digits: int) -> dict[str, Any]:
    """Return where the axes, the trained lengths and the ring around a cell lie in a map."""
    cell = _SIDE / max_digits
    top = 100 - _BOTTOM - _SIDE
    middles = {digits: (digits - 0.5) * cell for digits in ticks(max_digits)}
    return {
        "left": _LEFT,
        "top": top,
        "side": _SIDE,
        "centre": _LEFT + _SIDE / 2,
        "middle": top + _SIDE / 2,
        "trained": f"{trained_digits * cell:.2f}",
        "trained_top": f"{100 - _BOTTOM - trained_digits * cell:.2f}",
        "cell": f"{cell:.3f}",
        "ticks": [(d, f"{_LEFT + m:.2f}", f"{top + _SIDE - m:.2f}") for d, m in middles.items()],
    }


def _facts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the facts that are the same for all runs, and the names of those that differ."""
    facts = runs[0].facts if runs else {}
    different = [name for name in facts if len({run.facts[name] for run in runs}) > 1]
    same = {name: value for name, value in facts.items() if name not in different}
    return {"same": same, "different": different}


def _configurations(runs: Sequence[Run]) -> list[tuple[dict[str, Any], list[str]]]:
    """Return the settings, once for all runs that have them, and which those are."""
    runs_of: dict[tuple[tuple[str, object], ...], list[str]] = {}
    for run in runs:
        key = tuple(run.config.items())
        runs_of.setdefault(key, []).append(f"{run.encoding}, seed {run.seed}")
    return [(dict(settings), names) for settings, names in runs_of.items()]
