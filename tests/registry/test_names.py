"""Names of encodings: one text for one encoding, and a clear line for a wrong one."""

import re
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape_arith.arith.contracts import examine as models_contract
from tape_arith.arith.contracts import task as task_contract
from tape_arith.arith.registry.declarations import Option, Value, read_declaration
from tape_arith.arith.registry.locate import KINDS, declarations, on_disk, source_file
from tape_arith.arith.registry.names import Encoding, Name, NamePart, parse, parse_list
from tape_arith.models.errors import UsageError


def values(option: Option) -> st.SearchStrategy[Value]:
    if "Literal[" in option.annotation:
        written = option.annotation.split("[")[1].split("]")[0].split(", ")
        return st.sampled_from([text.strip("'\"") for text in written])
    kinds: dict[str, st.SearchStrategy[Value]] = {
        "int": st.integers(),
        "float": st.floats(allow_nan=False, allow_infinity=False),
        "bool": st.booleans(),
    }
    return kinds[option.annotation.split(" ")[0]]


@st.composite
def parts(draw: st.DrawFn, kind: str) -> NamePart:
    """Any name of a kind with some of its options, none at its default."""
    declared = draw(st.sampled_from(declarations(kind)))
    options = declared.options
    keys = draw(st.sets(st.sampled_from(sorted(options)))) if options else set()
    chosen = {key: draw(values(options[key])) for key in keys}
    changed = {key: value for key, value in chosen.items() if value != options[key].default}
    return NamePart(declared.name, tuple(sorted(changed.items())))


def encodings() -> st.SearchStrategy[Encoding]:
    several = st.lists(parts("encoding"), min_size=1, max_size=3, unique_by=lambda part: part.name)
    return several.map(lambda parts: Encoding(tuple(sorted(parts, key=lambda part: part.name))))


@hypothesis.settings(deadline=None, max_examples=15)
@given(st.builds(Name, encodings(), st.none() | parts("extrapolation")))
def test_a_name_and_its_text_are_one(name: Name) -> None:
    assert parse(str(name)) == name
    assert parse_list(f" , {name},{name}") == [name]
    assert parse("+".join(map(str, reversed(name.encoding.parts)))) == Name(name.encoding)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" RoPE ", "rope"),
        ("Aug_RoPE:a=2", "aug-rope"),
        ("aug-fire:width=64:a=4.0+abacus", "abacus+aug-fire:a=4:width=64"),
        ("fire:width=64:init_l=512.0", "fire:init_l=512:width=64"),
        ("tape+yarn:ramp=code:scale=static", "tape+yarn:scale=static"),
        (" abacus + Rand_RoPE ", "abacus+rand-rope"),
        ("fire:width=64+coupling+abacus:k=07", "abacus:k=7+coupling+fire:width=64"),
        ("rope+abacus:k=3+yarn:ramp=code", "abacus:k=3+rope+yarn"),
    ],
)
def test_canonical_names(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


def test_no_name_is_of_two_kinds() -> None:
    """The kind of a part after a plus follows from its name."""
    known = [declared for kind in KINDS for declared in declarations(kind)]
    names = [declared.name for declared in known]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        ("bool", "true", True),
        ("int | None", "7", 7),
        ("Literal['a', 'b'] | None", "b", "b"),
        ("Literal[1, 2]", "2", 2),
    ],
)
def test_options(annotation: str, text: str, value: Value) -> None:
    assert Option(annotation, None).read(text) == value


@pytest.mark.parametrize(
    ("annotation", "text", "accepted"),
    [("bool", "yes", "true, false"), ("Literal[1, 2]", "3", "1, 2"), ("float", "nan", "a number")],
)
def test_values_that_are_refused(annotation: str, text: str, accepted: str) -> None:
    with pytest.raises(ValueError, match=accepted):
        Option(annotation, None).read(text)


@pytest.mark.parametrize(
    "annotation",
    ["Optional[int]", "typing.Literal['a', 'b']", "'int'", "None | int", "int | float"],
)
def test_a_type_that_cannot_be_read_is_refused_not_read_as_text(
    annotation: str, here: Path
) -> None:
    Path("mine.py").write_text(
        f"class Mine:\n    def __init__(self, *, k: {annotation} = 1): ...\n"
    )
    told = f"option 'k' has the type `{annotation}`"
    for name in ("k=2", "k=a"):
        with pytest.raises(UsageError, match=re.escape(told)):
            parse(f"mine.py:Mine:{name}")
    for warnings in (models_contract._warnings, task_contract._warnings):
        assert any(told in line for line in warnings(on_disk("mine.py", "Mine")))


def test_every_option_can_be_read() -> None:
    known = [*(each for kind in KINDS for each in declarations(kind)), *declarations("task")]
    assert not [option for each in known for option in each.options.values() if option.problem]


def test_files_are_found_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is no plain source has no file; packages may lack an __init__."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "zz_package" / "space" / "mine.py"
    file.parent.mkdir(parents=True)
    file.write_text("raise RuntimeError\n")
    assert source_file("zz_package.space.mine") == file
    assert source_file("zz_package.space") is source_file("sys") is source_file("gone.py") is None
    assert "zz_package" not in sys.modules


def test_a_paragraph_that_is_the_name_of_an_option_is_no_table() -> None:
    source = """
class Mine:
    '''Mine.

    slope
    '''

    def __init__(self, *, slope: float = 1.0) -> None: ...
"""
    declared = read_declaration(source.encode(), "mine.py", "mine")
    assert declared.description == "Mine.\n\nslope" and not declared.options["slope"].meaning


def test_what_a_class_does_not_declare_is_that_of_its_bases_in_the_file() -> None:
    source = """
from elsewhere import Far, Mine

class _Near(Far):
    '''The base.

    slope  how steep
    width  how wide
    '''

    kind = "relative bias"
    paper = "Base 2024"

    def __init__(self, setting, *, slope: float = 1.0, width: int = 2) -> None: ...

class Mine(_Near, Mine):
    '''Mine.

    slope  less steep
    '''

    paper = "Mine 2025"
"""
    declared = read_declaration(source.encode(), "mine.py", "mine")
    assert (declared.kind, declared.paper) == ("relative bias", "Mine 2025")
    assert (declared.label, declared.description) == ("Mine", "Mine.")
    meanings = {name: option.meaning for name, option in declared.options.items()}
    assert meanings == {"slope": "less steep", "width": "how wide"}
    only = "class Mine(_Near):\n    def __init__(self, setting, *, rows: int = 3) -> None: ..."
    (option,) = read_declaration(f"{source}\n{only}".encode(), "mine.py", "mine").options
    assert option == "rows"
