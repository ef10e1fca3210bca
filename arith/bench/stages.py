"""Which stages there are, and the module of each. They are found as text: without torch.

A file of this folder that defines `measure` at its top level is a stage, named as the file. Its
constant TAKES names the fields of Options that it takes besides `seconds`, `quick` and `threads`.
"""

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import unknown

FOLDER = Path(__file__).parent
ALL = "all"
_IS_STAGE = re.compile(r"^def measure\(", re.MULTILINE)


def stages() -> list[str]:
    """Names of stages, the limits first: the others are read beside them."""
    found = [path for path in FOLDER.glob("*.py") if _IS_STAGE.search(path.read_text("utf-8"))]
    return sorted((path.stem for path in found), key=lambda name: (name != "ceilings", name))


def chosen(names: Sequence[str]) -> list[str]:
    """The stages that `names` ask for, each once; "all" is all of them. Errors: UsageError."""
    there = stages()
    for name in names:
        if name not in there and name != ALL:
            raise unknown("stage", name, [*there, ALL])
    return there if ALL in names else list(dict.fromkeys(names))


def module(stage: str) -> Any:
    """The stage itself: its `measure(options)`, and TAKES, the options that it takes."""
    return import_module(f"tape_arith.arith.bench.{stage}")
