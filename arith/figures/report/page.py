"""One HTML file with everything in it: template, style, script and data. It asks no network."""

import base64
import hashlib
import json
import re
import zlib
from importlib.resources import files
from pathlib import Path

from tape_arith.arith.figures.report import board, content, maps, provenance
from tape_arith.arith.figures.report.content import Report
from tape_arith.arith.figures.report.markup import Markup, element, escaped
from tape_arith.arith.files import write_text

SCRIPTS = (
    "data",
    "statistics",
    "readout",
    "maps",
    "difference",
    "curves",
    "lengths",
    "tables",
    "start",
)
"""Files of script/, in the order in which they stand in the page."""


def write(report: Report, path: Path) -> None:
    """Write the page to `path`, whole or not at all.

    Errors: UsageError where the grids must not be compared; Failure where the disk refuses.
    """
    write_text(path, page(report))


def page(report: Report) -> str:
    """The page as text. Errors: UsageError where the grids must not be compared."""
    told = content.content(report)
    style = _package_file("style.css")
    script = "\n".join(_package_file(f"script/{name}.js") for name in SCRIPTS)
    first = report.ordered[0][0]
    pieces = {
        "policy": escaped(policy(style, script)),
        "title": escaped(f"Length generalization of {len(report.panels)} positional encodings"),
        "preset": escaped(first.preset),
        "style": Markup(style),
        "script": Markup(script),
        # Deflated, so that thirty grids of five seeds fit; base64 holds nothing to escape.
        "data": Markup(packed(told)),
        "summary": provenance.summary(report),
        "leaderboard": board.leaderboard(report),
        "notes": board.notes(report),
        "choices": maps.choices(report),
        "maps": maps.maps(report),
        "footnote": maps.footnote(told["footnotes"]),
        "first": maps.options(report, 0),
        "second": maps.options(report, min(1, len(report.panels) - 1)),
        "plot": maps.plot(first.max_digits, first.trained_digits),
        "provenance": provenance.provenance(report.runs),
        "configuration": provenance.configuration(report.runs),
        "reproduction": provenance.reproduction(report.runs),
        "left_out": provenance.left_out(report.left_out),
        "command": element("code", report.command),
    }
    # One pass: what is put in is never read for places again, whatever a run is called.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: pieces[match[1]], _package_file("template.html"))


def packed(told: object) -> str:
    """JSON, deflated, in base64: what script/data.js reads."""
    text = json.dumps(told, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def policy(style: str, script: str) -> str:
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
