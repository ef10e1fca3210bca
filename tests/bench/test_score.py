"""The stage of scoring: its lines, of random weights and of a run, which it leaves as it was."""

from pathlib import Path

import pytest
import torch

from tape_arith.arith.bench import score as stage
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.bench.score import measure
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.runs.find import existing_run
from tape_arith.models.names.parse import parse
from tests.helpers.small_training import cpu
from tests.helpers.tiny_runs import call, contents, done, settings
from tests.runs.test_user_encodings import READS, write


def test_the_lines_with_random_weights() -> None:
    lines = {line.name: line for line in measure(Options(quick=True))}
    loop = lines["rope: token by token, batches of 3, whole sequence again"]
    one, again = lines["rope: one pass"], lines["rope: one pass, close ones again in float32"]
    assert one.limit == again.limit == loop.value
    assert one.value and loop.value and one.ratio == pytest.approx(one.value / loop.value)
    assert "random weights" in loop.note and "same exact answers on 100.0 % of rows" in loop.note
    assert "the same 12 rows" in one.note and "% of rows again" in again.note
    grid = lines["rope: the 4x4 grid, 5 a cell"]
    rows = lines["rope: rows of the grid"]
    assert grid.value and rows.value == pytest.approx(80 / grid.value)
    assert lines["rope: useful FLOPs of the grid"].ratio


@pytest.mark.parametrize("name", ["tape:start=fourier", "mine.py:Mine"])
def test_weights_of_any_encoding(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that keeps more than parameters, and of somebody else's."""
    monkeypatch.chdir(tmp_path)
    write(READS["a list"])
    lines = list(measure(Options(quick=True, encodings=(parse(name),))))
    assert {line.name.split(": ")[0] for line in lines} == {name}
    if name != "tape:start=fourier":  # a table ends with the preset's tested lengths
        assert lines[-1].value is None and "--lengths 4 measures it" in lines[-1].note
        again = list(measure(Options(quick=True, encodings=(parse(name),), lengths=(4,))))
        assert again[-1].value


def test_a_grid_that_the_time_cuts_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tape_arith.arith.scoring.score.ROWS_A_CHUNK", 1)
    monkeypatch.setattr(stage, "monotonic", iter([0.0, *[0.1] * 2, *[1e9] * 1000]).__next__)
    lines = {line.name: line for line in measure(Options(quick=True))}
    grid = lines["rope: the 4x4 grid, 5 a cell"]
    assert grid.value is None and "the time was up after 32 of 80 rows" in grid.note
    assert lines["rope: rows of the grid"].value


def test_a_run_is_scored_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done("train", "--pe", "nope", *settings())
    before = contents(tmp_path)
    lines = list(measure(Options(quick=True, run=Path("runs/mini/nope/seed-0"))))
    assert contents(tmp_path) == before
    assert {line.name.split(":")[0] for line in lines} == {"nope"}
    assert any("weights of runs/mini/nope/seed-0" in line.note for line in lines)
    told = call("bench", "score", "--run", "runs/mini/nope/seed-0", "--pe", "rope", "--quick")
    assert told.code == 2 and "a run keeps its settings" in told.err
    with pytest.raises(UsageError, match="holds no run"):
        list(measure(Options(quick=True, run=Path("runs/none"))))


def test_the_run_s_own_weights_are_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done("train", "--pe", "rope", "--no-score", *settings())
    options = Options(run=Path("runs/mini/rope/seed-0"))
    (run,) = stage.runs(options, cpu(), tmp_path / "copy")
    there = stage.loaded(existing_run(options.run or Path()), 3, cpu()).state_dict()
    here = stage.loaded(run.folder, 3, cpu()).state_dict()
    random = decoder_for(run.folder.record().config, parse("rope"), 0).state_dict()
    assert all(torch.equal(here[key], there[key]) for key in there)
    assert not all(torch.equal(here[key], random[key]) for key in random)
