"""The engines by name, and what is said of those that cannot be used."""

from pathlib import Path

import pytest

from tape_arith.arith.sweeps.engines import engine_names, parse_engine, ray, remote_engine
from tests.helpers.sweeps import sweep_file
from tests.helpers.tiny_runs import refused, untouched


def test_engines_and_their_options_are_read_from_the_files(here: Path) -> None:
    assert engine_names() == ["local", "ray", "slurm"]
    assert str(parse_engine("slurm:time=1-02:00:00:gpus=1")) == "slurm:gpus=1:time=1-02:00:00"
    assert parse_engine("ray:address=h:1").options == (("address", "h:1"),)
    assert remote_engine("local", None, Path()) is None
    file = sweep_file("rope")
    with untouched(here):
        for engine, words in {
            "slrum": "did you mean 'slurm'?",
            "local:slots=2": "unknown option of local 'slots'",
            "slurm:partitoin=gpu": "did you mean 'partition'?",
            "slurm:gpus=some": "gpus must be a whole number, not 'some'",
        }.items():
            assert words in refused("sweep", file, "--engine", engine)


def test_an_engine_that_is_not_installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "nowhere")
    assert "no `sbatch` here" in refused("sweep", sweep_file("rope"), "--engine", "slurm")
    monkeypatch.setattr(ray, "find_spec", lambda name: None)
    message = refused("sweep", "mine.toml", "--engine", "ray", "--dry-run")
    assert "pip install 'tape-arith[ray]'" in message
