"""What is promised (SECURITY.md, README.md) is held by tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(tests/[\w/-]+\.py)::(\w+)`")


def rows(file: str) -> list[str]:
    """The lines of its tables that have a promise: those below a head that says "held by"."""
    found, within = [], False
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            within = False
        elif "held by" in line:
            within = True
        elif within and not set(line) <= set("|-: "):
            found.append(line)
    return found


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("file", ["SECURITY.md", "README.md"])
def test_every_promise_has_its_test(file: str) -> None:
    promises = rows(file)
    assert promises or file == "README.md"
    for row in promises:
        named = NAMED.findall(row)
        assert named, f"no test holds: {row}"
        for path, name in named:
            assert (ROOT / path).exists(), f"{file} names {path}"
            assert name.startswith("test_") and name in functions_of(ROOT / path), f"{path}::{name}"
