"""The sources that an export takes along stand on their own."""

import ast
import re
from pathlib import Path

import pytest

from tape_arith.arith.errors import UsageError
from tape_arith.arith.export.export_run import answer_width
from tape_arith.arith.export.source_files import source_files
from tape_arith.arith.tasks.addition import Addition
from tape_arith.arith.tasks.task import load_task
from tape_arith.models.names.locate import locations
from tape_arith.models.names.parse import parse

NAMES = [place.name for place in locations("encoding") if place.is_builtin]
NAMES += ["abacus+fire", "rope+yarn", "dape:base=fire"]
MINE = '''"""Mine."""
{imports}
from tape_arith.models.encodings.rope import RoPE


class Mine(RoPE):
    """RoPE by another name."""
'''


@pytest.mark.parametrize("name", NAMES)
def test_imports_are_of_files_that_are_there_and_never_circular(name: str) -> None:
    """transformers reads imports as text, with one dot and a plain name, and 4.50 never ends on
    imports that go in a circle."""
    files = source_files(parse(name), "1.2.3")
    for file, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1 and f"{node.module}.py" in files, (file, node.module)
            elif isinstance(node, ast.ImportFrom):
                assert not str(node.module).startswith("tape_arith"), file
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("tape_arith") for alias in node.names), file
    left = {f: set(re.findall(r"^\s*from \.(\S+) import", t, re.M)) for f, t in files.items()}
    assert all("." not in module for modules in left.values() for module in modules)
    while left:
        leaves = {file for file, to in left.items() if not {f"{m}.py" for m in to} & left.keys()}
        assert leaves, sorted(left)
        left = {file: to for file, to in left.items() if file not in leaves}


def test_nothing_is_taken_that_is_not_needed() -> None:
    files = source_files(parse("rope"), "1.2.3").keys()
    assert {"encodings_rope.py", "families_rotary.py"} <= files
    assert not {"names_parse.py", "names_locate.py", "encodings_tape.py"} & files
    assert "encodings_kerple_log.py" in source_files(parse("dape"), "1.2.3")
    assert "encodings_fire.py" in source_files(parse("dape:base=fire"), "1.2.3")


def test_a_file_of_the_users_goes_along(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(imports="import math"))
    files = source_files(parse(f"{tmp_path}/mine.py:Mine"), "1.2.3")
    assert "from .encodings_rope import RoPE" in files["own_mine.py"]
    assert "from .own_mine import Mine" in files["parts.py"]


@pytest.mark.parametrize(
    ("imports", "message"),
    [
        ("import numpy", "imports numpy"),
        ("from . import beside", r"imports \."),
        ("import tape_arith.models.norm", "imports tape_arith.models.norm"),
        ("from models import names", "imports models,"),
        ("from tape_arith.models.names.parse import parse", "looks into folders"),
    ],
)
def test_imports_that_cannot_go_along_are_refused(
    tmp_path: Path, imports: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(imports=imports))
    with pytest.raises(UsageError, match=message):
        source_files(parse(f"{tmp_path}/mine.py:Mine"), "1.2.3")


def test_the_longest_answer_is_linear_in_the_operands() -> None:
    assert answer_width(load_task("addition")) == (1, 1)

    class Odd(Addition):
        name = "odd"

        def answer_width(self, max_digits: int) -> int:
            return max_digits * max_digits

    with pytest.raises(UsageError, match="task odd bounds the length"):
        answer_width(Odd())
