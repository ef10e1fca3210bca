"""`tape-arith list`: show encodings, presets, tasks, runs and sweeps."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import completion, option
from tape_arith.arith.runs.preset import presets
from tape_arith.arith.terminal import show

EXAMPLE = "tape-arith list tape"

_Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Show only this, in full: an encoding, a task, a preset, or `sweeps`.",
        autocompletion=completion.complete_among(
            lambda: ["sweeps", *presets(), *completion.complete_part("")]
        ),
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
        return
    from tape_arith.arith.catalogue import catalogue, describe, to_text

    if name is not None:
        content, text = describe(name)
    else:
        content = catalogue(runs, costs=costs)
        text = to_text(content)
    if as_json:
        print(json.dumps(content, indent=1))
    else:
        show(text)
