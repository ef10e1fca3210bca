"""Runs below a folder, those that cannot be read included."""

import os
from pathlib import Path

import pytest

from tests.helpers.tiny_runs import call, done


def test_every_run_that_cannot_be_read_is_named_in_one_line(here: Path) -> None:
    folder = Path("runs/mini")
    names = ("loop", "nowhere", "pipe", "folder", "empty", "itself", "none")
    files = {name: folder / name / "seed-0" / "run.json" for name in names}
    for file in files.values():
        file.parent.mkdir(parents=True)
    files["loop"].symlink_to("run.json")
    files["nowhere"].symlink_to("gone.json")
    os.mkfifo(files["pipe"])
    files["folder"].mkdir()
    files["empty"].touch()
    files["itself"].parent.rmdir()
    files["itself"].parent.symlink_to("seed-0")
    (folder / "round").symlink_to("round")  # a loop instead of a folder of runs
    output = done("list")
    lines = output.out.partition("\nRUNS\n")[2].splitlines()
    listed = [line.split(":")[0].strip() for line in lines]
    assert listed == [str(files[name].parent) for name in sorted(names) if name != "none"]
    assert all(" unreadable:" in line for line in lines)
    (note,) = output.err.splitlines()
    assert "runs/mini/round" in note
    for command in ("leaderboard", "curves"):
        err = call(command, "--pe", "all").err
        for name in names:
            assert err.count(str(files[name])) == (name != "none"), (command, name)


def test_a_folder_that_may_not_be_listed_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("runs/mini").mkdir(parents=True)
    listdir = os.listdir

    def locked(path: Path) -> list[str]:
        if Path(path).name == "mini":
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", locked)
    assert "runs/mini: Permission" in done("list").err
