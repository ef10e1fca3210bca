"""Results go to another lab in one archive, and nothing that is wrong in them passes there."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tape_arith.arith.sharing import pack as packing
from tests.helpers.documents import edit, edit_text
from tests.helpers.tiny_runs import call, done, refused, untouched

ROPE = Path("runs/mini/rope/seed-0")
TAPE = Path("runs/mini/tape/seed-1")
SOURCE = "from tape_arith.arith.tasks.addition import Addition\nopen('ran', 'w')\n"


def verdicts(path: object) -> dict[str, tuple[str, ...]]:
    """Return the faults of each run by its folder."""
    result = call("validate", path, "--json")
    found = {each["run"]: tuple(each["faults"]) for each in json.loads(result.out)}
    assert result.code == any(found.values())
    return found


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        files = {member.name: opened.extractfile(member) for member in opened}
        return {name: file.read() for name, file in files.items() if file}


def test_an_archive_holds_the_results_and_nothing_else(comparison: Path) -> None:
    (ROPE / "notes.txt").write_text("mine")
    with untouched(comparison / "runs"):
        done("pack", "runs", "-o", "lab.tgz")
        held = members(Path("lab.tgz"))
        assert held == {
            str(file.relative_to("runs")): file.read_bytes()
            for file in Path("runs").rglob("*.json*")
            if file.parent.name.startswith("seed-")
        }
        assert not any("weights" in name for name in held) and len(held) == 6 * 3
        first = Path("lab.tgz").read_bytes()
        done("pack", "runs", "-o", "again.tar.gz")
        assert Path("again.tar.gz").read_bytes() == first
        done("pack", "runs", "-o", "heavy.tgz", "--weights")
        heavy = members(Path("heavy.tgz"))
        weights = {name for name in heavy if name.endswith("weights/final.safetensors")}
        assert heavy.keys() - weights == held.keys() and len(weights) == 6


def test_both_forms_are_valid_and_say_the_means(comparison: Path) -> None:
    done("pack", "runs", "-o", "lab.tgz")
    folder, archive = (done("validate", path).out for path in ("runs", "lab.tgz"))
    assert folder == archive
    lines = folder.splitlines()
    assert len(lines) == 6 and all(line.startswith("valid   mini/") for line in lines)
    summary = done("score", ROPE).out.strip()
    assert any(line.endswith(f"rope/seed-0: {summary}") for line in lines)


def more_exact(run: Path) -> None:
    grid = json.loads((run / "grid.json").read_text())
    grid["exact"] = grid["total"]
    (run / "grid.json").write_text(json.dumps(grid))


def edit_evaluation(run: Path, **changes: object) -> None:
    grid = json.loads((run / "grid.json").read_text())
    edit(run / "grid.json", evaluation=grid["evaluation"] | changes)


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "counts typed by hand": (more_exact, "grid.json is corrupt: its checksum does not match"),
    "more right than scored": (
        lambda run: edit(run / "grid.json", exact=[[9] * 3] * 3),
        "'exact', 'total' and 'blocks_done' contradict each other",
    ),
    "another encoding's grid": (
        lambda run: shutil.copy(TAPE / "grid+yarn.json", run / "grid.json"),
        "grid.json: it is of encoding tape, its run of rope",
    ),
    "another seed's grid": (
        lambda run: shutil.copy(ROPE.with_name("seed-1") / "grid.json", run / "grid.json"),
        "grid.json: it is of seed 1, its run of 0",
    ),
    "another preset": (lambda run: edit(run / "grid.json", preset="small-20"), "of preset small"),
    "other problems": (
        lambda run: edit_evaluation(run, sha256="0" * 64),
        "grid.json: its problems are not those that its settings give",
    ),
    "problems of another seed": (
        lambda run: edit_evaluation(run, seed=1),
        "grid.json: its problems are not those that its settings give",
    ),
    "shorter problems": (
        lambda run: edit_evaluation(run, max_digits=2),
        "grid.json is corrupt: 'exact' must be 2 rows of 2",
    ),
    "more steps": (
        lambda run: edit_text(run / "grid.json", '"steps": 4', '"steps": 5'),
        "grid.json: it is of another budget or other settings than its run",
    ),
    "another rate": (
        lambda run: edit_text(run / "run.json", '"learning_rate": 0.001', '"learning_rate": 0.1'),
        "another budget or other settings",
    ),
    "a task of a later version": (
        lambda run: edit_evaluation(run, version=2),
        "grid.json: its task has version 2, here it has 1",
    ),
    "metrics that are no numbers": (
        lambda run: edit_text(run / "metrics.jsonl", '"loss": ', '"loss": "x', 1),
        "metrics.jsonl is corrupt",
    ),
    "a record that is cut": (
        lambda run: (run / "run.json").write_text('{"schema": 2,'),
        "run.json is corrupt",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_is_wrong_is_named(name: str, comparison: Path) -> None:
    change, message = TAMPERED[name]
    change(ROPE)
    found = verdicts("runs")
    assert any(message in fault for fault in found.pop("mini/rope/seed-0"))
    assert not any(found.values())
    line = next(each for each in call("validate").out.splitlines() if "rope/seed-0" in each)
    assert line.startswith("INVALID mini/rope/seed-0: ") and message in line
    assert "mini/rope/seed-0" in refused("pack", "runs", "-o", "lab.tgz", code=1)
    assert not Path("lab.tgz").exists()


def test_nothing_of_theirs_is_run(comparison: Path) -> None:
    Path("theirs.py").write_text(SOURCE)
    edit_text(ROPE / "run.json", '"task": "addition"', '"task": "theirs.py:Addition"')
    edit_text(ROPE / "grid.json", '"task": "addition"', '"task": "theirs.py:Addition"')
    result = call("validate")
    assert "theirs.py:Addition are not made again" in result.out or "INVALID" in result.out
    assert not Path("ran").exists()


def test_only_results_leave_an_archive(comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("pack", "runs", "-o", "lab.tgz")
    held = members(Path("lab.tgz"))
    with tarfile.open("evil.tgz", "w:gz") as archive:
        for name, content in held.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name in ("../x/seed-0/run.json", "/tmp/x/seed-0/run.json", "mini/rope/seed-0/run.py"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            member = tarfile.TarInfo(f"mini/link{kind!r}/seed-0/run.json")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    with packing.opened(Path("evil.tgz")) as folder:
        out = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert out == held.keys() and not folder.exists()
    Path("cut.tgz").write_bytes(Path("lab.tgz").read_bytes()[:2000])
    assert "cut.tgz is no whole archive" in refused("validate", "cut.tgz", code=1)
    monkeypatch.setattr(packing, "_LARGEST", 1000)
    assert "more than 1 GiB" in refused("validate", "lab.tgz", code=1)


@pytest.mark.slow
def test_the_committed_results_are_valid() -> None:
    root = Path(__file__).parents[2] / "results"
    for folder in (root, root / "tape", *(root / "trials").iterdir()):
        if folder.is_dir():
            found = verdicts(folder)
            assert found and not any(found.values()), folder
