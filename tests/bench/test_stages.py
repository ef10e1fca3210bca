"""Which stages there are, how they are run together, and what the command refuses."""

import ast
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from tape_arith.arith.bench import running, stages
from tape_arith.arith.bench.measure import Measurement, Options
from tape_arith.arith.errors import Failure, UsageError
from tests.helpers.tiny_runs import call, contents, done, refused

FAST = ("ceilings",)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_that_measures_is_a_stage(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "mine.py").write_text('"""Mine."""\n\n\ndef measure(options):\n    yield\n')
    (here / "frame.py").write_text('"""Not one."""\n\n\ndef measured():\n    pass\n')
    (here / "ceilings.py").write_text('"""The limits."""\n\n\ndef measure(options):\n    yield\n')
    (here / "a.py").write_text('"""First."""\n\n\ndef measure(options):\n    yield\n')
    monkeypatch.setattr(stages, "FOLDER", here)
    assert stages.stages() == ["ceilings", "a", "mine"]
    assert stages.chosen(["mine", "a", "mine"]) == ["mine", "a"]
    assert stages.chosen(["mine", "all"]) == ["ceilings", "a", "mine"]
    with pytest.raises(UsageError, match="unknown stage 'mime': did you mean 'mine'"):
        stages.chosen(["mime"])


def test_the_issue_s_stages_are_there() -> None:
    wanted = {"ceilings", "generate", "train", "score", "attention", "peers"}
    assert wanted <= set(stages.stages())


def read_of(name: str, tree: ast.AST) -> set[str]:
    """The attributes of `name` that code reads."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name
    }


@pytest.mark.parametrize("stage", stages.stages())
def test_a_stage_says_what_it_takes(stage: str) -> None:
    there = {field.name for field in fields(Options)}
    module = stages.module(stage)
    assert there >= module.TAKES and stage == module.STAGE
    # What it reads of the options, by name or by a method of theirs, is what it says, or common.
    read = read_of("options", ast.parse((stages.FOLDER / f"{stage}.py").read_text("utf-8")))
    for node in ast.walk(ast.parse(inspect.getsource(Options))):
        if isinstance(node, ast.FunctionDef) and node.name in read:
            read |= read_of("self", node)
    named = read & there
    assert named <= module.TAKES | running.COMMON


def stand_in(
    monkeypatch: pytest.MonkeyPatch, **found: Callable[[Options], Iterator[Measurement]]
) -> None:
    """Stages that measure nothing, in place of the folder's."""
    modules = {
        name: SimpleNamespace(TAKES=frozenset({"count"}), measure=measure)
        for name, measure in found.items()
    }
    monkeypatch.setattr(stages, "stages", lambda: list(modules))
    monkeypatch.setattr(stages, "module", modules.__getitem__)


def good(options: Options) -> Iterator[Measurement]:
    yield Measurement("good", "one", float(options.count or 0), "B")
    yield Measurement("good", "two", 2.0, "B")


def bad(options: Options) -> Iterator[Measurement]:
    yield Measurement("bad", "one", 1.0, "B")
    raise Failure("the disk is full")


def test_a_stage_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, bad=bad, good=good)
    result = call("bench", "--json", "out.json", "--count", 7)
    assert result.code == 3
    assert "not measured" in result.out and "the disk is full" in result.out
    content = json.loads(Path("out.json").read_text())
    assert content["complete"] is False
    lines = [(line["stage"], line["name"], line["value"]) for line in content["measurements"]]
    assert lines == [
        ("bad", "one", 1.0),
        ("bad", "the rest of this stage", None),
        ("good", "one", 7.0),
        ("good", "two", 2.0),
    ]
    assert content["environment"]["stages"] == ["bad", "good"]
    assert content["environment"]["cores"] >= 1


def test_a_stage_alone_fails_as_a_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, bad=bad, good=good)
    result = call("bench", "bad")
    assert result.code == 1 and result.err == "tape-arith: the disk is full\n"


def test_what_is_done_is_kept_when_the_rest_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(options: Options) -> Iterator[Measurement]:
        yield Measurement("killed", "one", 1.0, "B")
        raise KeyboardInterrupt

    stand_in(monkeypatch, good=good, killed=killed)
    with pytest.raises(KeyboardInterrupt):
        running.run(["all"], Options(), Path("out.json"))
    content = json.loads(Path("out.json").read_text())
    assert content["complete"] is False
    assert [line["stage"] for line in content["measurements"]] == ["good", "good"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("gen",), "unknown stage 'gen': did you mean 'generate'?"),
        (("generate", "--pe", "rope"), "generate would drop --pe"),
        (("generate", "--set", "trained_digits=2", "--run", "x"), "would drop --run"),
        (("train", "--count", "3"), "train would drop --count"),
        (("train", "score", "--dir", "x"), "train, score would drop --dir"),
        (("train", "--preset", "minni"), "did you mean 'mini'?"),
        (("train", "--pe", "tapee"), "did you mean 'tape'?"),
        (("train", "--pe", "tape+yarn", "--quick"), "measure tape"),
        (("train", "--set", "hidden"), "--set takes key=value"),
        (("train", "--set", "hiden_size=3", "--quick"), "did you mean 'hidden_size'?"),
        (("train", "--lengths", "a"), "--lengths takes whole numbers"),
        (("train", "--lengths", "0", "--quick"), "trained_digits must be 1 or more"),
        (("train", "--seconds", "0"), "--seconds"),
        (("train", "--attention", "flash", "--quick"), "unknown attention backend 'flash'"),
        (("score", "--run", "runs/x"), "runs/x holds no run"),
        (("generate", "--count", "0"), "--count"),
    ],
)
def test_what_the_command_refuses(here: Path, words: tuple[str, ...], told: str) -> None:
    result = call("bench", *words)
    assert result.code == 2
    assert told in result.err.splitlines()[-1]
    assert contents(here) == {}


def test_an_option_that_nobody_takes_is_refused_before_anything_runs() -> None:
    assert "would drop" in refused("bench", "ceilings", "--pe", "rope")


def test_the_command_keeps_its_figures(here: Path) -> None:
    result = done("bench", *FAST, "--quick", "--json", "out/bench.json", "--dir", "there")
    content = json.loads(Path("out/bench.json").read_text())
    assert content["complete"] is True
    assert {line["stage"] for line in content["measurements"]} == set(FAST)
    assert content["environment"]["commit"] is None or content["environment"]["commit"]
    for line in content["measurements"]:
        assert line["name"] in result.out
        assert line["value"] > 0 and line["unit"]
        if line["limit"] is not None:
            assert line["ratio"] == pytest.approx(line["value"] / line["limit"])
    assert list(Path("there").iterdir()) == []
