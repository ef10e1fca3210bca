"""Stages run together: the table, the JSON, and what the command refuses."""

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tape_arith.arith.bench import STAGES, run
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.errors import Failure
from tape_arith.arith.files import read_content
from tape_arith.arith.machine import ROOT
from tests.helpers.tiny_runs import call, contents, done

TIMED = Result("train", "rope: step", 0.3, "s", 0.2, "rope's", "a note", 0.03, 5)
MISSING = Result.missing("train", "rope: MFU", "FLOP/s", "there is no GPU")
RESULTS = [TIMED, MISSING]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0 s"),
        (0.0000123, "s", "12.3 µs"),
        (0.0123, "s", "12.3 ms"),
        (1500.0, "s", "1,500 s"),
        (999.0, "B", "999 B"),
        (1.5e9, "B/s", "1.5 GB/s"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (41_234.0, "tokens/s", "41.2 k tokens/s"),
        (0.5, "rows/s", "0.5 rows/s"),
        (None, "FLOP/s", "not measured"),
    ],
)
def test_values_with_their_units(value: float | None, unit: str, text: str) -> None:
    assert run.format_value(value, unit) == text


def test_the_plain_table_shows_each_result_before_the_next_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = run.show(iter(RESULTS), "this machine")
    next(shown)
    first = capsys.readouterr().out
    assert first.startswith("this machine\n") and "rope: step" in first and "MFU" not in first
    assert [part.strip() for part in first.splitlines()[-1].strip("|").split("|")] == [
        *("train", "rope: step", "300 ms ±10%", "200 ms rope's", "1.5", "a note")
    ]
    list(shown)
    rows = first.splitlines()[2:] + capsys.readouterr().out.splitlines()
    assert len(rows) == 4 and all(row.count("|") == len(run.COLUMNS) + 1 for row in rows)


def test_a_terminal_gets_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    assert list(run.show(RESULTS, "this machine")) == RESULTS
    shown = capsys.readouterr().out
    for text in (*run.COLUMNS, *run.cells(TIMED), "not measured", "this machine"):
        assert text in shown


def test_the_json(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.json"
    run.write_results(path, RESULTS, {"torch": "2"}, complete=False)
    content = read_content(path, "bench")
    assert content["complete"] is False and content["environment"] == {"torch": "2"}
    timed, missing = content["measurements"]
    assert Result(**{key: timed[key] for key in timed if key != "ratio"}) == TIMED
    assert timed["ratio"] == pytest.approx(1.5)
    assert missing["value"] is None and missing["ratio"] is None
    assert missing["note"] == "there is no GPU"
    with pytest.raises(Failure, match="cannot write"):
        run.write_results(path / "below-a-file.json", RESULTS, {}, complete=True)


def read_attributes(name: str, tree: ast.AST) -> set[str]:
    """The attributes of `name` that code reads."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name
    }


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_declares_the_options_that_it_reads(stage: str) -> None:
    module = run.load_stage(stage)
    known = {field.name for field in fields(Options)}
    assert known >= module.OPTIONS and stage == module.STAGE
    read = read_attributes("options", ast.parse(inspect.getsource(module)))
    methods = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(Options)))
        if isinstance(node, ast.FunctionDef)
    ]
    for _ in methods:  # a method may call another one
        read |= {a for node in methods if node.name in read for a in read_attributes("self", node)}
    assert read & known <= module.OPTIONS | run._COMMON_OPTIONS


def replace_stages(
    monkeypatch: pytest.MonkeyPatch, **stages: Callable[[Options], Iterator[Result]]
) -> None:
    """Stages that measure nothing, in place of ours."""
    modules: dict[str, Any] = {
        name: SimpleNamespace(OPTIONS=frozenset({"count"}), measure=measure)
        for name, measure in stages.items()
    }
    monkeypatch.setattr(run, "STAGES", tuple(modules))
    monkeypatch.setattr(run, "load_stage", modules.__getitem__)


def good(options: Options) -> Iterator[Result]:
    yield Result("good", "one", float(options.count or 0), "B")
    yield Result("good", "two", 2.0, "B")


def bad(options: Options) -> Iterator[Result]:
    yield Result("bad", "one", 1.0, "B")
    raise Failure("the disk is full")


def test_a_stage_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stages(monkeypatch, bad=bad, good=good)
    result = call("bench", "--json", "out.json", "--count", 7)
    assert result.code == 3
    assert "not measured" in result.out and "the disk is full" in result.out
    content = json.loads(Path("out.json").read_text())
    assert content["complete"] is False and content["environment"]["stages"] == ["bad", "good"]
    lines = [(line["stage"], line["name"], line["value"]) for line in content["measurements"]]
    assert lines == [
        ("bad", "one", 1.0),
        ("bad", "the rest of this stage", None),
        ("good", "one", 7.0),
        ("good", "two", 2.0),
    ]
    alone = call("bench", "bad")
    assert alone.code == 1 and alone.err == "tape-arith: the disk is full\n"


def test_what_is_measured_is_kept_when_the_rest_is_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(options: Options) -> Iterator[Result]:
        yield Result("killed", "one", 1.0, "B")
        raise KeyboardInterrupt

    replace_stages(monkeypatch, good=good, killed=killed)
    with pytest.raises(KeyboardInterrupt):
        run.run(["all"], Options(), Path("out.json"))
    content = json.loads(Path("out.json").read_text())
    assert content["complete"] is False
    assert [line["stage"] for line in content["measurements"]] == ["good", "good"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gen", "unknown stage 'gen': did you mean 'generate'?"),
        ("generate --pe rope", "generate would drop --pe"),
        ("train score --dir x", "train, score would drop --dir"),
        ("limits --no-compile", "limits would drop --compile"),
        ("train --preset minni", "did you mean 'mini'?"),
        ("train --pe tapee", "did you mean 'tape'?"),
        ("train --pe tape+yarn --quick", "measure tape"),
        ("train --set hiden_size=3 --quick", "did you mean 'hidden_size'?"),
        ("train --lengths 0 --quick", "trained_digits must be 1 or more"),
        ("train --attention flash --quick", "unknown attention backend 'flash'"),
        ("score --run runs/x", "runs/x holds no run"),
        ("generate --count 0", "--count"),
    ],
)
def test_what_the_command_refuses(here: Path, words: str, message: str) -> None:
    result = call("bench", *words.split())
    assert result.code == 2
    assert message in result.err.splitlines()[-1]
    assert contents(here) == {}


def test_the_command_says_where_it_measured(here: Path) -> None:
    result = done("bench", "limits", "--quick", "--json", "out/bench.json", "--dir", "there")
    content = read_content(Path("out/bench.json"), "bench")
    assert content["complete"] is True
    assert {line["stage"] for line in content["measurements"]} == {"limits"}
    heading = result.out.splitlines()[0]
    for fact in ("hardware", "torch", "threads"):
        assert str(content["environment"][fact]) in heading
    for line in content["measurements"]:
        assert line["name"] in result.out


def test_the_stored_results_are_of_stages_that_there_are() -> None:
    stored = sorted((ROOT / "results" / "bench").rglob("*.json"))
    assert stored
    for path in stored:
        content = read_content(path, "bench")
        assert content["complete"] and content["measurements"]
        for line in content["measurements"]:
            ratio = line.pop("ratio")
            assert line["stage"] in STAGES and Result(**line).ratio == ratio
