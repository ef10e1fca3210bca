"""Runs to which something has happened, once for all lines that are typed there."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def prepared_runs(
    request: pytest.FixtureRequest, trained: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A working folder with a copy of `trained`, after a preparation; refusals leave it so."""
    folder = tmp_path_factory.mktemp("prepared")
    shutil.copytree(trained, folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        request.param()
        yield
