"""Runs on disk: where each thing of a run is, and which runs there are. No torch here.

    RUNS/PRESET/PE/seed-S/
        run.json          what was asked for: encoding, seed, config, data
        environment.json  what it ran on
        metrics.jsonl     a line every few steps
        timings.json      seconds of each stage
        grid.json         exact match by operand lengths (grid+yarn.json: scored with YaRN;
                          grid@carry.json: of the split carry)
        weights/          safetensors; everything but this is small enough to carry away

Facts are read from the files, never from their names.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from arith.checking import digest, known_keys, mapping, number, text, whole
from arith.data.bucket import EVALUATION
from arith.errors import Failure, UsageError
from arith.files import append_line, read_json, write_json, write_text
from arith.reading import read_bytes
from arith.scoring import grid_file
from arith.scoring.grid import Grid
from arith.scoring.shards import Shard
from arith.suite.metrics_line import line_of, read_line, read_lines
from arith.suite.presets import load_preset, presets
from arith.suite.progress import say
from arith.training.config import Config
from arith.training.nonfinite import known_policy
from arith.training.schedule import Schedule
from models.catalog import Encoding, Name, Part, parse

FIRST_TASK_VERSION = 1
"""Of the runs that do not say: until they did, there was no other."""


@dataclass(frozen=True)
class InitFrom:
    """The finished run from whose final weights another began: what it was, the steps and problems
    that it was trained for (and the one that it began from itself), the hash of its weights."""

    encoding: str
    seed: int
    config_sha256: str
    steps: int
    problems: int
    weights_sha256: str

    @classmethod
    def of(cls, content: dict[str, Any]) -> "InitFrom":
        """What stands in run.json. Errors: ValueError."""
        known_keys(content, {field.name for field in fields(cls)}, frozenset())
        return cls(
            encoding=text(content["encoding"], "init_from.encoding"),
            config_sha256=digest(content["config_sha256"], "init_from.config_sha256"),
            weights_sha256=digest(content["weights_sha256"], "init_from.weights_sha256"),
            **{n: whole(content[n], f"init_from.{n}") for n in ("seed", "steps", "problems")},
        )


@dataclass(frozen=True)
class RunRecord:
    """What a run is: run.json. `steps` in `config` is the present budget, `first_steps` the one
    it began with (which fixed the warm-up); `task_version` that of the problems it is trained on;
    `data` the hash of the dataset it began on, None where problems are made as needed: both give
    the same run; `version` that of tape-arith; `sources` the hash of the file of each part of the
    encoding that is the user's or an installed package's; `init_from` whose weights it began from,
    None where it drew its own; `on_nonfinite` what becomes of a step whose loss or gradient is not
    finite, and `skipped_steps` how many were left out for that, of a run that is trained."""

    encoding: str
    seed: int
    preset: str
    config: Config
    task_version: int
    first_steps: int
    data: str | None
    version: str
    sources: dict[str, str] = field(default_factory=dict)
    init_from: InitFrom | None = None
    on_nonfinite: str = "stop"
    skipped_steps: int = 0

    @property
    def schedule(self) -> Schedule:
        config = self.config
        return Schedule.of(config.steps, self.first_steps, config.warmup, config.cooldown)

    @property
    def budget(self) -> dict[str, Any]:
        """What must be equal for two results to be compared."""
        return {
            "steps": self.config.steps,
            "first_steps": self.first_steps,
            "batch_size": self.config.batch_size,
            "config_sha256": self.config.sha256,
            **self._before,
        }

    @property
    def _before(self) -> dict[str, int | float | str]:
        """What was trained before this run began: the same for all seeds."""
        before = self.init_from
        if before is None:
            return {}
        return {"steps_before": before.steps, "config_before": before.config_sha256[:12]}

    @property
    def settings(self) -> dict[str, int | float | str]:
        """The settings that are not the preset's: by --set or --task, a longer budget, a dataset
        of another count; and for how many steps the weights were trained that it began from."""
        before = {} if self.init_from is None else {"steps_before": self.init_from.steps}
        if self.preset not in presets():  # another version's: nothing to tell them from
            return {**before}
        usual = load_preset(self.preset).as_dict()
        changed = {key: x for key, x in self.config.as_dict().items() if x != usual[key]}
        return {**before, **changed}


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def record_file(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tracking(self) -> Path:
        """What trackers write of it."""
        return self.path / "tracking"

    @property
    def timings_file(self) -> Path:
        return self.path / "timings.json"

    @property
    def final(self) -> Path:
        """Weights after the last step."""
        return self.path / "weights" / "final.safetensors"

    @property
    def latest(self) -> Path:
        """Where an unfinished training goes on."""
        return self.path / "weights" / "latest.safetensors"

    @property
    def previous(self) -> Path:
        """The state that was saved before the latest, for when that one is damaged."""
        return self.path / "weights" / "previous.safetensors"

    @property
    def before_cooldown(self) -> Path:
        """From where `train RUN --steps N` goes on."""
        return self.path / "weights" / "before-cooldown.safetensors"

    def grid_file(
        self,
        extrapolation: Part | None = None,
        max_digits: int | None = None,
        split: str = EVALUATION,
    ) -> Path:
        """Each way of scoring has a file of its own; `max_digits` None is the preset's."""
        problems = "" if split == EVALUATION else f"@{split}"
        way = f"+{slug(str(extrapolation))}" if extrapolation else ""
        reach = f"-to-{max_digits}" if max_digits else ""
        return self.path / f"grid{problems}{way}{reach}.json"

    def shard(self, grid: Path, shard: Shard) -> "RunFolder":
        """Where a part of the file `grid` is scored: a folder of its own, so that no two jobs share
        one."""
        return RunFolder(self.path / "shards" / grid.stem / shard.slug)

    def remove_shards(self, grid: str = "*") -> None:
        """Drop the parts of grids: they are in the grids now, or of no use any more."""
        for folder in self.path.glob(f"shards/{grid}"):
            shutil.rmtree(folder)
        with suppress(OSError):  # none, or those of another grid
            (self.path / "shards").rmdir()

    def exists(self) -> bool:
        return self.record_file.exists()

    def unfinished(self) -> bool:
        """A training has stopped, or been stopped, on its way. A kill between the two moves of a
        saving leaves only the previous state."""
        return self.latest.exists() or self.previous.exists()

    def states(self) -> list[Path]:
        """From where training can go on, in the order in which they are tried. The steps before
        the cool-down are the same whatever the budget, so the state there is always one of them."""
        files = (self.latest, self.previous, self.before_cooldown)
        return [file for file in files if file.exists()]

    def finished(self) -> bool:
        """Trained to the end of its budget."""
        return self.final.exists() and not self.unfinished()

    def record(self) -> RunRecord:
        """Errors: Failure where there is none or it is corrupt."""
        content = read_json(self.record_file, "run")
        try:
            of = mapping(content.get("sources", {}), "sources")
            sources = {text(part, "sources"): digest(sha, part) for part, sha in of.items()}
            encoding = text(content["encoding"], "encoding")
            before, policy = content.get("init_from"), content.get("on_nonfinite", "stop")
            return RunRecord(
                # What is not ours need not be on this machine for its results to be read.
                encoding=encoding if sources else str(parse(encoding)),
                seed=whole(content["seed"], "seed"),
                preset=text(content["preset"], "preset"),
                config=Config.from_dict(mapping(content["config"], "config")),
                task_version=whole(content.get("task_version", FIRST_TASK_VERSION), "task_version"),
                first_steps=whole(content["first_steps"], "first_steps", 1),
                data=None if content["data"] is None else digest(content["data"], "data"),
                version=text(content["version"], "version"),
                sources=sources,
                init_from=None if before is None else InitFrom.of(mapping(before, "init_from")),
                on_nonfinite=known_policy(text(policy, "on_nonfinite")),
                skipped_steps=whole(content.get("skipped_steps", 0), "skipped_steps"),
            )
        except KeyError as error:
            raise Failure(f"{self.record_file} is corrupt: {error} is missing") from error
        except ValueError as error:
            raise Failure(f"{self.record_file} is corrupt: {error}") from error

    def write_record(self, record: RunRecord) -> None:
        before = None if record.init_from is None else vars(record.init_from)
        content = {**vars(record), "config": record.config.as_dict(), "init_from": before}
        write_json(self.record_file, {"schema": 1, "kind": "run", **content})

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; none where there is no such file."""
        return read_lines(self.metrics_file) if self.metrics_file.exists() else []

    def add_metrics(self, content: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl. Errors: Failure where the disk refuses."""
        append_line(self.metrics_file, line_of(content))

    def keep_metrics_to(self, step: int) -> None:
        """Drop the lines of steps that will be taken again, and a line that a kill cut short."""
        kept = []
        if self.metrics_file.exists():
            for line in read_bytes(self.metrics_file).decode(errors="replace").split("\n"):
                try:
                    content = read_line(line)
                except ValueError:
                    break
                if content["step"] <= step:
                    kept.append(line + "\n")
        write_text(self.metrics_file, "".join(kept))

    def remove_partial(self) -> None:
        """Drop what a kill in the middle of writing left; it is never read."""
        for file in self.path.rglob(".*.partial"):
            file.unlink()

    def timings(self) -> dict[str, float]:
        """Seconds of each stage; none where there is no such file. Errors: Failure."""
        if not self.timings_file.exists():
            return {}
        content = read_json(self.timings_file, "timings")
        try:
            stages = mapping(content.get("seconds"), "seconds")
            return {text(stage, "stage"): number(s, stage, 0) for stage, s in stages.items()}
        except ValueError as error:
            why = f"{error}; remove it, it only times"
            raise Failure(f"{self.timings_file} is corrupt: {why}") from error

    def write_timing(self, stage: str, seconds: float) -> None:
        stages = self.timings() | {stage: round(seconds, 3)}
        write_json(self.timings_file, {"schema": 1, "kind": "timings", "seconds": stages})


def run_folder(root: Path, preset: str, encoding: Encoding, seed: int) -> RunFolder:
    """Where a run lives. Its parts are names, so nothing in them can lead elsewhere."""
    return RunFolder(root / preset / slug(str(encoding)) / f"seed-{seed}")


def find_runs(root: Path) -> list[RunFolder]:
    """Every run below `root`, sorted by path."""
    return [RunFolder(file.parent) for file in sorted(root.glob("*/*/seed-*/run.json"))]


def find_grids(
    root: Path,
    preset: str | None = None,
    names: Sequence[Name] | None = None,
    split: str = EVALUATION,
) -> list[Grid]:
    """The grids of a split over their runs' own lengths, below `root`: all, or those of `names`.

    Errors: Failure for a grid that is asked for and corrupt. Of `names`, another grid of the same
    run that is corrupt is told on stderr, and the runs of other encodings are not opened.
    UsageError where the runs of one encoding are of two versions of the user's file.
    """
    if names is None:
        folders = list(map(RunFolder, sorted(root.glob(f"{preset or '*'}/*/seed-*"))))
        _of_one_source(folders)
        return [
            grid for folder in folders for grid in _of_split(folder, list(_grids(folder)), split)
        ]
    result = []
    for encoding in dict.fromkeys(name.encoding for name in names):
        ways = [name for name in names if name.encoding == encoding]
        wanted = [str(name) for name in ways]
        paths = sorted(root.glob(f"{preset or '*'}/{slug(str(encoding))}/seed-*"))
        _of_one_source([RunFolder(path) for path in paths])
        for path in paths:
            folder = RunFolder(path)
            asked = [folder.grid_file(name.extrapolation, split=split) for name in ways]
            grids = [grid for grid in _grids(folder, asked) if grid.name in wanted]
            result += _of_split(folder, grids, split)
    return result


def _of_one_source(folders: Sequence[RunFolder]) -> None:
    """Errors: UsageError where two of the runs of an encoding in a preset are of different files:
    their seeds would be averaged as if they were of one."""
    first: dict[Path, tuple[RunFolder, dict[str, str]]] = {}
    for folder in folders:
        try:
            sources = folder.record().sources
        except Failure:  # told where it is asked for
            continue
        other, theirs = first.setdefault(folder.path.parent, (folder, sources))
        if sources != theirs:
            raise UsageError(
                f"{other.path} and {folder.path} were trained with different versions of "
                f"{', '.join(sources | theirs)}: train the older anew with --fresh, or keep the "
                "versions apart with --out"
            )


def _grids(folder: RunFolder, asked: Sequence[Path] | None = None) -> Iterator[Grid]:
    """All grids of a run. Errors: Failure for a corrupt one among those `asked` for, or of all."""
    for file in sorted(folder.path.glob("grid*.json")):
        try:
            yield grid_file.load(file)
        except Failure as error:
            if asked is None or file in asked:
                raise
            say(f"note: {error}")


def _of_split(folder: RunFolder, grids: list[Grid], split: str) -> list[Grid]:
    """Of a run's `grids` those of `split`; hard ones with the usual one that judges them."""
    chosen = _own(folder, [grid for grid in grids if grid.split == split])
    if split != EVALUATION:
        usual = _own(folder, [grid for grid in grids if grid.split == EVALUATION])
        for grid in chosen:
            grid.usual = next((other for other in usual if other.name == grid.name), None)
    return chosen


def _own(folder: RunFolder, grids: list[Grid]) -> list[Grid]:
    """Those of a run's `grids` that go to its own lengths, not to those of `score --max-digits`."""
    if not grids:
        return []
    try:
        own = folder.record().config.tested_digits
    except Failure:
        # A grid is worth showing without its record, where it is the only one of its name.
        if len({grid.name for grid in grids}) < len(grids):
            raise
        return grids
    return [grid for grid in grids if grid.max_digits == own]


def existing_run(path: Path) -> RunFolder:
    """The run at `path`. Errors: UsageError where there is none."""
    folder = RunFolder(path)
    if not folder.exists():
        raise UsageError(f"{path} holds no run: `tape-arith list` shows where runs are")
    return folder


def slug(name: str) -> str:
    """A name as part of a path that every file system takes."""
    return re.sub(r"[^A-Za-z0-9.+=_-]", "@", name)
