"""The sources that an export takes along stand on their own."""

import re
from pathlib import Path

import pytest

from tape_arith.arith.errors import UsageError
from tape_arith.arith.export.export_run import answer_width
from tape_arith.arith.export.source_files import source_files
from tape_arith.arith.registry.locate import locations
from tape_arith.arith.registry.names import Encoding, Name, parse
from tape_arith.arith.tasks.addition import Addition
from tape_arith.arith.tasks.families.numbers import Int64
from tape_arith.arith.tasks.families.two_operands import longer

MINE = '''"""Mine."""
{imports}
from tape_arith.models.encodings.rope import RoPE


class Mine(RoPE):
    """RoPE by another name."""
'''


@pytest.mark.parametrize("name", ["all", "abacus+fire", "rope+yarn", "dape:base=fire"])
def test_imports_are_of_files_that_are_there_and_never_circular(name: str) -> None:
    """transformers reads imports as text, with one dot and a plain name, and 4.50 never ends on
    imports that go in a circle."""
    builtin = [place.name for place in locations("encoding") if place.is_builtin]
    everything = Name(Encoding(tuple(parse(one).encoding.parts[0] for one in builtin)))
    files = source_files(everything if name == "all" else parse(name), "1.2.3")
    assert not [
        text for text in files.values() if re.search(r"^\s*(from|import) tape_", text, re.M)
    ]
    left = {f: set(re.findall(r"^\s*from \.(\S+) import", t, re.M)) for f, t in files.items()}
    assert {f"{module}.py" for modules in left.values() for module in modules} <= files.keys()
    while left:
        leaves = {file for file, to in left.items() if not {f"{m}.py" for m in to} & left.keys()}
        assert leaves, sorted(left)
        left = {file: to for file, to in left.items() if file not in leaves}


def test_only_needed_files_are_taken_and_those_of_the_users_go_along(tmp_path: Path) -> None:
    files = source_files(parse("rope"), "1.2.3").keys()
    assert {"encodings_rope.py", "families_rotary.py"} <= files
    assert not {"names_parse.py", "names_locate.py", "encodings_tape.py"} & files
    assert "encodings_kerple_log.py" in source_files(parse("dape"), "1.2.3")
    assert "encodings_fire.py" in source_files(parse("dape:base=fire"), "1.2.3")
    (tmp_path / "mine.py").write_text(MINE.format(imports="import math"))
    texts = source_files(parse(f"{tmp_path}/mine.py:Mine"), "1.2.3")
    assert ".encodings_rope import" in texts["own_mine.py"]
    assert ".own_mine import" in texts["parts.py"]


@pytest.mark.parametrize(
    ("imports", "message"),
    [
        ("import numpy", "imports numpy"),
        ("from . import neighbour", r"imports \."),
        ("import tape_arith.models.norm", "imports tape_arith.models.norm"),
        ("from tape_arith.arith.registry.names import parse", "imports tape_arith.arith.registry"),
    ],
)
def test_imports_that_cannot_go_along_are_refused(
    tmp_path: Path, imports: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(imports=imports))
    with pytest.raises(UsageError, match=message):
        source_files(parse(f"{tmp_path}/mine.py:Mine"), "1.2.3")


def test_the_longest_answer_is_linear_in_the_operands() -> None:
    assert answer_width(Addition()) == (1, 1)

    class Odd(Addition):
        name = "odd"

        def answer_digits(self, lengths: Int64) -> Int64:
            return longer(lengths) ** 2

    with pytest.raises(UsageError, match="task odd"):
        answer_width(Odd())
