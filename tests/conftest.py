"""Torch on the CPU with one thread: the tests compare bits, and two threads that share an
operation wait for each other beside other work. A GPU is for the tests that ask for one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks; subprocesses inherit it

import pytest
import torch

from tape_arith.models.hardware import configure_process
from tests.helpers.tiny_runs import done, settings


def pytest_configure() -> None:
    configure_process(1)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch with one thread, as `configure_process` leaves it; then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are empty files: drawing one takes longer than a tiny run."""

    def savefig(figure: object, path: Path, **_: object) -> None:
        path.touch()

    monkeypatch.setattr("tape_arith.arith.figures.style.Page.savefig", savefig)


@pytest.fixture
def uncomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`heatmap` draws nothing, but names the file, and so the encodings, all the same."""
    for function in ("heatmap.compose", "style.save"):
        monkeypatch.setattr(f"tape_arith.arith.figures.{function}", lambda *_, **__: None)


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
