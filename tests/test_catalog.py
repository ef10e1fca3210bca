"""Names of encodings, and what is added by adding one file."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arith.data.task
import arith.data.tasks
import models.encodings
from arith.suite.folders import RunFolder
from models.errors import UsageError
from models.names.declarations import Option, Value, declaration, declarations, defines_attention
from models.names.locate import FOLDERS, known_names, locate
from models.names.parse import Encoding, Name, NamePart, parse, parse_extrapolation, parse_list
from tests.suite.tiny import done, refused, settings


def values(option: Option) -> st.SearchStrategy[Value]:
    """What an option may be set to."""
    if "Literal[" in option.annotation:
        return st.sampled_from(option.annotation.split("[")[1].split("]")[0].split(", ")).map(
            lambda text: text.strip("'\"")
        )
    if option.annotation.startswith("int"):
        return st.integers()
    if option.annotation.startswith("float"):
        return st.floats(allow_nan=False, allow_infinity=False)
    if option.annotation.startswith("bool"):
        return st.booleans()
    raise AssertionError(f"a test for options of type {option.annotation} is missing")


@st.composite
def parts(draw: st.DrawFn, kind: str) -> NamePart:
    """Any name of a kind with some of its options, none at its default."""
    entry = draw(st.sampled_from(declarations(kind)))
    names = draw(st.sets(st.sampled_from(sorted(entry.options)))) if entry.options else set()
    chosen = {name: draw(values(entry.options[name])) for name in names}
    differ = {k: v for k, v in chosen.items() if v != entry.options[k].default}
    return NamePart(entry.name, tuple(sorted(differ.items())))


def place_in_a_name(part: NamePart) -> tuple[bool, str]:
    """What attends comes last, the others by name."""
    return defines_attention(locate("encoding", part.name)), part.name


def joined() -> st.SearchStrategy[Encoding]:
    """One part, or several of different names."""
    several = st.lists(parts("encoding"), min_size=1, max_size=3, unique_by=lambda part: part.name)
    return several.map(lambda parts: Encoding(tuple(sorted(parts, key=place_in_a_name))))


@hypothesis.settings(deadline=None)
@given(st.builds(Name, joined(), st.none() | parts("extrapolation")))
def test_a_name_and_its_text_are_one(name: Name) -> None:
    assert parse(str(name)) == name
    assert parse_list(f"{name}, {name}") == [name]
    extrapolated = name.extrapolation is not None
    assert str(name).count("+") == len(name.encoding.parts) - 1 + extrapolated
    assert parse(str(name.encoding)) == Name(name.encoding)
    assert parse("+".join(map(str, reversed(name.encoding.parts)))) == Name(name.encoding)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("rope", "rope"),
        (" RoPE ", "rope"),
        ("tape_heads", "tape-heads"),
        ("randpe", "rand-rope"),
        ("rand_rope:l_max=99", "rand-rope:l_max=99"),
        ("fire:width=32", "fire"),
        ("fire:width=64:init_l=512", "fire:init_l=512:width=64"),
        ("fire:init_l=512.0", "fire:init_l=512"),
        ("tape+yarn", "tape+yarn"),
        ("tape+yarn:ramp=code:scale=static", "tape+yarn:scale=static"),
        (" abacus + RandPE ", "abacus+rand-rope"),
        ("fire:width=64+coupling+abacus:k=7", "abacus:k=7+coupling+fire:width=64"),
        ("abacus:k=07+fire:width=32", "abacus:k=7+fire"),
        ("abacus+rope+yarn:ramp=code", "abacus+rope+yarn"),
    ],
)
def test_canonical_names(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tap", "unknown encoding 'tap': did you mean 'tape'?"),
        ("rnad-rope", "did you mean 'rand-rope'?"),
        ("", "unknown encoding ''"),
        ("../rope", "unknown encoding '../rope'"),
        ("__init__", "unknown encoding"),
        ("fire:initl=3", "unknown option of fire 'initl': did you mean 'init_l'?"),
        ("fire:init_l", "key=value, not 'init_l'"),
        ("fire:", "key=value, not ''"),
        ("fire:width=", "width must be a whole number, not ''"),
        ("fire:init_l=inf", "init_l must be a number, not 'inf'"),
        ("fire:init_l=nan", "init_l must be a number, not 'nan'"),
        ("fire:width=3:width=4", "width"),
        ("fire+", "unknown encoding or extrapolation ''"),
        ("+fire", "unknown encoding ''"),
        ("yarn", "unknown encoding 'yarn'"),
        ("yarn+rope", "unknown encoding 'yarn'"),
        ("rope+yran", "unknown encoding or extrapolation 'yran': did you mean 'yarn'?"),
        ("abacus+fier", "unknown encoding or extrapolation 'fier': did you mean 'fire'?"),
        ("abacus+fire:initl=3", "unknown option of fire 'initl': did you mean 'init_l'?"),
        ("abacus+rope+abacus:k=3", "'abacus+rope+abacus:k=3' names abacus twice"),
        ("abacus+yarn:ramp=paper+rope", "yarn:ramp=paper is for test time and comes last"),
        ("rope+yarn:ramp=slow", "ramp must be one of code, paper, not 'slow'"),
        ("rope+yarn+yarn", "at most one extrapolation"),
    ],
)
def test_names_that_are_wrong(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_no_name_is_of_two_kinds() -> None:
    """What follows a plus is told by its name alone."""
    known = [(kind, entry) for kind in FOLDERS for entry in declarations(kind)]
    said = [name for _, entry in known for name in (entry.name, *entry.aliases)]
    assert len(said) == len(set(said))


def test_lists() -> None:
    assert list(map(str, parse_list("rope, randpe,rand-rope,,fire:width=64"))) == [
        *("rope", "rand-rope", "fire:width=64"),
    ]
    assert parse_list(" , ") == []
    assert str(parse_extrapolation("yarn:ramp=paper")) == "yarn:ramp=paper"


def test_kinds_of_options() -> None:
    assert Option("bool", False).read("true") is True
    assert Option("int | None", None).read("7") == 7
    assert Option("Literal['a', 'b'] | None", None).read("b") == "b"
    assert Option("Literal[1, 2]", 1).read("2") == 2
    with pytest.raises(ValueError, match="one of 1, 2"):
        Option("Literal[1, 2]", 1).read("3")
    for option in (Option("bool", False), Option("Literal['a', 'b'] | None", None)):
        with pytest.raises(ValueError, match=r"true or false|one of a, b"):
            option.read("yes")


def test_what_the_files_say_of_themselves() -> None:
    for kind in ("encoding", "extrapolation"):
        for entry in declarations(kind):
            assert entry.summary.endswith(".") and len(entry.summary) < 90
            assert entry.kind and "arXiv" in entry.paper
            assert entry.class_name.lower().startswith(entry.name.replace("-", "")[:4])


ENCODING = '''"""Zz: a test's own."""

from typing import Literal

import torch
from torch import Tensor, nn

from models.encoding import PositionalEncoding, Setting
from models.sequences import Sequences


class Helper:
    """Stands above, so it is not the encoding."""


class ZzTest(PositionalEncoding):
    """A learned vector for each index, scaled.

    More about it.
    """

    kind = "absolute"
    paper = "Nobody 2025, arXiv 0000.00000"
    aliases = ("zz",)

    def __init__(
        self, setting: Setting, *, scale: float = 1.0, how: Literal["add", "not"] = "add"
    ) -> None:
        super().__init__(setting)
        self.scale, self.how = scale, how
        self.table = nn.Parameter(torch.zeros(setting.max_length, setting.hidden_size))

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        return x + self.scale * self.table[index] if self.how == "add" else x
'''


@pytest.fixture
def one_more_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "encodings"
    shutil.copytree(FOLDERS["encoding"], folder)
    monkeypatch.setitem(FOLDERS, "encoding", folder)
    monkeypatch.setattr(models.encodings, "__path__", [*models.encodings.__path__, str(folder)])
    monkeypatch.chdir(tmp_path)
    (folder / "zz_test.py").write_text(ENCODING)
    yield folder / "zz_test.py"
    sys.modules.pop("models.encodings.zz_test", None)


def test_an_encoding_in_one_file(one_more_encoding: Path) -> None:
    assert "zz-test" in known_names("encoding")
    entry = declaration("encoding", "zz-test")
    assert entry.class_name == "ZzTest" and entry.aliases == ("zz",)
    assert entry.summary == "A learned vector for each index, scaled."
    assert entry.options == {
        "scale": Option("float", 1.0),
        "how": Option("Literal['add', 'not']", "add"),
    }
    listed = done("list").out
    line = "zz-test         A learned vector for each index, scaled. (also zz) Nobody 2025"
    assert line in listed
    assert "Options: scale=1.0, how=add." in listed

    done("run", "--pe", "zz:scale=2,rope", *settings(steps=2))
    folder = RunFolder(Path("runs/mini/zz-test@scale=2/seed-0"))
    assert folder.record().encoding == "zz-test:scale=2" and folder.finished()
    assert (folder.path / "grid.json").exists()
    assert Path("runs/mini/zz-test@scale=2-rope.png").exists()
    assert "one of add, not" in refused("train", "--pe", "zz-test:how=so", *settings())
    assert "ZzTest has none" in refused("train", "--pe", "zz-test+yarn", *settings())


def test_a_file_without_a_class(one_more_encoding: Path) -> None:
    (one_more_encoding.with_name("zz_empty.py")).write_text("x = 1\n")
    with pytest.raises(UsageError, match=r"zz_empty\.py defines no class"):
        declaration("encoding", "zz-empty")


def test_a_file_that_does_not_parse(one_more_encoding: Path) -> None:
    (one_more_encoding.with_name("zz_broken.py")).write_text("class Zz(:\n")
    for command in (("list",), ("train", "--pe", "zz-broken", *settings())):
        assert "zz_broken.py" in refused(*command)


TASK = '''"""Repeating the first operand: a test's own."""

from arith.data.task import Digits, Task


class Repeat(Task):
    """The first operand.

    >>> Repeat().text(48, 5)
    '84x5=84'
    """

    version = 3
    symbol = "x"

    def answer_width(self, max_digits: int) -> int:
        return max_digits

    def answer(self, a: Digits, b: Digits) -> Digits:
        return a
'''


@pytest.fixture
def one_more_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "tasks"
    shutil.copytree(arith.data.task._TASKS, folder)
    monkeypatch.setattr(arith.data.task, "_TASKS", folder)
    monkeypatch.setattr(arith.data.tasks, "__path__", [*arith.data.tasks.__path__, str(folder)])
    monkeypatch.chdir(tmp_path)
    (folder / "zz_repeat.py").write_text(TASK)
    arith.data.task.load_task.cache_clear()
    yield
    arith.data.task.load_task.cache_clear()
    sys.modules.pop("arith.data.tasks.zz_repeat", None)


@pytest.mark.usefixtures("one_more_task")
def test_a_task_in_one_file() -> None:
    assert "  zz-repeat" in done("list").out.splitlines()
    made = done("generate", "--task", "zz-repeat", "--format", "text", *settings()).out.strip()
    assert made == "data/zz-repeat-bucket-2.txt"
    for line in Path(made).read_text().splitlines():
        assert line.endswith("=" + line.split("x")[0])
    done("run", "--pe", "rope", "--task", "zz-repeat", *settings(steps=2))
    grid = RunFolder(Path("runs/mini/rope/seed-0"))
    assert grid.record().config.task == "zz-repeat"
    assert '"version": 3' in (grid.path / "grid.json").read_text()
    assert "holds another run (task" in refused("train", "--pe", "rope", *settings(steps=2))
