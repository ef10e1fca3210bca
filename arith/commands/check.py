"""`tape-arith check`: check that an encoding, a model or a task fulfils its contract."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from tape_arith.arith.commands import completion, option
from tape_arith.arith.errors import EXIT_FAILED

EXAMPLE = "tape-arith check mine.py:Mine"
SCHEMA = 1

_Name = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:CLASS|NAME",
        help="The class of a file, or a name of `tape-arith list`, with its options.",
        autocompletion=completion.complete_part,
    ),
]


def command(name: _Name, as_json: option.AsJson = False) -> None:
    """Check an encoding (causal, aware of order, ...), a model or a task. Runs its code.

    For each broken promise it prints what was expected, what happened and the usual cause, and
    exits with 1.
    """
    from tape_arith.arith.contracts.examine import check
    from tape_arith.arith.contracts.promises import as_text

    report = check(name)
    if as_json:
        print(json.dumps({"schema": SCHEMA, "holds": report.holds, **asdict(report)}, indent=1))
    else:
        print(as_text(report))
    if not report.holds:
        raise typer.Exit(EXIT_FAILED)
