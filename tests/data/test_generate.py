"""`generate`: the folder and the form of its problems."""

from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.data import write_dataset as problems
from tape_arith.arith.data.bucket import Bucket
from tests.helpers.tiny_runs import contents, done, refused, settings, untouched


def test_its_defaults_are_the_paper_s(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(problems, "generate", lambda *arguments, **_: calls.append(arguments))
    folder = "data/addition-bucket-40"
    assert done("generate").out == f"{folder}\n"
    assert calls == [(Path(folder), Bucket("addition", 40, 0, "train"), 20_000_000)]


def test_the_forms(here: Path) -> None:
    assert "Known: parquet, text, tokens" in refused("generate", "--format", "jsonl", *settings())
    line = refused("generate", "--format", "text", "--workers", 2, *settings())
    assert "--workers goes with --format tokens" in line and contents(here) == {}
    folder = done("generate", *settings()).out.strip()
    assert folder == "data/addition-bucket-2"
    assert "64 problems, every hash is right" in done("generate", "--verify", folder).out
    text = Path(done("generate", "--format", "text", *settings()).out.strip())
    assert text == Path("data/addition-bucket-2.txt")
    lines = text.read_text().splitlines()
    assert len(lines) == 64
    for line in lines:
        a, b = (int(part[::-1]) for part in line.split("=")[0].split("+"))
        assert line.endswith(f"={str(a + b)[::-1]}")
    with untouched(here):  # a second call finds it done
        for form in ("tokens", "text"):
            done("generate", "--format", form, *settings())
        assert f"{text} is damaged or not of 64" in refused(
            "generate", "--format", "text", "--out", text, *settings(), "--seed", 1, after=True
        )
    pytest.importorskip("pyarrow")
    assert done("generate", "--format", "parquet", *settings()).out == (
        "data/addition-bucket-2.parquet\n"
    )


def test_a_folder_that_holds_something_else(here: Path) -> None:
    dataset = done("generate", *settings()).out.strip()
    with untouched(here):
        assert "--datasets data " in refused(
            "run", "--pe", "rope", "--datasets", dataset, *settings()
        )
        for change in (("--count", 63), ("--set", "num_problems=63")):
            line = refused("generate", *settings(), *change)
            assert "holds 64 problems of addition" in line and "--fresh" in line
    Path("data/mine").mkdir()
    Path("data/mine/thesis.txt").write_text("kept")
    with untouched(here):
        for option in ((), ("--fresh",)):
            assert "thesis.txt" in refused("generate", "--out", "data/mine", *settings(), *option)
