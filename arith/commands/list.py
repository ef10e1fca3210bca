"""`tape-arith list`: show encodings, presets, tasks, runs and sweeps."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import completion, option
from tape_arith.arith.runs.preset import presets

EXAMPLE = "tape-arith list tape"


def _complete_name(incomplete: str) -> list[str]:
    names = ["sweeps", *presets()]
    names += completion.complete_encoding("") + completion.complete_task("")
    return [name for name in names if name.startswith(incomplete)]


_Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="Show only this, in full: an encoding, a task, a preset, or `sweeps`.",
        autocompletion=_complete_name,
    ),
]
_Cite = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Print BibTeX of these encodings, such as tape+yarn,abacus+fire, or of all.",
        autocompletion=completion.complete_encoding,
    ),
]


def command(
    name: _Name = None,
    runs: option.Runs = Path("runs"),
    costs: option.Costs = False,
    cite: _Cite = None,
    as_json: option.AsJson = False,
) -> None:
    """Show encodings, presets, tasks and runs, or one in full; --costs at the paper's size."""
    if cite is not None:
        from tape_arith.arith.export.citations import cited

        print(cited(cite), end="")
    elif name is not None:
        from tape_arith.arith.catalogue import describe

        content, text = describe(name)
        print(json.dumps(content, indent=1) if as_json else text)
    else:
        from tape_arith.arith.catalogue import catalogue, to_text

        content = catalogue(runs, costs=costs)
        print(json.dumps(content, indent=1) if as_json else to_text(content))
