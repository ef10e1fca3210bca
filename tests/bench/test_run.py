"""Stages run together: the table, the JSON, and what the command refuses."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tape_arith.arith.bench import STAGES, run
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.documents import read_content
from tape_arith.arith.errors import Failure
from tape_arith.arith.machine import ROOT
from tests.helpers.tiny_runs import call, contents, done


def replace_stages(monkeypatch: pytest.MonkeyPatch, *failures: BaseException) -> None:
    """Put stages that measure nothing in place of ours: good ones and, last, a failing one."""

    def measure(stage: str, options: Options) -> Iterator[Result]:
        yield Result(stage, "one", 0.3, "s", 0.2, "rope's", "a note", 0.03, 5)
        if stage == "train":
            yield from map(raising, failures)
        yield Result(stage, "two", float(options.count or 0), "B")

    monkeypatch.setattr(run, "STAGES", ("train", "score"))
    monkeypatch.setattr(run, "_measure", measure)


def raising(error: BaseException) -> Result:
    raise error


def test_a_stage_that_fails_leaves_the_others(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stages(monkeypatch, Failure("the disk is full"))
    result = call("bench", "train", "score", "--out", "out.json", "--count", 7)
    assert result.code == 3
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in result.out.splitlines()]
    assert rows[4][:2] == ["train", "one"] and rows[4][-2:] == ["1.5", "a note"]
    assert [cell.split()[0] for cell in rows[4][2:4]] == ["300.0", "200.0"]
    failed = ["train", "the rest of this stage", "not measured", "", "", "the disk is full"]
    assert rows[5] == failed
    content = read_content(Path("out.json"), "bench")
    assert content["complete"] is False and content["environment"]["stages"] == ["train", "score"]
    lines = content["measurements"]
    assert [line["value"] for line in lines] == [0.3, None, 0.3, 7.0]
    assert lines[0]["ratio"] == pytest.approx(1.5)
    alone = call("bench", "train", "--out", "alone.json")
    assert alone.code == 1 and alone.err == "tape-arith: the disk is full\n"
    values = [line["value"] for line in read_content(Path("alone.json"), "bench")["measurements"]]
    assert values == [0.3, None]  # what was measured before is kept


def test_complete_stages_are_kept_when_the_rest_is_cut_short(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_stages(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run.run(["score", "train"], Options(), Path("out.json"))
    content = json.loads(Path("out.json").read_text())
    assert content["complete"] is False
    assert [line["stage"] for line in content["measurements"]] == ["score", "score"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gen", "did you mean 'generate'?"),
        ("train --pe tape+yarn --quick", "measure tape"),
        ("train --set hiden_size=3 --quick", "did you mean 'hidden_size'?"),
        ("train --lengths 0 --quick", "'trained_digits'"),
        ("score --run runs/x", "holds no run"),
        ("generate --count 0", "--count"),
    ],
)
def test_refused_commands(here: Path, words: str, message: str) -> None:
    result = call("bench", *words.split())
    assert result.code == 2 and message in result.err.splitlines()[-1]
    assert contents(here) == {}


def test_the_command_names_the_machine(here: Path) -> None:
    result = done("bench", "limits", "--quick", "--out", "out/bench.json")
    content = read_content(Path("out/bench.json"), "bench")
    assert content["complete"] is True
    assert {line["stage"] for line in content["measurements"]} == {"limits"}
    heading = result.out.splitlines()[0]
    for fact in ("hardware", "torch", "threads"):
        assert str(content["environment"][fact]) in heading
    assert all(line["name"] in result.out for line in content["measurements"])


def test_stored_results_are_read() -> None:
    stored = sorted((ROOT / "results" / "bench").rglob("*.json"))
    assert stored
    for path in stored:
        content = read_content(path, "bench")
        assert content["complete"] and content["measurements"]
        for line in content["measurements"]:
            ratio = line.pop("ratio")
            assert line["stage"] in STAGES and Result(**line).ratio == ratio
