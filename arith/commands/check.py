"""`tape-arith check`: check that an encoding keeps the contract."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import EXIT_FAILED

EXAMPLE = "tape-arith check mine.py:Mine"
SCHEMA = 1


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:CLASS|NAME",
            help="The class of a file, or a name of `tape-arith list`; with its options, if any.",
            autocompletion=option.complete_encoding,
        ),
    ],
    as_json: option.AsJson = False,
) -> None:
    """Check an encoding: causal, aware of order, without dead parameters, and so on. Runs its code.

    Exits with 1 where it breaks a promise, and says of each what was expected, what happened and
    how that usually comes about.
    """
    from tape_arith.models.contract import as_text, examine
    from tape_arith.models.names import parse

    report = examine(parse(name))
    if as_json:
        print(json.dumps({"schema": SCHEMA, "holds": report.holds, **asdict(report)}, indent=1))
    else:
        print(as_text(report))
    if not report.holds:
        raise typer.Exit(EXIT_FAILED)
