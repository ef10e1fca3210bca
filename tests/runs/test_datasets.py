"""`generate`: where problems go, and in which form."""

from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.runs import datasets as problems
from tests.helpers.tiny_runs import contents, done, refused, settings, untouched


def test_its_defaults_are_the_paper_s(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, Bucket, int, bool]] = []

    def generate(folder: Path, bucket: Bucket, count: int, **options: Any) -> None:
        asked.append((folder, bucket, count, options["fresh"]))

    monkeypatch.setattr(problems, "generate", generate)
    assert done("generate").out == "data/addition-bucket-40\n"
    assert done("generate", "--seed", 3, "--preset", "mini").out == (
        "data/addition-bucket-8-seed-3\n"
    )
    bucket = Bucket("addition", 40, 0, "train")
    assert asked[0] == (Path("data/addition-bucket-40"), bucket, 20_000_000, False)
    assert asked[1][1] == Bucket("addition", 8, 3, "train")


def test_the_forms(here: Path) -> None:
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


def test_what_is_refused(here: Path) -> None:
    assert "Known: parquet, text, tokens" in refused("generate", "--format", "jsonl", *settings())
    assert "worker" in refused("generate", "--workers", -1, *settings())
    line = refused("generate", "--format", "text", "--workers", 2, *settings())
    assert "--workers goes with --format tokens" in line
    assert "no finished dataset" in refused("generate", "--verify", "nothing")
    assert "'--count'" in refused("generate", "--count", 0, *settings())
    assert contents(here) == {}


def test_a_folder_that_holds_something_else(here: Path) -> None:
    done("generate", *settings())
    with untouched(here):
        for other in (("--count", 63), ("--set", "num_problems=63")):
            line = refused("generate", *settings(), *other)
            assert "holds 64 problems of addition" in line and "--fresh" in line
    Path("data/mine").mkdir()
    Path("data/mine/thesis.txt").write_text("kept")
    with untouched(here):
        for more in ((), ("--fresh",)):
            assert "thesis.txt" in refused("generate", "--out", "data/mine", *settings(), *more)


def test_a_dataset_is_no_folder_of_datasets(here: Path) -> None:
    dataset = done("generate", *settings()).out.strip()
    with untouched(here):
        line = refused("run", "--pe", "rope", "--data", dataset, *settings())
    assert "--data data " in line
