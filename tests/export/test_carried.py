"""Which sources an export takes along, and that they stand on their own."""

import ast
import re
from pathlib import Path

import pytest

from tape_arith.arith.errors import UsageError
from tape_arith.arith.export.hub_folder import answer_width
from tape_arith.arith.export.source_files import carried
from tape_arith.arith.tasks.addition import Addition
from tape_arith.arith.tasks.task import load_task
from tape_arith.models.names.locate import locations
from tape_arith.models.names.parse import parse

OURS = [place.name for place in locations("encoding") if place.is_builtin]


@pytest.mark.parametrize("name", [*OURS, "abacus+fire", "rope+yarn", "dape:base=fire"])
def test_every_import_is_of_a_file_that_is_there(name: str) -> None:
    files = carried(parse(name), "1.2.3")
    for file, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1 and f"{node.module}.py" in files, (file, node.module)
            elif isinstance(node, ast.ImportFrom | ast.Import):
                modules = [node.module] if isinstance(node, ast.ImportFrom) else []
                modules += [alias.name for alias in node.names] * isinstance(node, ast.Import)
                assert not any(str(m).split(".")[0] in ("models", "arith") for m in modules), file
        # transformers reads the imports as text: one dot and a plain name.
        assert all("." not in m for m in re.findall(r"^\s*from \.(\S+) import", text, re.M))


@pytest.mark.parametrize("name", [*OURS, "dape:base=fire"])
def test_no_imports_go_in_a_circle(name: str) -> None:
    """transformers 4.50 looks for ever through those that do."""
    files = carried(parse(name), "1.2.3")
    left = {f: set(re.findall(r"^\s*from \.(\S+) import", t, re.M)) for f, t in files.items()}
    while left:
        ends = {file for file, of in left.items() if not {f"{m}.py" for m in of} & left.keys()}
        assert ends, sorted(left)
        left = {file: of for file, of in left.items() if file not in ends}


def test_nothing_is_taken_that_is_not_needed() -> None:
    files = carried(parse("rope"), "1.2.3")
    assert "encodings_rope.py" in files and "families_rotary.py" in files
    assert (
        not {"names_parse.py", "names_locate.py", "encodings_tape.py", "philox.py"} & files.keys()
    )
    assert "encodings_kerple_log.py" in carried(parse("dape"), "1.2.3")
    assert "encodings_fire.py" in carried(parse("dape:base=fire"), "1.2.3")


MINE = '''"""Mine."""
{imports}
from tape_arith.models.encodings.rope import RoPE


class Mine(RoPE):
    """RoPE by another name."""
'''


def test_a_file_of_the_users_goes_along(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(imports="import math"))
    files = carried(parse(f"{tmp_path}/mine.py:Mine"), "1.2.3")
    assert "from .encodings_rope import RoPE" in files["own_mine.py"]
    assert "from .own_mine import Mine" in files["parts.py"]


@pytest.mark.parametrize(
    ("imports", "told"),
    [
        ("import numpy", "imports numpy"),
        ("from . import beside", r"imports \."),
        ("import tape_arith.models.philox", "imports tape_arith.models.philox"),
        ("from models import names", "imports models,"),
        ("from tape_arith.models.names.parse import parse", "looks into folders"),
    ],
)
def test_what_cannot_go_along_is_refused(tmp_path: Path, imports: str, told: str) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(imports=imports))
    with pytest.raises(UsageError, match=told):
        carried(parse(f"{tmp_path}/mine.py:Mine"), "1.2.3")


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder, summary in (("one", "Two"), ("two", "Three")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(
            f'"""{summary}."""\n\nfrom tape_arith.models.encodings.abacus import Abacus\n\n\n'
            f'class {summary}(Abacus):\n    """{summary}."""\n'
        )
    both = f"{tmp_path}/one/mine.py:Two+{tmp_path}/two/mine.py:Three"
    with pytest.raises(UsageError, match="two files are called mine"):
        carried(parse(both), "1.2.3")


def test_the_longest_answer_is_a_line_in_the_operands() -> None:
    assert answer_width(load_task("addition")) == (1, 1)

    class Odd(Addition):
        name = "odd"

        def answer_width(self, max_digits: int) -> int:
            return max_digits * max_digits

    with pytest.raises(UsageError, match="task odd bounds the length"):
        answer_width(Odd())
