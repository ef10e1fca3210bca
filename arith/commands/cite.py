"""`tape-arith cite`: prints BibTeX."""

import json
import sys
from typing import Annotated

import typer

from tape_arith.arith.commands.options import complete_encoding
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith cite --pe tape,fire"
SCHEMA = 1


def command(
    pe: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Encodings, as in tape+yarn,abacus+fire (default: all that come along).",
            autocompletion=complete_encoding,
        ),
    ] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print BibTeX of the methods used: encodings, extrapolations at test time, and this suite."""
    from tape_arith.arith.export.citations import all_names, bibtex, cited_papers, suite_entry
    from tape_arith.models.names.parse import parse_list

    names = all_names() if pe == "all" else parse_list(pe)
    if not names:
        raise UsageError("--pe is empty: name an encoding, as in --pe tape")
    cited = cited_papers(names)
    for paper in cited:
        if not paper.bibtex:
            print(f"note: no entry for {', '.join(paper.names)}: {paper.paper}", file=sys.stderr)
    if as_json:
        papers = [vars(p) | {"names": list(p.names), "key": p.key} for p in cited]
        print(json.dumps({"schema": SCHEMA, "suite": suite_entry(), "papers": papers}, indent=1))
    else:
        print(bibtex(cited), end="")
