"""Results go to another lab in one archive, and nothing that is wrong in them passes there."""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tape_arith.arith import archives
from tape_arith.arith.sharing import validate as validation
from tests.helpers.committed_runs import ROOTS
from tests.helpers.documents import edit, edit_text
from tests.helpers.tiny_runs import call, done, refused, settings, untouched

ROPE = Path("runs/mini/rope/seed-0")
TAPE = Path("runs/mini/tape/seed-1")
LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE)
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
    "metrics of another training": (
        lambda run: edit_text(run / "metrics.jsonl", '"step": 4', '"step": 9'),
        "metrics.jsonl has step 9 of 4",
    ),
    "another dataset": (
        lambda run: edit(run / "run.json", data="0" * 64),
        "its dataset (SHA-256 000000000000) is not that of its settings",
    ),
    "no record": (
        lambda run: (run / "run.json").unlink(),
        "cannot read run.json",
    ),
    "another folder's name": (
        lambda run: edit(run / "run.json", seed=5),
        "it is the run mini/rope/seed-5 by its run.json, not by its folder",
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
    result = call("validate")
    (line,) = (line for line in result.out.splitlines() if not line.startswith("valid   mini/"))
    assert result.code == 1 and line.startswith("INVALID mini/rope/seed-0: ") and message in line
    assert "--fresh" not in line  # that is for whoever has the run


def test_what_is_wrong_is_not_packed(comparison: Path) -> None:
    more_exact(ROPE)
    assert "mini/rope/seed-0" in refused("pack", "runs", "-o", "lab.tgz", code=1)
    assert not Path("lab.tgz").exists()


def test_measurements_that_are_missing_are_noted(
    comparison: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_text(ROPE / "metrics.jsonl", '"step": 4', '"step": 2')
    lines = call("validate").out.splitlines()
    notes = [line for line in lines if "metrics.jsonl ends at step 2 of 4" in line]
    assert len(notes) == 1 and "mini/rope/seed-0" in notes[0]
    assert not any(line.startswith("INVALID") for line in lines)
    monkeypatch.setattr(validation, "EVALUATE_EVERY", 1)
    assert "metrics.jsonl lacks 1 of 2 evaluations before its end" in call("validate").out
    (ROPE / "metrics.jsonl").unlink()
    assert "note: metrics.jsonl is missing or empty" in call("validate").out


def test_a_dataset_is_that_of_its_settings(comparison: Path) -> None:
    data = [json.loads(file.read_text())["data"] for file in Path("runs").rglob("run.json")]
    assert len(data) == 6 and all(data)
    shutil.rmtree("data")
    assert list(verdicts("runs").values()) == [()] * 6


def test_a_file_of_theirs_is_compared_with_that_here(comparison: Path) -> None:
    mine = Path("mine.py")
    mine.write_text("")
    edit(ROPE / "run.json", sources={"mine.py:Mine": hashlib.sha256(b"").hexdigest()})
    assert "trained with" not in call("validate").out
    mine.write_text("x = 1")
    assert "trained with another mine.py:Mine than the one here" in call("validate").out
    mine.unlink()
    assert "trained with mine.py:Mine, which is not here" in call("validate").out


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
        for kind in (*LINKS, tarfile.DIRTYPE):
            member = tarfile.TarInfo(f"mini/link{kind!r}/seed-0/run.json")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    folder = archives.on_disk(Path("evil.tgz"))
    out = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert out == held.keys()
    links = {f"mini/link{kind!r}/seed-0/run.json" for kind in LINKS}
    named = {run for run, faults in verdicts("evil.tgz").items() if faults}
    assert named == {"../x/seed-0/run.json", "/tmp/x/seed-0/run.json", *links}
    with tarfile.open("plain.tgz", "w:gz") as archive:
        archive.add("runs", ".")  # as tar itself writes it
    assert verdicts("plain.tgz").keys() == verdicts("lab.tgz").keys()
    assert "there is no archive no.tgz" in refused("validate", "no.tgz")
    Path("cut.tgz").write_bytes(Path("lab.tgz").read_bytes()[:2000])
    assert "cut.tgz is no whole archive" in refused("validate", "cut.tgz", code=1)
    monkeypatch.setattr(archives, "_LARGEST", 1000)
    shutil.copy("lab.tgz", "large.tgz")
    assert "more than 1 GiB" in refused("validate", "large.tgz", code=1)


def test_an_archive_is_read_as_its_folder(comparison: Path) -> None:
    commands = [("curves", "--pe", "rope,tape", "--json"), ("tasks", "all", "--format", "csv")]

    def outputs(runs: str) -> list[str]:
        return [done(*command, "--runs", runs).out for command in commands]

    before = outputs("runs")
    listed = json.loads(done("list", "--json").out)["runs"]
    done("pack", "runs", "-o", "labs/lab.tgz")
    shutil.rmtree("runs")
    for runs, prefix in (("labs", "labs/lab.tgz"), ("labs/lab.tgz", "labs/lab.tgz")):
        assert outputs(runs) == before
        now = json.loads(done("list", "--json", "--runs", runs).out)["runs"]
        assert [run["path"] for run in now] == [
            run["path"].replace("runs", prefix, 1) for run in listed
        ]
    summary = done("score", "labs/lab.tgz/mini/rope/seed-0").out
    assert summary.startswith("rope seed 0: ")
    done("run", "--pe", "rope", *settings(), "--runs", "labs")  # nothing is trained twice
    done("heatmap", "--pe", "rope", "--runs", "labs/lab.tgz")
    assert {path.name for path in Path("labs").rglob("*.*")} >= {"rope.png", "lab.tgz"}
    assert not list(Path("labs").rglob("run.json"))


def test_a_place_of_theirs_is_named_before_it_is_sent(comparison: Path) -> None:
    assert done("pack", "runs", "-o", "lab.tgz").err == ""
    edit(ROPE / "run.json", encoding="/home/me/mine.py:Mine")
    shutil.move(ROPE, "runs/mini/@home@me@mine.py@Mine/seed-0")
    for file in Path("runs/mini/@home@me@mine.py@Mine/seed-0").glob("grid*"):
        file.unlink() if "+" in file.name else edit(file, encoding="/home/me/mine.py:Mine")
    err = done("pack", "runs", "-o", "lab.tgz").err
    assert "names places of files of yours: /home/me/mine.py:Mine\n" in err


def test_what_is_not_scored_is_no_result(comparison: Path) -> None:
    # A finished run then joins, though the archive was made while it was trained.
    done("pack", "runs", "-o", "all.tgz")
    shutil.copytree("runs", "earlier")
    for file in Path("earlier/mini/rope/seed-0").glob("grid*.json"):
        file.unlink()
    Path("earlier/mini/rope/seed-0/metrics.jsonl").write_text("")
    packed = done("pack", "earlier", "-o", "lab.tgz")
    assert "left out, not scored: earlier/mini/rope/seed-0\n" in packed.err
    done("pack", "lab.tgz", "runs", "-o", "lab.tgz")
    assert Path("lab.tgz").read_bytes() == Path("all.tgz").read_bytes()
    shutil.copytree("earlier/mini/rope", "alone/mini/rope")
    shutil.rmtree("alone/mini/rope/seed-1")
    assert "no run in alone is scored" in refused("pack", "alone", "-o", "x.tgz")


def test_packed_results_join(comparison: Path) -> None:
    done("pack", "runs", "-o", "all.tgz")
    shutil.copytree("runs", "later")
    for folder, encoding in (("runs", "tape"), ("later", "fire")):
        shutil.rmtree(Path(folder, "mini", encoding))
    done("pack", "runs", "-o", "lab.tgz")
    done("pack", "lab.tgz", "later", "runs", "-o", "lab.tgz")
    assert Path("lab.tgz").read_bytes() == Path("all.tgz").read_bytes()
    shutil.copytree("later/mini", "later/small-20")
    assert "no run of small-40 in later" in refused(
        "pack", "later", "--preset", "small-40", "-o", "x.tgz"
    )
    other = Path("later/mini/rope/seed-0/metrics.jsonl")
    other.write_text("")
    err = refused("pack", "lab.tgz", "later", "--preset", "mini", "-o", "lab.tgz")
    assert f"lab.tgz/mini/rope/seed-0/metrics.jsonl and {other} are two results of one run" in err
    assert Path("lab.tgz").read_bytes() == Path("all.tgz").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_the_committed_results_are_valid(root: Path) -> None:
    found = verdicts(root)
    assert found and not any(found.values())
