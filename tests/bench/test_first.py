"""What a sweep measures before its first run."""

import json
from pathlib import Path

import pytest

from tape_arith.arith.bench import first
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.documents import read_content, write_document
from tape_arith.arith.errors import UsageError
from tape_arith.arith.sweeps.sweep import Sweep, folder_of, load_sweep
from tape_arith.models.hardware import detect

TINY = """
preset = "mini"
encodings = ["rope", "tape+yarn", "tape", "nope", "fire", "alibi"]
seeds = [0]
{measure}

[set]
num_layers = 1
hidden_size = 8
num_heads = 1
head_dim = 8
mlp_size = 8
batch_size = 4
trained_digits = 2
tested_digits = 3
num_problems = 1000
"""


def sweep(folder: Path, measure: str = "measure = 3") -> Sweep:
    file = folder / "tiny.toml"
    file.write_text(TINY.format(measure=measure), encoding="utf-8")
    return load_sweep(str(file))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """What is measured, in place of measuring it."""
    calls: list[Options] = []

    def run(stages: tuple[str, ...], options: Options, file: Path) -> bool:
        assert stages == ("ceilings", "attention", "train")
        calls.append(options)
        machine = {"hardware": detect().name}
        file.parent.mkdir(parents=True, exist_ok=True)
        write_document(file, {"complete": True, "environment": machine}, "bench")
        return True

    monkeypatch.setattr(first, "run", run)
    return calls


def test_the_first_encodings_are_measured_as_they_are_trained(
    tmp_path: Path, asked: list[Options]
) -> None:
    file = first.measure_first(sweep(tmp_path), tmp_path)
    assert file == folder_of(sweep(tmp_path), tmp_path) / "bench.json"
    (options,) = asked
    assert [str(name) for name in options.encodings] == ["rope", "tape", "nope", "fire"]
    assert options.preset == "mini" and options.settings["hidden_size"] == "8"
    assert "steps" not in options.settings  # the preset's own
    assert options.seconds == 1.0


def test_what_was_measured_here_is_not_measured_again(tmp_path: Path, asked: list[Options]) -> None:
    first.measure_first(sweep(tmp_path), tmp_path)
    file = first.measure_first(sweep(tmp_path), tmp_path)
    assert len(asked) == 1 and file is not None
    for key, value in (("complete", False), ("environment", {"hardware": "another part"})):
        write_document(file, read_content(file, "bench") | {key: value}, "bench")
        before = len(asked)
        first.measure_first(sweep(tmp_path), tmp_path)
        assert len(asked) == before + 1, key


def test_a_file_that_is_rotten_is_measured_again(tmp_path: Path, asked: list[Options]) -> None:
    file = first.measure_first(sweep(tmp_path), tmp_path)
    assert file is not None
    file.write_text("{", encoding="utf-8")
    first.measure_first(sweep(tmp_path), tmp_path)
    assert len(asked) == 2


def test_a_sweep_that_asks_for_nothing_measures_nothing(
    tmp_path: Path, asked: list[Options]
) -> None:
    assert first.measure_first(sweep(tmp_path, measure=""), tmp_path) is None
    assert not asked


@pytest.mark.parametrize("seconds", ["-1", "3601", "true", "90.0", '"90"'])
def test_only_a_number_of_seconds_is_taken(tmp_path: Path, seconds: str) -> None:
    with pytest.raises(UsageError, match=r"tiny\.toml: 'measure' must be"):
        sweep(tmp_path, measure=f"measure = {seconds}")


@pytest.mark.slow
def test_the_measuring_itself_ends_in_a_file_and_says_nothing_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = first.measure_first(sweep(tmp_path), tmp_path)
    out, err = capsys.readouterr()
    assert file is not None and not out and "measuring first" in err
    content = json.loads(file.read_text("utf-8"))
    stages = {line["stage"] for line in content["measurements"]}
    assert content["complete"] and stages == {"ceilings", "attention", "train"}


def test_what_fails_in_measuring_keeps_no_run_from_being_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*anything: object) -> bool:
        raise RuntimeError("out of resource: shared memory")

    monkeypatch.setattr(first, "run", run)
    first.measure_first(sweep(tmp_path), tmp_path)
    told = capsys.readouterr().err
    assert "not measured: RuntimeError: out of resource: shared memory" in told
