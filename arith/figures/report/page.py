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
from tape_arith.arith.figures.heatmap import ticks
from tape_arith.arith.figures.leaderboard_data import Standing
from tape_arith.arith.figures.leaderboard_table import Column, columns
from tape_arith.arith.figures.report.content import Report, Run, content
from tape_arith.arith.figures.style import scale_end
from tape_arith.arith.files import write_text
from tape_arith.arith.scoring.regions import REGION_WORDS

_HASH = 12
"""Characters of a hash that tell two runs apart."""
_LONGEST_WHOLE = 24
"""Characters of a name's part that are kept on one line; a file's path may have more."""
_LEFT, _BOTTOM, _SIDE = 15.0, 15.0, 84.0
"""Where the cells of a map lie in its square of 100 x 100; style.css and report.js say the same."""
_OUTSIDE = f"{REGION_WORDS['out_of_distribution']}, %"


def write(report: Report, path: Path) -> None:
    """Write the page to `path`, whole or not at all.

    Raises UsageError if the grids must not be compared, Failure if the disk refuses.
    """
    write_text(path, page(report))


def page(report: Report) -> str:
    """Return the page as text. Raises UsageError if the grids must not be compared."""
    numbers = content(report)
    first = report.ordered[0][0]
    style, script = _package_file("style.css"), _package_file("report.js")
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {"pieces": name_pieces, "is_hash": _is_hash}
    return environment.from_string(_package_file("template.html")).render(
        policy=_policy(style, script),
        style=style,
        script=script,
        data=_packed(numbers),
        report=report,
        first=first,
        summary=_summary(report),
        board=leaderboard(report),
        notes=_notes(report),
        footnote=numbers["footnotes"]["mean"],
        curves=numbers["curves"],
        lengths=numbers["lengths"],
        maps=_maps(report),
        plot=_plot(first.max_digits, first.trained_digits),
        facts=_facts(report.runs),
        configurations=_configurations(report.runs),
        hash_length=_HASH,
    )


def _packed(numbers: object) -> str:
    """JSON, deflated, so that thirty grids of five seeds fit, in base64: what report.js unpacks."""
    text = json.dumps(numbers, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _policy(style: str, script: str) -> str:
    """The content security policy: this style, this script, and nothing else from anywhere."""

    def allowed(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; style-src {allowed(style)}; script-src {allowed(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _package_file(name: str) -> str:
    return files("tape_arith.arith.figures.report").joinpath(name).read_text(encoding="utf-8")


def name_pieces(name: str) -> list[tuple[str, bool]]:
    """Cut an encoding's name before each option or joint; whether a piece stays on one line.

    >>> name_pieces("tape+yarn")
    [('tape', True), ('+yarn', True)]
    """
    return [(part, len(part) <= _LONGEST_WHOLE) for part in re.split("(?=[:+@])", name)]


def _summary(report: Report) -> dict[str, str]:
    """The comparison in a list of terms."""
    first = report.ordered[0][0]
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


def leaderboard(report: Report) -> dict[str, Any]:
    """Return the leaderboard's heads and its sections of rows, numbered as the encodings are.

    A cell has its text and the number that it sorts by; columns without any number are left out.
    """
    shown = _known_columns(report)[0]
    end, place, sections = _strip_end(report), 0, []
    for section in report.sections:
        rows = []
        for standing in section.standings:
            cells = [(c.head, c.cell(standing), c.value and c.value(standing)) for c in shown]
            strip = _strip(standing, end)
            rows.append({"standing": standing, "place": place, "cells": cells, "strip": strip})
            place += 1
        sections.append({"title": section.title, "why": section.why, "rows": rows})
    heads = [column.head for column in shown]
    return {"heads": heads, "sections": sections, "end": f"{100 * end:g}", "outside": _OUTSIDE}


def _known_columns(report: Report) -> tuple[list[Column], list[str]]:
    """The columns with numbers, and the heads of those in which no encoding shown has any."""
    standings = [standing for section in report.sections for standing in section.standings]
    known, unknown = [], []
    for column in columns(report.board):
        if column.value is not None:
            if any(column.value(standing) is not None for standing in standings):
                known.append(column)
            else:
                unknown.append(column.head)
    return known, unknown


def _strip_end(report: Report) -> float:
    """The end of the leaderboard's strips: all seeds lie on them, an interval may leave them."""
    rows = [standing.row for section in report.sections for standing in section.standings]
    return scale_end(max(v or 0.0 for row in rows for v in row.values["out_of_distribution"]))


def _strip(standing: Standing, end: float) -> dict[str, Any]:
    """Seeds and interval out of distribution from 0 to `end`, as places from 3 to 99."""
    row = standing.row
    interval = row.means["out_of_distribution"]
    values = row.values["out_of_distribution"]
    shares = [interval.low, min(interval.high, end)] if interval else []
    return {
        "interval": [f"{3 + 96 * share / end:.2f}" for share in shares],
        "seeds": [f"{3 + 96 * share / end:.2f}" for share in values if share is not None],
        "label": ", ".join(
            f"seed {seed}: {'missing' if share is None else f'{100 * share:.1f} %'}"
            for seed, share in zip(row.seeds, values, strict=True)
        ),
    }


def _notes(report: Report) -> list[str]:
    """The leaderboard's own notes, without those that stand elsewhere in the page."""
    notes = replace(report.board, left_out=()).notes[1:]
    if any(
        "\N{EN DASH}" in standing.row.percent(region)
        for standing in report.board.standings
        for region in standing.row.means
    ):
        notes.insert(0, captions.RANGES)
    shown, total = len(report.panels), len(report.board.standings)
    if shown < total:
        all_of_them = f"ranks and tests are of all {total}"
        notes.append(f"{shown} of the {total} encodings are shown; {all_of_them}.")
    unknown = _known_columns(report)[1]
    if unknown:
        notes.append(f"Not known of any run here, so without a column: {', '.join(unknown)}.")
    return notes


def _maps(report: Report) -> list[dict[str, Any]]:
    """The encodings in the leaderboard's sections and order, each with its words."""
    panels = iter(enumerate(report.ordered))
    sections = []
    for section in report.sections:
        members = [next(panels) for _ in section.standings]
        maps = [
            {
                "place": place,
                "name": panel[0].name,
                "lines": [captions.mean_line(panel, region) for region in captions.MEANS],
                "last": captions.seeds_line(panel),
                "mark": captions.convergence(panel),
            }
            for place, panel in members
        ]
        sections.append({"title": section.title, "why": section.why, "maps": maps})
    return sections


def _plot(max_digits: int, trained_digits: int) -> dict[str, Any]:
    """Where the axes, the trained lengths and the ring around a cell lie in a map's square."""
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
    """The facts that are the same for all runs, and the names of those that differ."""
    names = list(runs[0].facts) if runs else []
    same = {name: runs[0].facts[name] for name in names if len({r.facts[name] for r in runs}) == 1}
    return {"same": same, "different": [name for name in names if name not in same]}


def _configurations(runs: Sequence[Run]) -> list[tuple[dict[str, Any], list[str]]]:
    """The settings, once for all runs that have them, and which those are."""
    runs_of: dict[tuple[tuple[str, object], ...], list[str]] = {}
    for run in runs:
        key = tuple(run.config.items())
        runs_of.setdefault(key, []).append(f"{run.encoding}, seed {run.seed}")
    return [(dict(settings), names) for settings, names in runs_of.items()]


def _is_hash(value: str) -> bool:
    return len(value) == 64 and set(value) <= set("0123456789abcdef")
