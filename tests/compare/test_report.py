"""The content of a report: facts of runs, commands that repeat them, and left-out runs."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from tape_arith.arith.compare.report import collect
from tape_arith.arith.compare.selection import Selection
from tape_arith.arith.files import sha256
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.runs.run import Run
from tests.helpers.documents import edit
from tests.helpers.pages import Page, data
from tests.helpers.tiny_runs import done, refused, settings

RUNS = Path("runs")


def test_the_command_writes_one_page(comparison: Path) -> None:
    result = done("report")
    assert result.out == "runs/mini/report.html\n" and result.err == ""
    text = (comparison / "runs/mini/report.html").read_text()
    page, typed = data(text), {"FIRE": "fire", "RoPE": "rope", "TAPE + YaRN": "tape+yarn"}
    assert sorted(e["name"] for e in page["encodings"]) == sorted(typed)
    for shown in page["encodings"]:
        name, _, added = typed[shown["name"]].partition("+")
        # Above its map stands the name to type, which may break at a plus.
        assert f"<code>{name}{'<wbr>+' * bool(added)}{added}</code></h4>" in text
        for seed in shown["choices"]["mean"]["seeds"]:
            folder = comparison / f"runs/mini/{name}/seed-{seed}"
            exact = Grid.load(folder / f"grid{'+' * bool(added)}{added}.json").exact
            assert np.array_equal(shown["choices"][str(seed)]["exact"], exact.ravel())
    seeds = {curve["encoding"]: len(curve["loss"]["seeds"]) for curve in page["curves"]}
    assert seeds == {"FIRE": 2, "RoPE": 2, "TAPE": 2}
    assert done("report", "--out", "elsewhere/x.html").out == "elsewhere/x.html\n"


def test_facts_are_those_of_the_files(comparison: Path) -> None:
    folder = Run(comparison / "runs/mini/fire/seed-1")
    run = next(r for r in collect(Selection(RUNS)).runs if (r.encoding, r.seed) == ("fire", 1))
    (machine,) = json.loads(folder.record_file.read_text())["machines"]
    for key in ("commit", "torch", "hardware", "dtype", "attention", "tape_arith"):
        assert run.facts[key.replace("_", "-")] == str(machine[key] or "")
    grid = Grid.load(folder.path / "grid.json")
    config = folder.record().config
    assert run.facts["configuration"] == config.sha256 == grid.budget.config_sha256
    assert run.facts["evaluation set"] == grid.evaluation.sha256
    assert run.facts["task"] == f"{config.task}, version {folder.record().task_version}"
    assert run.folder == "mini/fire/seed-1" and run.recorded == machine["command"]
    assert run.config == config.as_dict()


def test_the_commands_make_the_runs_again(
    comparison: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("train", "runs/mini/tape/seed-1", "--steps", 6)
    for seed in (0, 1):
        for name in ("fire", "rope"):
            shutil.rmtree(comparison / f"runs/mini/{name}/seed-{seed}")
    shutil.rmtree(comparison / "runs/mini/tape/seed-0")
    done("score", "runs/mini/tape/seed-1", "--with", "yarn")
    (run,) = collect(Selection(RUNS)).runs
    lines = [shlex.split(line) for line in run.commands]
    assert [line[:2] for line in lines] == [["tape-arith", "train"]] * 2 + [["tape-arith", "score"]]
    assert "trained_digits=2" in lines[0]  # or the next minutes are spent on all of mini
    again = tmp_path / "again"
    again.mkdir()
    monkeypatch.chdir(again)
    for line in lines:
        done(*line[1:])
    for name in ("grid.json", "grid+yarn.json"):
        first, second = (
            Grid.load(root / "runs/mini/tape/seed-1" / name) for root in (comparison, again)
        )
        assert first.budget == second.budget and first.budget.steps == 6
        assert np.array_equal(first.exact, second.exact)
        assert np.array_equal(first.right_sum, second.right_sum)


@pytest.mark.parametrize("repeated", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_commands_make_a_run_that_began_from_another(
    repeated: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeat the source first, with its own settings."""
    done("train", "--pe", "rope", "--seed", 1, *settings(steps=2, num_layers=2), "--no-score")
    source = "runs/mini/rope/seed-1"
    done("train", source, "--steps", 3, "--no-score")
    name, origin = "tape@only-positional-from=rope", ["--init-from", source, "--only-positional"]
    done("train", "--pe", "tape", *origin, "--set", "steps=4")
    (run,) = collect(Selection(RUNS)).runs
    assert run.encoding == name
    lines = [shlex.split(line) for line in run.commands]
    assert [line[:4] for line in lines] == [
        ["tape-arith", "train", "--pe", "rope"],
        ["tape-arith", "train", source, "--steps"],
        ["tape-arith", "train", "--pe", "tape"],
    ]
    assert lines[2][4:7] == origin
    with monkeypatch.context() as patch:
        (again := here / "again").mkdir()
        patch.chdir(again)
        for line in lines if repeated else ():
            done(*line[1:])
    for path in (f"mini/{name}/seed-1", "mini/rope/seed-1") if repeated else ():
        first, second = (Run(root / RUNS / path) for root in (here, again))
        assert first.record().config == second.record().config
        assert sha256(first.final) == sha256(second.final)
    # Nobody knows how the weights came about that it began with.
    edit(here / source / "run.json", seed=2)
    assert collect(Selection(RUNS)).runs[0].commands == []
    shutil.rmtree(here / source)
    assert collect(Selection(RUNS)).runs[0].commands == []


def test_runs_that_must_not_be_compared_are_left_out_and_named(comparison: Path) -> None:
    done("train", "--pe", "nope", *settings(steps=5))
    done("train", "--pe", "alibi", "--no-score", *settings())
    report = collect(Selection(RUNS))
    assert "nope" not in {panel.name for panel in report.panels}
    left = dict(report.board.left_out)
    assert left.keys() == {"nope seed 0", "alibi seed 0"}
    done("report")
    page = Page((comparison / "runs/mini/report.html").read_text())
    for runs, why in left.items():
        assert runs in page.texts and any(why in text for text in page.texts)
    assert "steps" in refused("report", "--compare", "rope,nope")


def test_some_of_the_encodings_and_their_costs(comparison: Path) -> None:
    report = collect(Selection(RUNS, "rope,fire"))
    assert sorted(panel.name for panel in report.panels) == ["fire", "rope"]
    assert {run.encoding for run in report.runs} == {"fire", "rope"}
    options = {"report", "--preset", "mini", "--compare", "rope,fire"}
    assert set(report.command.split()) == {"tape-arith", *options}
    page = comparison / "runs/mini/report.html"
    done("report", "--compare", "rope,fire")
    text = page.read_text()
    assert "2 of" in text
    assert not any(name in text for name in ("FLOPs", "tokens/s", "--costs"))
    done("report", "--costs")
    head, *rows = Page(page.read_text()).rows
    # No MFU: a CPU has no datasheet.
    assert [cell.split()[0] for cell in head[-4:]] == ["parameters", "FLOPs", "loss", "tokens/s"]
    assert "mini --costs" in page.read_text()
    assert len([row for row in rows if len(row) == len(head)]) == 3


def test_broken_files_beside_a_grid_cost_only_their_facts(comparison: Path) -> None:
    folder = comparison / "runs/mini/fire/seed-0"
    edit(folder / "run.json", machines=[], seconds={})
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text(
        "\n".join([lines[0].replace('"loss": ', '"loss": "x", "was": '), *lines[1:]]) + "\n"
    )
    sibling = comparison / "runs/mini/fire/seed-1"
    (sibling / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\nnot json\n')
    (sibling / "run.json").write_text("")
    first, second = (run for run in collect(Selection(RUNS)).runs if run.encoding == "fire")
    assert first.facts["commit"] == first.facts["trained in"] == "" and first.recorded is None
    assert second.facts["configuration"] == "" and not second.commands
    done("report")
    assert "not recorded" in (comparison / "runs/mini/report.html").read_text()
