"""A comparison on one HTML page that loads nothing."""

import base64
import hashlib
import json
import re
import zlib
from importlib.resources import files
from itertools import count
from typing import Any

from jinja2 import Environment, StrictUndefined

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.columns import choose, with_something_known
from tape_arith.arith.compare.conclusion import conclusion
from tape_arith.arith.compare.lengths import (
    axis_label,
    cell,
    distributions,
    longest_words,
    measured,
    operand,
    ticks,
    unit,
)
from tape_arith.arith.compare.report import Report
from tape_arith.arith.figures.report.content import content
from tape_arith.arith.figures.style import scale_end
from tape_arith.arith.grids.axes import Axes, length_axes, region_mask
from tape_arith.arith.origin import version_and_commit

_IN_OTHER_CELLS = ["rank", "encoding", "kind", "seeds", "each_seed", "converged"]
"""The columns of the leaderboard that the template writes in a way of its own, or not at all."""


def page(report: Report) -> str:
    """Return the page as text."""
    folder = files("tape_arith.arith.figures.report")
    style, script, template = (
        folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("style.css", "report.js", "template.html")
    )
    numbers, first = content(report), report.panels[0]
    # Compressed, to keep a page of thirty encodings with five seeds small.
    data = zlib.compress(json.dumps(numbers, allow_nan=False, separators=(",", ":")).encode(), 9)
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    # A long name may break before each ":", "+" or "@".
    environment.filters["pieces"] = lambda name: re.split("(?=[:+@])", name)
    environment.filters["label"] = report.board.label
    environment.filters["has_scratchpad"] = captions.has_scratchpad
    environment.filters["guess_words"] = captions.guess_words
    environment.filters["is_hash"] = lambda value: re.fullmatch("[0-9a-f]{64}", str(value))
    facts = {name: {run.facts[name] for run in report.runs} for name in report.runs[0].facts}
    configurations: dict[tuple[Any, ...], list[str]] = {}
    for run in report.runs:
        members = configurations.setdefault(tuple(run.config.items()), [])
        members.append(f"{run.encoding}, seed {run.seed}")
    return environment.from_string(template).render(
        # A browser may use this style and this script, and load nothing.
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        data=base64.b64encode(data).decode(),
        numbers=numbers,
        report=report,
        version=version_and_commit(),
        conclusion=conclusion(report.board),
        first=first,
        evaluation=first.first.evaluation,
        problems=captions.SPLIT_WORDS.get(first.first.split, first.first.split)
        or f"uniform {unit(first.axes[-1])}",
        words=_words(first.axes),
        plot=_plot(first.axes),
        same={name: value for name, (value, *different) in facts.items() if not different},
        different=[name for name, values in facts.items() if len(values) > 1],
        configurations=[(dict(settings), runs) for settings, runs in configurations.items()],
        hash_length=12,
        **_leaderboard(report),
    )


def _words(axes: Axes) -> dict[str, str]:
    """Return the words of the template that depend on the axes."""
    return {
        "trained": measured(axes, [axis.trained for axis in axes]),
        "tested": measured(axes, [axis.tested for axis in axes]),
        "over": "operand lengths" if operand(axes[0]) else " and ".join(map(unit, axes)),
        "map": "heatmap" if len(axes) > 1 else "chart",
        "cell": cell(axes),
        "longest": longest_words(axes),
        "some_lengths": f"each {'pair ' * (len(length_axes(axes)) > 1)}of some lengths",
        "distributions": distributions(axes),
        "trained_share": f"{100 * region_mask('in_distribution', axes).mean():.0f}",
    }


def _plot(axes: Axes) -> dict[str, Any]:
    """Return tick marks, labels and the trained part of a plot, and its cells; places are 0..1."""
    sides: list[tuple[Any, ...]] = []
    if len(axes) == 1:
        shares = [(percent, percent / 100) for percent in (0, 25, 50, 75, 100)]
        sides.append((shares, "exact match, %", 1.0, 1.0))
    for axis in axes:
        count, lengths = len(axis.lengths), ticks(axis.tested, axis.shortest)
        marks = [(length, (length - axis.shortest + 0.5) / count) for length in lengths]
        label = f"{operand(axis)}, {unit(axis)}" if operand(axis) else axis_label(axis)
        sides.append((marks, label, (axis.trained - axis.shortest + 1) / count, 1 / count))
    keys = ("marks", "labels", "trained", "cells")
    return dict(zip(keys, zip(*sides, strict=True), strict=True))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _leaderboard(report: Report) -> dict[str, Any]:
    """Return columns, notes and sections of rows, without columns in which nothing is known."""
    board, rows = report.board, report.board.rows
    every = [column for column in choose(board.columns, ()) if column.key not in _IN_OTHER_CELLS]
    columns = with_something_known(every, rows)
    panels = board.panels
    values = [v for panel in panels for v in panel.seed_means("out_of_distribution")]
    place = count()
    notes = board.explanations()
    if captions.has_ranges(panels, report.panels[0].regions):
        notes.insert(0, captions.RANGES)
    if unknown := [column.head for column in every if column not in columns]:
        notes.append(f"Not known of any run here, so without a column: {', '.join(unknown)}.")
    return {
        "columns": columns,
        "end": scale_end(max(values, default=1.0)),
        "sections": [
            {
                **section._asdict(),
                "rows": [
                    {"row": row, "place": next(place), "cells": [c.text(row) for c in columns]}
                    for row in section.rows
                ],
            }
            for section in board.sections
        ],
        "notes": notes,
    }
