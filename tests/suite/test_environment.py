"""What a run says it ran on."""

import tomllib
from pathlib import Path

import pytest

from arith.suite import version

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_that_of_the_code_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable installation notes the version of the day it was made."""
    monkeypatch.setattr(version, "version", {"tape-arith": "0.0.1"}.__getitem__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version.own_version() == project["version"] != "0.0.1"
    monkeypatch.setattr(version, "ROOT", tmp_path)  # as it is where it was installed
    assert version.own_version() == "0.0.1"
    assert version.commit() is None
