"""Every kind of file that a command reads: where one lies in a small world, and who reads it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from arith.data.bucket import Bucket
from arith.data.dataset import Dataset
from arith.data.manifest import Manifest
from arith.data.writing import generate
from arith.export.problems import write_text
from arith.files import read_json, write_json
from arith.scoring import grid_file
from arith.suite import lock, presets, status
from arith.suite.child import last_line
from arith.suite.folders import RunFolder
from arith.suite.plan import How, plan, read_jobs, write_jobs
from arith.suite.sweep import Run, load_sweep
from arith.training import checkpoint
from models import catalog
from tests.suite.tiny import done, settings

RUN = Path("runs/mini/rope/seed-0")
WEIGHTS = RUN / "weights"
SWEEP = Path("runs/sweeps/mine")
BUCKET, COUNT = Bucket("addition", 2, 0, "train"), 64

ENCODING = '''"""One of mine."""

from models.encodings.rope import RoPE


class Mine(RoPE):
    """Rope by another name."""

    kind = "rotary"
    paper = "none"

    def __init__(self, setting: object, *, more: float = 1.0) -> None:
        super().__init__(setting)
'''
PLAN = 'preset = "mini"\nencodings = ["rope"]\nseeds = [0, 1]\n[set]\nsteps = 7\n'


@dataclass(frozen=True)
class Kind:
    """One kind of file. `read` gives what it says as something that can be compared; `command` is
    one that reads it. `document` is the name of what it holds in `arith.schemas.NEWEST`; `sealed`,
    whether any damage of it is found, by a checksum of its own or elsewhere; `lines`, whether it is
    added to line by line, so that a part of it is one too."""

    file: Path
    read: Callable[[Path], Any]
    command: tuple[str, ...]
    document: str | None = None
    sealed: bool = True
    lines: bool = False


def tokens(_: Path) -> list[int]:
    return Dataset(Path("set")).problems(0, COUNT).tokens.tolist()


def unfinished(file: Path) -> list[int]:
    with TemporaryDirectory() as there:
        folder = Path(there, "half")
        folder.mkdir()
        for other in file.parent.iterdir():  # read here, so that a pipe may stand in its place too
            (folder / other.name).symlink_to(other.absolute())
        generate(folder, BUCKET, COUNT, shard_size=32)
        return Dataset(folder).problems(0, COUNT).tokens.tolist()


def exported(_: Path) -> bytes:
    return write_text(Path("problems.txt"), BUCKET, COUNT).read_bytes()


def grid(file: Path) -> dict[str, Any]:
    return grid_file.load(file).content()


def tensors(file: Path) -> str:
    found, facts = checkpoint.load(file, "cpu")
    return str(({name: tensor.tolist() for name, tensor in found.items()}, facts))


def environment(file: Path) -> dict[str, Any]:
    return read_json(file, "environment")


def ends(file: Path) -> dict[str, Any]:
    return status._ends(file.parent)


def preset(file: Path) -> dict[str, Any]:
    before, presets.FOLDER = presets.FOLDER, file.parent
    try:
        return presets.load_preset(file.stem).as_dict()
    finally:
        presets.FOLDER = before


SCORE = ("score", str(RUN))
AGAIN = (*SCORE, "--fresh")
STATUS = ("status", "mine")
KINDS = {
    "manifest": Kind(
        Path("set/manifest.json"),
        lambda file: Manifest.load(file.parent),
        ("generate", "--verify", "set"),
        "dataset",
    ),
    "tokens": Kind(Path("set/tokens-00000.npy"), tokens, ("generate", "--verify", "set")),
    "lengths": Kind(Path("set/lengths-00000.npy"), tokens, ("generate", "--verify", "set")),
    "shard note": Kind(
        Path("half/shard-00000.json"),
        unfinished,
        ("generate", "--out", "half", *settings()),
        "dataset shard",
    ),
    "export note": Kind(
        Path("problems.txt.json"),
        exported,
        ("generate", "--format", "text", "--out", "problems.txt", *settings()),
        "exported dataset",
    ),
    "export": Kind(
        Path("problems.txt"),
        exported,
        ("generate", "--format", "text", "--out", "problems.txt", *settings()),
    ),
    "exported run": Kind(
        Path("exported/tape-arith.json"),
        lambda file: read_json(file, "exported run"),
        ("export", str(RUN), "--format", "transformers", "--out", "exported"),
        "exported run",
    ),
    "record": Kind(RUN / "run.json", lambda file: RunFolder(file.parent).record(), AGAIN, "run"),
    "environment": Kind(RUN / "environment.json", environment, ("report",), "environment"),
    "timings": Kind(
        RUN / "timings.json", lambda file: RunFolder(file.parent).timings(), AGAIN, "timings"
    ),
    "metrics": Kind(
        RUN / "metrics.jsonl",
        lambda file: RunFolder(file.parent).metrics(),
        ("curves", "--compare", "rope"),
        "metrics",
        lines=True,
    ),
    "grid": Kind(RUN / "grid.json", grid, ("table",), "grid"),
    "grid's part": Kind(
        RUN / "shards/grid+yarn/1-of-2/grid+yarn.json",
        grid,
        (*SCORE, "--with", "yarn", "--merge", "2"),
        "grid",
    ),
    "final weights": Kind(WEIGHTS / "final.safetensors", tensors, AGAIN, "checkpoint"),
    "state": Kind(
        WEIGHTS / "before-cooldown.safetensors",
        tensors,
        ("train", str(RUN), "--steps", "90"),
        "checkpoint",
    ),
    "jobs": Kind(
        SWEEP / "jobs.jsonl", lambda file: [*read_jobs(file.parent)], STATUS, "job", lines=True
    ),
    "ends": Kind(SWEEP / "ends.jsonl", ends, STATUS, "end", lines=True),
    "log": Kind(SWEEP / "logs/it.log", last_line, STATUS, sealed=False),
    "lock": Kind(RUN / lock.NAME, lambda file: lock.holder(file.parent), STATUS, sealed=False),
    "sweep": Kind(
        Path("mine.toml"), lambda file: load_sweep(str(file)), ("sweep", "mine.toml"), sealed=False
    ),
    "preset": Kind(Path("presets/mini.toml"), preset, ("list",), sealed=False),
    "encoding": Kind(
        Path("mine.py"),
        lambda file: str(catalog.entry("encoding", f"{file.name}:Mine")),
        ("train", "--pe", "mine.py:Mine", "--no-score", *settings()),
        sealed=False,
    ),
}
WRITTEN_ONLY = {"bench"}
"""Documents that no command reads."""


def make() -> None:
    """One good file of every kind, in the current folder."""
    for seed in (0, 1):
        done("train", "--pe", "rope", "--seed", seed, *settings(steps=60))
    done("score", RUN, "--with", "yarn", "--shard", "1/2")
    done("score", RUN, "--with", "yarn", "--shard", "2/2")
    generate(Path("set"), BUCKET, COUNT, shard_size=32)
    generate(Path("half"), BUCKET, COUNT, shard_size=32)
    (note,) = notes(Path("half"))
    note.rename(Path("half/shard-00000.json"))
    Path("half/manifest.json").unlink()
    write_text(Path("problems.txt"), BUCKET, COUNT)
    write_json(Path("exported/tape-arith.json"), {"kind": "exported run", "run": "rope"})
    config = RunFolder(RUN).record().config
    runs = [Run(catalog.parse(n), 0, "mini", config, Path("runs")) for n in ("rope", "rope+yarn")]
    write_jobs(plan(runs, How(), Path("runs")), SWEEP)
    for code, reason in ((1, "no space"), (0, "")):
        status.note_end(SWEEP, "score/mini/rope/seed-0/grid+yarn", code, reason, None)
    Path(SWEEP, "logs").mkdir()
    Path(SWEEP, "logs/it.log").write_text("$ tape-arith train\ntape-arith: no space\n")
    with lock.hold(RUN):
        held = Path(RUN, lock.NAME).read_bytes()
    Path(RUN, lock.NAME).write_bytes(held)
    Path("mine.toml").write_text(PLAN)
    Path("mine.py").write_text(ENCODING)
    shutil.copytree(presets.FOLDER, "presets")


def notes(folder: Path) -> list[Path]:
    """The note that a killed call leaves of its first shard."""
    from arith.data.shard_files import SHARD_KIND, Plan

    manifest = Manifest.load(folder)
    whole = Plan(folder, BUCKET, COUNT, 32)
    content = {"identity": whole.identity, "shard": vars(manifest.shards[0])}
    write_json(folder / "note.json", {"kind": SHARD_KIND, **content})
    return [folder / "note.json"]
