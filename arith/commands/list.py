"""`tape-arith list`: what there is."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith list --json"


def command(
    runs: option.Runs = Path("runs"),
    costs: Annotated[
        bool, typer.Option("--costs", help="Parameters and extra FLOPs at the paper's size too.")
    ] = False,
    cite: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="BibTeX of these encodings, as in tape+yarn,abacus+fire, or of all, in place.",
            autocompletion=option.complete_encoding,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show encodings with their options, presets, tasks and runs."""
    if cite is not None:
        from tape_arith.arith.export.citations import all_names, bibtex
        from tape_arith.models.names import parse_list

        names = all_names() if cite == "all" else parse_list(cite)
        if not names:
            raise UsageError("--cite is empty: name an encoding, as in --cite tape")
        print(bibtex(names), end="")
        return
    from tape_arith.arith.compare.catalogue import catalogue, to_text

    content = catalogue(runs, costs=costs)
    print(json.dumps(content, indent=1) if as_json else to_text(content))
