"""Made-up reports, and the content of a page read back from its HTML."""

import base64
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np

from tape_arith.arith.compare.board import Board, Row, Section
from tape_arith.arith.compare.costs import Training
from tape_arith.arith.compare.curves import curve_rows
from tape_arith.arith.compare.effects import Effect
from tape_arith.arith.compare.leaderboard import by_rank
from tape_arith.arith.compare.report import Provenance, Report
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import panels_of
from tests.helpers.made_grids import filled

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='hacked=1'>\"'&{{command}}"
"""A name that tries to get out of text, attributes, scripts and our own template."""


def grid(encoding: str, seed: int = 0, digits: int = 6, **more: Any) -> Grid:
    """Return a grid trained to half of `digits`, all right there and drawn at random elsewhere."""
    exact = np.random.default_rng([seed, *encoding.encode()]).integers(0, 101, (digits, digits))
    exact[: digits // 2, : digits // 2] = 100
    given = {"trained": digits // 2, **more}
    return filled(exact, encoding=encoding, seed=seed, **given)


def report(grids: Iterable[Grid], **more: Any) -> Report:
    """Return a report of the panels of `grids`, in one section, with no tests."""
    panels = panels_of(grids)
    record = SimpleNamespace(seconds={"train": 60.0})
    files: Any = SimpleNamespace(metrics=[], record=record)
    members = [
        Row(
            panel,
            rank=1 if panel.ranked else None,
            kind="rotary",
            effects={"rope": Effect(why_not="made up")},
            runs=[files for _ in panel.seeds],
        )
        for panel in sorted(panels, key=by_rank)
    ]
    board = Board(
        [Section("All of them", "", members)],
        ("rope",),
        left_out=more.pop("left_out", ()),
        num_encodings=len(members),
    )
    return Report(
        board,
        more.get("runs") or [run(panel.encoding) for panel in panels],
        curve_rows(more.get("logs", ())),
        more.get("command", ""),
    )


def with_costs(made: Report) -> Report:
    """Return the same report with columns of costs, as `--costs` gives it."""
    costs: dict[str, Any] = {"parameters": 1234, "flops_a_token": 5.5}
    costs["trainings"] = [Training(0.1, 5000.0), Training(0.3, 7000.0)]
    (section,) = made.board.sections
    members = [replace(row, **costs) for row in section.rows]
    board = replace(made.board, sections=[section._replace(rows=members)], costs=True)
    return replace(made, board=board)


def run(encoding: str, seed: int = 0, **more: Any) -> Provenance:
    """Return the provenance of a run."""
    given: dict[str, Any] = {
        "folder": f"mini/{encoding}/seed-{seed}",
        "facts": {"configuration": "c" * 64, "commit": f"{seed}abc", "attention": ""},
        "config": {"steps": 500, "task": "addition"},
        "commands": [f"tape-arith train --pe {encoding} --seed {seed}"],
    }
    return Provenance(encoding, seed, **{**given, **more})


def logs(encoding: str, count: int = 1) -> list[tuple[str, int, list[dict[str, Any]]]]:
    """Return the metrics of `count` runs to step 500: lengths 1 to 6 are learnt in turn."""
    return [
        (
            encoding,
            seed,
            [
                {
                    "step": step,
                    "loss": 100 / step + seed,
                    "exact_match": step / 500,
                    "small_grid": {"by_length": {n: float(step >= 100 * n) for n in range(1, 7)}},
                }
                for step in range(100, 600, 100)
            ],
        )
        for seed in range(count)
    ]


class Page(HTMLParser):
    """A page's elements with their attributes, its texts, and the cells of its tables' rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self._in_cell = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._in_cell:
            self.rows[-1][-1] += data


def data(text: str) -> dict[str, Any]:
    """Return the data that the page's script reads."""
    match = re.search(r'id="data">([^<]*)<', text)
    assert match
    content: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(match[1])))
    return content
