"""A disk that refuses any one write: one line and exit code 1, nothing half-written, no file lost,
and the same command continues when there is room."""

import errno
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tape_arith.arith.training.checkpoints import Checkpoints
from tape_arith.arith.training.trainer import Trainer
from tests.helpers.child_processes import COMMAND_LINE
from tests.helpers.stored_results import assert_whole, results
from tests.helpers.sweeps import sweep_file
from tests.helpers.tiny_runs import call, done, settings
from tests.helpers.watched_writes import refusing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="sees writes through /proc"),
]
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
TRIALS = 12
RUN = "runs/mini/rope/seed-0"


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a scored run. Not to be changed."""
    folder = tmp_path_factory.mktemp("scored")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done("train", "--pe", "rope", *settings())
        sweep_file("rope")
    return folder


@pytest.fixture(autouse=True)
def saved_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "save_every", 2)
    monkeypatch.setattr(Trainer, "log_every", 1)


@dataclass(frozen=True)
class Command:
    """A command, whether it needs the scored run, and what it moves away and writes anew."""

    argv: tuple[object, ...]
    needs_run: bool = True
    moves: str = ""


COMMANDS = {
    "generate": Command(("generate", *settings(), "--workers", 1, "--out", "d"), False),
    "text": Command(("generate", *settings(), "--format", "text", "--out", "d.txt"), False),
    "train": Command(("train", "--pe", "rope", *settings()), False),
    "extend": Command(("train", RUN, "--steps", 8), moves=f"{RUN}/grid.json"),
    "score": Command(("score", RUN, "--with", "yarn")),
    "sweep": Command(("sweep", "mine.toml"), False),
    "export": Command(("export", RUN, "--out", "exported", "--fresh")),
    "heatmap": Command(("heatmap", "--compare", "rope", "--out", "f.png")),
    "leaderboard": Command(("leaderboard", "--out", "b.md")),
    "report": Command(("report", "--out", "r.html")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_one_write_is_refused(
    tmp_path: Path, scored: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, folder = COMMANDS[name], tmp_path / "place"

    def prepare() -> set[str]:
        """The names of the files that the command begins with, and must keep."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(scored, folder)
        if not command.needs_run:
            shutil.rmtree(folder / "runs")
        monkeypatch.chdir(folder)
        return results(folder).keys() - {command.moves}

    prepare()
    with refusing(folder, 0) as usual:
        done(*command.argv)
    expected = results(folder)
    forgiven = set()
    for number in sorted({1 + share * usual.count // TRIALS for share in range(TRIALS)}):
        before = prepare() & expected.keys()
        with refusing(folder, number, ERRORS[number % len(ERRORS)]) as refusal:
            result = call(*command.argv)
        trial = f"{refusal.operation} of {refusal.path}: {result.err}"
        if result.code == 0:
            forgiven.add(refusal.operation)
        else:
            last = result.err.splitlines()[-1]
            assert result.code == 1 and last.startswith("tape-arith: "), trial
            assert result.err.count("tape-arith: ") == 1, trial
            assert any(name in last for name in refusal.names()), trial
        assert before <= results(folder).keys(), trial
        assert_whole(folder)
        done(*command.argv)
        if refusal.operation != "remove":  # what could not be removed is still there
            assert results(folder) == expected, trial
    # Tidying up may be refused, and that a folder is there already; nothing that is to be kept.
    assert forgiven <= {"remove", "rmdir", "mkdir"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
def test_no_room_for_messages(tmp_path: Path) -> None:
    """A training that cannot print ends with exit code 1 and continues where it can."""
    argv = [*COMMAND_LINE, "train", "--pe", "rope", *settings()]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(argv, cwd=tmp_path, stdout=full, stderr=full)
    assert ended.returncode == 1
    assert_whole(tmp_path)
    again = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
