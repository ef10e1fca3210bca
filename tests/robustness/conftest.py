"""A working folder with one file of every kind, made once and copied for each test."""

import shutil
from pathlib import Path

import pytest

from tests.helpers.sweeps import sweep_file
from tests.helpers.tiny_runs import done, settings


@pytest.fixture(scope="session")
def original_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scored run, a dataset and a sweep file. Not to be changed."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sweep_file("rope")
        done("train", "--pe", "rope", *settings())
        done("generate", *settings(), "--out", "set")
    return folder


@pytest.fixture
def world(original_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a copy of it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(original_world, tmp_path, dirs_exist_ok=True)
    return tmp_path
