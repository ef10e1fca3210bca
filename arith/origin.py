"""Say which version, commit and command make a file, in the file itself."""

import re
import shlex
import sys
from pathlib import Path

from tape_arith.arith.files import write_text
from tape_arith.arith.machine import ROOT, commit, own_version

_COMMENTS = {".md": "\n<!-- {} -->\n", ".tex": "% {}\n"}
"""What ends a table, by the suffix of its file; CSV and JSON have no comments."""
_SECRETS = re.compile(r"\b(token|auth_token|api_key|header|password)=[^,]*")


def without_secrets(arguments: str) -> str:
    """Return arguments of a model without what opens a server.

    >>> without_secrets("model=gpt2,api_key=abc,batch_size=8")
    'model=gpt2,api_key=...,batch_size=8'
    """
    return _SECRETS.sub(r"\1=...", arguments)


def command_line() -> str:
    """Return the command that runs, as one types it, or "Python" where none of ours does."""
    program = Path(sys.argv[0])
    if program.stem == "tape-arith" or program.resolve() == ROOT / "__main__.py":
        return shlex.join(["tape-arith", *map(without_secrets, sys.argv[1:])])
    return "Python"


def version_and_commit() -> str:
    """Return "tape-arith 0.11.0, commit a4506ff0f1b2", without a commit where none is known."""
    here = commit()
    return f"tape-arith {own_version()}{f', commit {here}' if here else ''}"


def origin() -> str:
    """Return what makes files now: "tape-arith 0.11.0, commit a4506ff0f1b2: tape-arith tasks"."""
    return f"{version_and_commit()}: {command_line()}"


def write_table(path: Path, text: str) -> None:
    """Write a table, whole or not at all, with its origin in a comment. Raises Failure."""
    comment = _COMMENTS.get(path.suffix.lower(), "").format(origin())
    write_text(path, text + comment)
