"""From runs to jobs: generate, train, score. No torch here.

A job is a call of a tape-arith command on a run's folder that can be repeated: it goes on where it
stopped, and what is done it leaves. Whether it is done is read from the files, whoever did it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.documents import InvalidValue, Part, Positive, Sha256, Text, validated
from tape_arith.arith.errors import Failure
from tape_arith.arith.files import parse_json, read_text, write_text
from tape_arith.arith.runs.command_lines import init_from_options, score_options
from tape_arith.arith.runs.datasets import dataset_folder
from tape_arith.arith.runs.folder import RunFolder, slug
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.scoring import grid_file
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.sweeps.sweep import Run
from tape_arith.arith.training.config import Config
from tape_arith.models.names.backends import AUTO, AttentionChoice

Kind = Literal["generate", "train", "score"]


@dataclass(frozen=True)
class How:
    """How jobs go about their work: of numbers it changes the rounding at most."""

    compute: AttentionChoice = AUTO
    curves: bool = True
    data: Path | None = None
    """Where datasets are written; None: problems are made as they are needed, the same ones."""
    workers: int = 0
    track: tuple[str, ...] = ()
    """Trackers that metrics go to as well."""


@dataclass(frozen=True)
class Job:
    """One call of a command."""

    id: str
    kind: Kind
    run: Run
    how: How
    depends: tuple[str, ...] = ()
    evaluation_set: EvaluationSet = DEFAULT_SET

    @property
    def dataset(self) -> Path | None:
        """Where the training problems are on disk, if they are to be."""
        data = self.how.data
        return None if data is None else dataset_folder(data, self.run.config, self.run.seed)

    @property
    def folder(self) -> RunFolder:
        """What it writes: two jobs on one folder never run at the same time."""
        if self.kind == "generate":
            return RunFolder(self.dataset or Path())
        return self.run.folder

    @property
    def grid(self) -> Path | None:
        """The file of the grid that it writes."""
        if self.kind != "score":
            return None
        return self.run.folder.grid_file(self.run.name.extrapolation, self.evaluation_set)

    @property
    def argv(self) -> list[str]:
        """What follows `tape-arith`."""
        run, how = self.run, self.how
        settings = [f"--set={key}={value}" for key, value in run.settings.items()]
        config = ["--preset", run.preset, *settings, "--seed", str(run.seed)]
        dataset = [] if self.dataset is None else [str(self.dataset)]
        if self.kind == "generate":
            return ["generate", *config, "--out", *dataset, "--workers", str(how.workers)]
        if self.kind == "train":
            where = [
                "--out",
                str(run.root),
                *(word for path in dataset for word in ("--data", path)),
            ]
            curves = [] if how.curves else ["--no-curves"]
            track = ["--track", ",".join(how.track)] if how.track else []
            name = ["--pe", run.name.encoding.own, *self._begun]
            rest = [*curves, *track, *how.compute.options]
            return ["train", *name, *config, *where, "--no-score", *rest]
        score = [
            "score",
            str(run.folder.path),
            *score_options(run.name.extrapolation, self.evaluation_set),
        ]
        return [*score, *how.compute.for_scoring.options]

    @property
    def _begun(self) -> list[str]:
        """How a run that begins from another is asked for."""
        source = self.run.source
        return [] if source is None else init_from_options(self.run.name, source.folder.path)

    def done(self) -> bool:
        """Whether its own files say so. Of problems on disk that is not asked: to make them again
        only looks at them."""
        if self.kind == "generate":
            return False
        record = own_record(self.run)
        if record is None:
            return False
        if self.kind == "train":
            return self.run.folder.finished()
        grid = self.read_grid()
        if grid is None or grid.name != str(self.run.name) or grid.budget != record.budget:
            return False
        if grid.seed != record.seed or not self.evaluation_set.matches(
            grid, self.run.config.tested_digits
        ):
            return False
        return grid.complete

    def read_grid(self) -> Grid | None:
        """What is there of the grid that it writes; None where nothing is, or nothing legible."""
        if self.grid is None or not self.grid.exists():
            return None
        try:
            return grid_file.load(self.grid)
        except Failure:
            return None

    def line(self) -> dict[str, Any]:
        """What jobs.jsonl says of it."""
        return {
            "id": self.id,
            "kind": self.kind,
            "argv": self.argv,
            "resources": {"slots": 1},
            "depends": list(self.depends),
            "folder": self.folder.path.as_posix(),
            "grid": None if self.grid is None else self.grid.as_posix(),
            "steps": self.run.config.steps,
            "config_sha256": self.run.config.sha256,
        }


def log_file(folder: Path, job: str) -> Path:
    """Where a job that runs as a process of its own writes what it says, in a sweep's folder."""
    return folder / "logs" / f"{slug(job.replace('/', '.'))}.log"


def plan(
    runs: Sequence[Run],
    how: How,
    out: Path,
    *,
    splits: Sequence[str] = (EVALUATION,),
) -> list[Job]:
    """The jobs of `runs` below `out`, each after those it depends on, in the order of `runs`."""
    jobs: dict[str, Job] = {}

    def add(kind: Kind, where: Path, run: Run, *depends: Job, **more: Any) -> Job:
        name = where.relative_to(out) if where.is_relative_to(out) else where
        key = f"{kind}/{name.as_posix().removesuffix('.json')}"
        if key not in jobs:
            jobs[key] = Job(key, kind, run, how, tuple(job.id for job in depends), **more)
        return jobs[key]

    def train(run: Run) -> Job:
        before: list[Job] = []
        if how.data is not None:
            before = [add("generate", dataset_folder(how.data, run.config, run.seed), run)]
        if run.source is not None:
            before.append(train(run.source))
        return add("train", run.folder.path, run, *before)

    for run in runs:
        folder = run.folder
        trained = train(run)
        for split in splits:
            evaluation_set = EvaluationSet(split)
            grid = folder.grid_file(run.name.extrapolation, evaluation_set)
            add("score", grid, run, trained, evaluation_set=evaluation_set)
    return list(jobs.values())


def finished(jobs: Sequence[Job]) -> set[str]:
    """The ids of the jobs that need not be done: their files are there, or all that depends on
    them is done already (a run that is scored needs no weights)."""
    result: set[str] = set()
    needs: dict[str, list[str]] = {job.id: [] for job in jobs}
    for job in jobs:
        for other in job.depends:
            needs[other].append(job.id)
    for job in reversed(jobs):
        later = needs[job.id]
        if (later and all(key in result for key in later)) or job.done():
            result.add(job.id)
    return result


def own_record(run: Run) -> RunRecord | None:
    """The record in the folder of `run`, if it is of this very run; None where there is none, or
    that of another one: the job finds out and says what is wrong."""
    if not run.folder.exists():
        return None
    try:
        record = run.folder.record()
    except Failure:
        return None
    same = (
        record.config == run.config
        and record.encoding == str(run.name.encoding)
        and record.seed == run.seed
        and record.is_current
    )
    return record if same else None


@lru_cache(maxsize=64)
def grid_tokens(config: Config, split: str = EVALUATION) -> int:
    """Tokens of all problems of a grid, by those of its first block."""
    bucket = Bucket(config.task, config.tested_digits, config.evaluation_seed, split)
    block = bucket.problems(0, bucket.num_pairs)
    return int(block.lengths.sum()) * config.problems_per_cell


def write_jobs(jobs: Sequence[Job], folder: Path) -> None:
    """jobs.jsonl: what there is to do, for people, `status` and other engines."""
    write_text(folder / "jobs.jsonl", "".join(json.dumps(job.line()) + "\n" for job in jobs))


def read_jobs(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of jobs.jsonl. Errors: Failure."""
    file = folder / "jobs.jsonl"
    for line in read_text(file).splitlines():
        try:
            job = validated(parse_json(line), _JobLine)
            if job.kind == "score" and job.grid is None:
                raise InvalidValue("'grid' is missing")
        except ValueError as error:
            raise Failure(f"{file} is corrupt: {error}: plan the sweep again") from error
        yield job.model_dump()


class _JobLine(Part):
    """A line of jobs.jsonl: see `Job.line`."""

    id: Text
    kind: Kind
    argv: list[str]
    resources: dict[Text, Positive]
    depends: list[Text]
    folder: Text
    grid: Text | None
    steps: Positive
    config_sha256: Sha256
