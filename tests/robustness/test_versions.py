"""Files of older versions are read, files of newer ones are refused by their number: one mechanism
for every kind. `fixtures` holds what 0.1.0 and 0.3.0 wrote, made by them and never changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arith.data.dataset import Dataset
from arith.data.manifest import Manifest
from arith.errors import Failure
from arith.export.problems import write_text
from arith.files import read_json
from arith.schemas import NEWEST, WITH_CHECKSUM, checksum, sealed, unsealed
from arith.scoring import grid_file
from arith.suite import status
from arith.suite.folders import RunFolder
from arith.suite.plan import read_jobs
from arith.training import checkpoint
from tests.robustness.kinds import BUCKET, COUNT, KINDS, WRITTEN_ONLY, unfinished
from tests.robustness.test_rotten_files import read
from tests.sealing import without
from tests.suite.tiny import done

FIXTURES = Path(__file__).parent / "fixtures"
RESULTS = Path(__file__).parents[2] / "results"
OLDER = sorted(path.name for path in FIXTURES.iterdir())
PROBLEMS = BUCKET.problems(0, COUNT)


def says(file: Path) -> dict[str, Any]:
    """What stands in a file of before, read by nobody of ours."""
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def an_export(file: Path) -> None:
    before = file.with_suffix("").read_bytes()
    assert write_text(file.with_suffix(""), BUCKET, COUNT).read_bytes() == before


def a_manifest(file: Path) -> None:
    dataset = Dataset(file.parent)
    assert dataset.problems(0, COUNT).tokens.tolist() == PROBLEMS.tokens.tolist()
    assert Manifest.load(file.parent).sha256 == says(file)["sha256"]


def a_shard(file: Path) -> None:
    assert unfinished(file) == PROBLEMS.tokens.tolist()


def a_record(file: Path) -> None:
    record, said = RunFolder(file.parent).record(), says(file)
    assert (record.encoding, record.seed, record.version) == ("rope", 0, said["version"])
    assert record.config.steps == said["first_steps"] == 40
    assert record.task_version == 1 and record.init_from is None


def an_environment(file: Path) -> None:
    assert read_json(file, "environment") == says(file)


def timings(file: Path) -> None:
    assert RunFolder(file.parent).timings() == says(file)["seconds"] != {}


def metrics(file: Path) -> None:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert RunFolder(file.parent).metrics() == lines and [x["step"] for x in lines] == [20, 40]


def a_grid(file: Path) -> None:
    grid, said = grid_file.load(file), says(file)
    assert grid.exact.tolist() == said["exact"] and grid.total.tolist() == said["total"]
    assert (grid.budget, grid.evaluation) == (said["budget"], said["evaluation"])


def weights(file: Path) -> None:
    tensors, facts = checkpoint.load(file, "cpu")
    assert facts["schema"] == 1 and facts["encoding"] == "rope" and len(tensors) > 5


def jobs(file: Path) -> None:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert list(read_jobs(file.parent)) == lines and len(lines) == 4


def ends(file: Path) -> None:
    found = status._ends(file.parent)
    assert len(found) == 4 and {end["exit"] for end in found.values()} == {0}


READ: dict[str, tuple[str, Callable[[Path], None]]] = {
    "dataset": ("set/manifest.json", a_manifest),
    "dataset shard": ("half/shard-00000.json", a_shard),
    "exported dataset": ("problems.txt.json", an_export),
    "run": ("run/run.json", a_record),
    "environment": ("run/environment.json", an_environment),
    "timings": ("run/timings.json", timings),
    "metrics": ("run/metrics.jsonl", metrics),
    "grid": ("run/grid.json", a_grid),
    "checkpoint": ("run/weights/*.safetensors", weights),
    "job": ("sweep/jobs.jsonl", jobs),
    "end": ("sweep/ends.jsonl", ends),
}
NEW = WRITTEN_ONLY | {"exported run"}
"""Kinds of which there was none in schema 1 that is read."""


@pytest.fixture(params=OLDER)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What a version of before wrote; a copy, for readers may finish what is unfinished."""
    return Path(shutil.copytree(FIXTURES / request.param, tmp_path / request.param))


@pytest.mark.parametrize("kind", READ)
def test_what_an_older_version_wrote_is_read(older: Path, kind: str) -> None:
    pattern, reads = READ[kind]
    files = sorted(older.glob(pattern))
    assert files or (older.name == "0.1.0" and kind in ("dataset shard", "job", "end"))
    for file in files:
        assert b"checksum" not in file.read_bytes()
        reads(file)


def test_every_kind_has_a_fixture() -> None:
    assert READ.keys() == NEWEST.keys() - NEW
    for pattern, _ in READ.values():
        assert list((FIXTURES / "0.3.0").glob(pattern)), pattern


def test_an_older_run_goes_on(older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/mini/rope/seed-0")
    shutil.copytree(older / "run", folder)
    before = grid_file.load(folder / "grid.json")
    done("score", folder)
    assert grid_file.load(folder / "grid.json").content() == before.content()
    done("score", folder, "--fresh")
    assert (grid_file.load(folder / "grid.json").total == before.total).all()
    assert "40 of 40" in done("status", "runs").out
    done("table")
    done("heatmap", "--compare", "rope")
    done("train", folder, "--steps", "60")
    lines = RunFolder(folder).metrics()
    assert [line["step"] for line in lines][-1] == 60  # new lines behind old ones
    assert says(folder / "run.json")["schema"] == NEWEST["run"]


def test_all_that_is_published_is_read() -> None:
    grids = sorted(RESULTS.rglob("grid*.json"))
    records = sorted(RESULTS.rglob("run.json"))
    assert len(grids) > 60 and len(records) > 50
    for file in grids:
        a_grid(file)
    for file in records:
        folder = RunFolder(file.parent)
        folder.record(), folder.timings()
        assert folder.metrics()
        read_json(folder.path / "environment.json", "environment")


def later(text: str, kind: str) -> str:
    """A document of the schema after the newest."""
    content = without(json.loads(text)) | {"schema": NEWEST[kind] + 1}
    return json.dumps({**content, "checksum": checksum(content)})


@pytest.mark.parametrize("name", [n for n, k in KINDS.items() if k.document])
def test_a_newer_file_is_refused_by_its_schema(world: Path, name: str) -> None:
    kind = KINDS[name]
    assert kind.document
    newest = NEWEST[kind.document]
    if kind.document == "checkpoint":
        text = kind.file.read_bytes()
        old, new = f'\\"schema\\": {newest}'.encode(), f'\\"schema\\": {newest + 1}'.encode()
        assert text.count(old) == 1
        kind.file.write_bytes(text.replace(old, new))
        assert read(kind)[0] == "refused"  # by its hash
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoint, "SCHEMA", newest + 1)
            checkpoint.save(kind.file, {}, {})
    else:
        lines = kind.file.read_text().splitlines() if kind.lines else [kind.file.read_text()]
        kind.file.write_text("\n".join(later(line, kind.document) for line in lines) + "\n")
    state, found = read(kind)
    if name == "ends":  # for people: one that cannot be read is none
        assert found == {}
        return
    assert state == "refused"
    assert f"has schema {newest + 1}; this version reads schemas 1 to {newest}" in found


@pytest.mark.parametrize("schema", [0, -1, 3, 1.0, True, None, "1", [1], {"a": 1}])
def test_what_is_no_schema(schema: object) -> None:
    content = {"kind": "run", "schema": schema}
    with pytest.raises(ValueError, match="has schema"):
        unsealed({**content, "checksum": checksum(content)}, "run")


def test_a_seal_holds_what_is_said_and_not_how(tmp_path: Path) -> None:
    assert set(NEWEST.values()) == {WITH_CHECKSUM}
    content = sealed({"a": 1.5, "b": [1, {"c": "ä"}], "d": (1, 2), "e": {3: None}}, "run")
    text = json.dumps(content, indent=3, ensure_ascii=False, sort_keys=True)
    assert unsealed(json.loads(text), "run")["b"] == [1, {"c": "ä"}]
    for old, new in (("1.5", "1.25"), ('"c"', '"x"'), ("null", "true"), ('"run"', '"grid"')):
        with pytest.raises(ValueError):
            unsealed(json.loads(text.replace(old, new)), "run")
    dropped = {key: value for key, value in content.items() if key != "checksum"}
    with pytest.raises(ValueError, match="checksum"):
        unsealed(dropped, "run")


def test_as_deep_as_can_be_read_is_not_too_deep_to_check(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    for depth in range(850, 1010):
        inside = "[" * depth + "]" * depth
        file.write_text('{"schema": 2, "kind": "run", "checksum": "x", "a": ' + inside + "}")
        with pytest.raises(Failure, match=r"run\.json is corrupt"):
            read_json(file, "run")
