"""JSON that means one thing, files that are files: what every reader stands on."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arith.checking import Wrong, digest, known_keys, mapping, number, text, whole
from arith.errors import Failure
from arith.plain import plain
from arith.reading import MOST_INTEGER, opened, parse_json, read_bytes, read_text, sha256


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('[{"b": {"x": 1, "y": 2, "x": 1}}]', "'x' stands twice"),
        ("NaN", "NaN is no number"),
        ("[Infinity]", "Infinity is no number"),
        ("-Infinity", "-Infinity is no number"),
        ("1e400", "past every float"),
        ("[-1e999]", "past every float"),
        (str(2**63), "past 64 bits"),
        (str(-(2**64)), "past 64 bits"),
        ("9" * 400, "past 64 bits"),
        ("9" * 10**6, "past 64 bits"),
        ("[" * 10**6, "nested too deep"),
        ('{"a":' * 10**6, "nested too deep"),
        ("", "Expecting value"),
        ('{"a": 1}x', "Extra data"),
    ],
)
def test_what_is_not_read(written: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_json(written)


def test_what_is_read() -> None:
    assert parse_json(f"[{MOST_INTEGER}, -5, 1e308, 5e-324, -0.0]")[0] == MOST_INTEGER
    assert parse_json('{"a": {"a": 1}, "b": {"a": [2.5, null, true]}}')["b"]["a"][0] == 2.5


def test_files(tmp_path: Path) -> None:
    file, pipe, link = tmp_path / "file", tmp_path / "pipe", tmp_path / "link"
    file.write_bytes(b"12345")
    link.symlink_to(file)
    os.mkfifo(pipe)
    assert read_bytes(link, 5) == b"12345" and sha256(file) == sha256(link)
    with pytest.raises(Failure, match="file is larger than the 4 bytes"):
        read_bytes(file, 4)
    for path in (pipe, tmp_path, tmp_path / "none", Path(f"{file}\0"), Path("/dev/zero")):
        for read in (opened, read_text, sha256):
            with pytest.raises(Failure, match="cannot read"):
                read(path)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Failure, match="not UTF-8"):
        read_text(file)


def test_values() -> None:
    assert (whole(3, "n"), number(2, "x"), text("a b", "t")) == (3, 2.0, "a b")
    wrong: list[tuple[Callable[[Any, str], object], list[Any]]] = [
        (whole, [True, 1.0, -1, "1", None, MOST_INTEGER + 1]),
        (number, [True, "1", None, float("nan"), float("inf")]),
        (text, ["", 1, None, "a\x1bb", "a\nb", "\ud800", "x" * 20_000]),
        (digest, ["", "a" * 63, "A" * 64, 3, None]),
        (mapping, [[], None, {"a": float("nan")}]),
    ]
    for check, values in wrong:
        for value in values:
            with pytest.raises(Wrong, match="'n'"):
                check(value, "n")
    with pytest.raises(Wrong, match="'b' is unknown"):
        known_keys({"a": 1, "b": 2}, {"a"}, frozenset({"c"}))
    with pytest.raises(Wrong, match="'a' is missing"):
        known_keys({"c": 1}, {"a"}, frozenset({"c"}))


def test_plain() -> None:
    said = "± 99.9 %\tä\n→ 中 🙂"
    assert plain(said) == said
    assert plain("\x1b[0m\x07\r\x9b\u202e\ud800") == r"\x1b[0m\x07\r\x9b\u202e\ud800"
