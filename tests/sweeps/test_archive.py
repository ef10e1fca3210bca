"""What is scored goes into an archive at once, and another machine goes on from it."""

import os
import signal
import tarfile
from pathlib import Path

import pytest

from tape_arith.arith.sweeps import run_sweep
from tests.helpers.child_processes import start, wait, wait_until
from tests.helpers.sweeps import jobs_of, sweep_file
from tests.helpers.tiny_runs import done, settings

ARCHIVE = Path("lab.tgz")
RESULTS = ("run.json", "metrics.jsonl", "grid.json")


def held(archive: Path) -> dict[str, bytes]:
    """Return the files of an archive by name."""
    with tarfile.open(archive) as opened:
        files = ((member.name, opened.extractfile(member)) for member in opened)
        return {name: file.read() for name, file in files if file}


def results(pe: str) -> dict[str, bytes]:
    """Return what an archive is to hold of a run."""
    (folder,) = Path("runs").glob(f"**/mini/{pe}/seed-0")
    return {f"mini/{pe}/seed-0/{name}": (folder / name).read_bytes() for name in RESULTS}


@pytest.mark.slow
def test_another_machine_goes_on_where_the_first_one_went(here: Path) -> None:
    sweep = ["sweep", sweep_file("rope,nope,fire", steps=400), "--slots", "1", "--pack", ARCHIVE]
    process = start(sweep)
    wait_until(lambda: ARCHIVE.exists() and Path("runs/mine/mini/nope/seed-0/run.json").exists())
    os.killpg(process.pid, signal.SIGKILL)
    wait(process)
    first = results("rope")
    assert held(ARCHIVE) == first  # nothing of a run that is not scored

    Path("runs").rename("gone")
    with tarfile.open(ARCHIVE) as opened:
        opened.extractall("runs/mine", filter="data")
    assert set(jobs_of(done(*sweep, "--json")).values()) == {"trained", "scored"}
    assert held(ARCHIVE) == {**first, **results("nope"), **results("fire")}
    assert not Path("runs/mine/mini/rope/seed-0/weights").exists()  # it was not trained again


def test_each_grid_renews_the_archive(here: Path) -> None:
    done("run", "--pe", "rope,rope+yarn", *settings(), "--no-curves", "--pack", ARCHIVE)
    expected = results("rope")
    yarn = Path("runs/mini/rope/seed-0/grid+yarn.json")
    assert held(ARCHIVE) == {**expected, f"mini/rope/seed-0/{yarn.name}": yarn.read_bytes()}
    done("run", "--pe", "rope,nope", *settings(), "--no-curves", "--pack", ARCHIVE)
    assert held(ARCHIVE).keys() >= results("nope").keys() | expected.keys()


def test_an_archive_that_cannot_be_written_ends_no_sweep(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(run_sweep, "pack", full)
    result = done("sweep", sweep_file("rope,nope"), "--slots", "1", "--pack", ARCHIVE)
    assert result.err.count("note: lab.tgz is not renewed: no space left on device") == 2
    assert all(Path("runs/mine/mini", pe, "seed-0/grid.json").exists() for pe in ("rope", "nope"))
