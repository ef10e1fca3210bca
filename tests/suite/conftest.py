"""One small comparison, trained once and copied for each test that wants it."""

import shutil
from pathlib import Path

import pytest

from tests.suite.tiny import done, settings


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `data` and `runs` of rope, fire and tape+yarn. Not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done("run", "--pe", "rope,fire,tape+yarn", "--seeds", "0,1", *settings())
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def comparison(trained: Path, here: Path) -> Path:
    """A working folder with a copy of `trained`."""
    shutil.copytree(trained, here, dirs_exist_ok=True)
    return here
