"""A disk that is full, broken or read-only under any write: one line and exit code 1, what was
there is still good, nothing half-written stays, and the command goes on when the disk is well."""

import subprocess
import sys
from pathlib import Path

import pytest

from arith.suite import runs
from tests.robustness.faults import BROKEN, FULL, READ_ONLY, refusing
from tests.robustness.processes import ROOT
from tests.robustness.readers import leftovers, read_all
from tests.robustness.writers import WRITERS, assert_told, both, prepared
from tests.suite.tiny import call, contents, done, settings

ERRORS = (FULL, BROKEN, READ_ONLY)


@pytest.fixture(scope="session")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a scored run. Not to be changed."""
    folder = tmp_path_factory.mktemp("scored")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done("train", "--pe", "rope", *settings())
    return folder


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny training saves twice on its way."""
    monkeypatch.setattr(runs, "SAVE_EVERY", 2)
    monkeypatch.setattr(runs, "LOG_EVERY", 1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="sees writes through /proc")
@pytest.mark.parametrize("name", WRITERS)
def test_any_write_may_be_refused(
    tmp_path: Path, scored: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, place = WRITERS[name], tmp_path / "place"
    folder = prepared(place, writer, scored)
    monkeypatch.chdir(folder)
    before = set(contents(folder))
    with refusing(folder, 0, 0) as usual:
        assert both(writer).code == 0
    kept = before & set(contents(folder)) - writer.moves
    right, done_without = writer.result(folder), set[tuple[str, str]]()
    assert usual.count > 3
    for count in range(1, usual.count + 1, writer.stride):
        folder = prepared(place, writer, scored)
        number = ERRORS[count % len(ERRORS)]
        with refusing(folder, count, number) as refusal:
            result = both(writer)
        if result.code != 0:
            assert_told(result, refusal.names(), at=f"{refusal.what} of {refusal.path}")
        else:
            done_without.add((refusal.what, Path(refusal.path).name))
        assert kept <= set(contents(folder)), f"{refusal.what} of {refusal.path}"
        left = set(leftovers(folder)) - refusal.kept(folder)
        assert not left, f"{refusal.what} of {refusal.path}"
        read_all(folder)
        again = both(writer)
        assert again.code == 0, f"after {refusal.what} of {refusal.path}: {again.err}"
        assert writer.result(folder) == right, f"after {refusal.what} of {refusal.path}"
        assert leftovers(folder) == []
    # Tidying up may be refused, and that a folder is there already; nothing that is to be kept.
    assert {what for what, _ in done_without} <= {"remove", "rmdir", "mkdir"}, done_without


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
def test_no_room_for_what_a_job_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of a sweep's processes, which write them through descriptors of their own."""
    prepared(tmp_path, WRITERS["sweep"], tmp_path)
    sweep = ("sweep", "refused.toml", "--slots", 2)
    monkeypatch.chdir(tmp_path)
    logs = Path("runs/sweeps/refused/logs")
    logs.mkdir(parents=True)
    log = logs / "train.refused.mini.rope.seed-0.log"
    log.symlink_to("/dev/full")
    assert_told(call(*sweep), [str(log)], at="a full device")
    log.unlink()
    assert call(*sweep).code == 0 and "rope" in log.read_text()
    read_all(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
def test_no_room_for_what_a_training_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, exit code 1, and goes on where it can speak."""
    monkeypatch.chdir(tmp_path)
    argv = [sys.executable, str(ROOT / "cli.py"), "train", "--pe", "rope", *settings()]
    with open("/dev/full", "wb") as full:
        assert subprocess.run(argv, stdout=full, stderr=full).returncode == 1
    read_all(tmp_path)
    assert leftovers(tmp_path) == []
    again = subprocess.run(argv, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_a_disk_that_is_full_or_read_only(tmp_path: Path, scored: Path) -> None:
    """A real one, of a few hundred kB, which tensors and pictures meet as well."""
    (tmp_path / "disk").mkdir()
    own = ["unshare", "--map-root-user", "--mount", "sh", "-ec"]
    mount = f"mount -t tmpfs -o size=4m disk {tmp_path}/disk"
    allowed = subprocess.run([*own, mount], capture_output=True, text=True)
    if allowed.returncode:
        pytest.skip(f"no file system can be mounted here: {allowed.stderr.strip()}")
    tried = f"{sys.executable} -m tests.robustness.small_disk {tmp_path}/disk {scored}"
    tried += " generate train extend heatmap sweep transformers"
    ran = subprocess.run([*own, f"{mount}; exec {tried}"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(ran.stdout)
