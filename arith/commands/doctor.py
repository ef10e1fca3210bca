"""`tape-arith doctor`: what works here, and how to mend what does not."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tape_arith.arith.commands.options import Preset, Runs
from tape_arith.arith.errors import EXIT_FAILED

if TYPE_CHECKING:
    from tape_arith.arith.doctor.finding import Finding

EXAMPLE = "tape-arith doctor --preset paper-40"
STYLES = {"ok": "green", "slow": "yellow", "missing": "cyan", "broken": "bold red"}


def command(
    preset: Preset = None,
    runs: Runs = Path("runs"),
    data: Annotated[Path, typer.Option(help="The folder of datasets.")] = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Look at Python, packages, processor, GPU, attention, disk and clock; exit 1 if any is broken.

    Slow works, missing is not needed; what can be done about either stands beside it. With a
    preset, whether its runs fit on the disk.
    """
    from tape_arith.arith.doctor.doctor import as_line, content, examine, summary, works
    from tape_arith.arith.runs.presets import known

    found: list[Finding] = []
    for finding in examine(known(preset), runs, data):
        found.append(finding)
        if not as_json and not sys.stdout.isatty():
            print(as_line(finding), flush=True)
    if as_json:
        print(json.dumps(content(found), indent=1))
    elif sys.stdout.isatty():
        show(found)
    if not as_json:
        print(summary(found))
    if not works(found):
        raise typer.Exit(EXIT_FAILED)


def show(findings: "list[Finding]") -> None:
    """A table as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for head in ("", "what", "found", "what to do"):
        table.add_column(head, overflow="fold")
    for finding in findings:
        state = Text(finding.state, STYLES[finding.state])
        table.add_row(state, Text(finding.what), Text(finding.found), Text(finding.mend))
    Console().print(table)
