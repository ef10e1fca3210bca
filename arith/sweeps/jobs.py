"""From runs to jobs: generate, train, score. No torch here.

A job is a call of a tape-arith command that can be repeated: it resumes where it stopped, and does
nothing if it is done. Whether it is done is read from the files of its run, whoever wrote them.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.documents import InvalidValue, Part, Text, validated
from tape_arith.arith.errors import Failure
from tape_arith.arith.files import parse_json, read_text, write_text
from tape_arith.arith.runs.command_lines import init_from_options, score_options
from tape_arith.arith.runs.datasets import dataset_folder
from tape_arith.arith.runs.folder import ExpectedRun, Progress, RunFolder, slug
from tape_arith.arith.scoring import grid_file
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.sweeps.sweep import Run
from tape_arith.arith.training.config import Config
from tape_arith.models.backends import AUTO, AttentionChoice

Kind = Literal["generate", "train", "score"]


@dataclass(frozen=True)
class JobOptions:
    """Options of all jobs of a call. They change no number of a run beyond rounding.

    compute   attention backend and compilation
    curves    whether training scores the small grid on the way
    data      where datasets are written; None makes the same problems as they are needed
    workers   processes that generate a dataset; 0 for all cores
    trackers  names of trackers that get every line of metrics.jsonl too
    """

    compute: AttentionChoice = AUTO
    curves: bool = True
    data: Path | None = None
    workers: int = 0
    trackers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One call of a command; `evaluation_set` is that of a score job."""

    id: str
    kind: Kind
    run: Run
    options: JobOptions
    depends: tuple[str, ...] = ()
    evaluation_set: EvaluationSet = DEFAULT_SET

    @property
    def dataset(self) -> Path | None:
        """The folder of the training problems, if they are on disk."""
        data = self.options.data
        return None if data is None else dataset_folder(data, self.run.config, self.run.seed)

    @property
    def folder(self) -> RunFolder:
        """The folder that the job writes: two jobs on one folder never run at the same time."""
        return RunFolder(self.dataset or Path()) if self.kind == "generate" else self.run.folder

    @property
    def argv(self) -> list[str]:
        """The command line after `tape-arith`."""
        run, options = self.run, self.options
        if self.kind == "score":
            way = score_options(run.name.extrapolation, self.evaluation_set)
            return ["score", str(run.folder.path), *way, *options.compute.for_scoring.options]
        settings = [f"--set={key}={value}" for key, value in run.settings.items()]
        config = ["--preset", run.preset, *settings, "--seed", str(run.seed)]
        dataset = [] if self.dataset is None else [str(self.dataset)]
        if self.kind == "generate":
            return ["generate", *config, "--out", *dataset, "--workers", str(options.workers)]
        argv = ["train", "--pe", run.name.encoding.own]
        if run.source is not None:
            argv += init_from_options(run.name, run.source.folder.path)
        argv += [*config, "--out", str(run.root)]
        argv += ["--data", *dataset] if dataset else []
        argv += ["--no-score"] + ([] if options.curves else ["--no-curves"])
        argv += ["--track", ",".join(options.trackers)] if options.trackers else []
        return argv + options.compute.options

    def done(self) -> bool:
        """Whether the files of the job's run say that it is done."""
        if self.kind == "train":  # without reading all metrics
            record = self.folder.matching_record(self.run.expected)
            return record is not None and self.folder.is_trained(record)
        return self.line().progress().done

    def complete_grid(self) -> Grid | None:
        """The grid of a score job that is done."""
        if self.kind != "score" or not self.done():
            return None
        return grid_file.load(
            self.folder.grid_file(self.run.name.extrapolation, self.evaluation_set)
        )

    def line(self) -> "JobLine":
        """The job's line of jobs.jsonl."""
        extrapolation = self.run.name.extrapolation
        return JobLine(
            id=self.id,
            kind=self.kind,
            argv=self.argv,
            depends=list(self.depends),
            folder=self.folder.path.as_posix(),
            run=self.run.expected,
            extrapolation=None if extrapolation is None else str(extrapolation),
            split=self.evaluation_set.split,
        )


class JobLine(Part):
    """A line of jobs.jsonl: a job, for people, `status` and other engines."""

    id: Text
    kind: Kind
    argv: list[str]
    depends: list[Text]
    folder: Text
    run: ExpectedRun
    extrapolation: Text | None
    split: Text

    def progress(self) -> Progress:
        """How far the job is, by the files of its run; a dataset is checked by `generate` alone."""
        folder = RunFolder(Path(self.folder))
        if self.kind == "train":
            return folder.train_progress(self.run)
        if self.kind == "score":
            return folder.score_progress(self.run, self.extrapolation, EvaluationSet(self.split))
        return Progress()


def log_file(folder: Path, job: str) -> Path:
    """The log of a job that runs as a process of its own, in the sweep's folder."""
    return folder / "logs" / f"{slug(job.replace('/', '.'))}.log"


def plan(
    runs: Sequence[Run], options: JobOptions, out: Path, splits: Sequence[str] = (EVALUATION,)
) -> list[Job]:
    """The jobs of `runs` below `out`, each after those it depends on, in the order of `runs`."""
    jobs: dict[str, Job] = {}

    def add(
        kind: Kind,
        target: Path,
        run: Run,
        *depends: Job,
        evaluation_set: EvaluationSet = DEFAULT_SET,
    ) -> Job:
        name = target.relative_to(out) if target.is_relative_to(out) else target
        key = f"{kind}/{name.as_posix().removesuffix('.json')}"
        if key not in jobs:
            ids = tuple(job.id for job in depends)
            jobs[key] = Job(key, kind, run, options, ids, evaluation_set)
        return jobs[key]

    def train(run: Run) -> Job:
        depends: list[Job] = []
        if options.data is not None:
            dataset = dataset_folder(options.data, run.config, run.seed)
            depends.append(add("generate", dataset, run))
        if run.source is not None:
            depends.append(train(run.source))
        return add("train", run.folder.path, run, *depends)

    for run in runs:
        trained = train(run)
        for evaluation_set in map(EvaluationSet, splits):
            grid = run.folder.grid_file(run.name.extrapolation, evaluation_set)
            add("score", grid, run, trained, evaluation_set=evaluation_set)
    return list(jobs.values())


def done_jobs(jobs: Sequence[Job]) -> set[str]:
    """The ids of the jobs that need not run.

    Their files are there, or all jobs that depend on them are done: a scored run needs no weights.
    """
    done: set[str] = set()
    dependents: dict[str, list[str]] = {job.id: [] for job in jobs}
    for job in jobs:
        for other in job.depends:
            dependents[other].append(job.id)
    for job in reversed(jobs):
        later = dependents[job.id]
        if (later and done.issuperset(later)) or job.done():
            done.add(job.id)
    return done


@lru_cache(maxsize=64)
def grid_tokens(config: Config, split: str = EVALUATION) -> int:
    """Tokens of all problems of a grid, by those of its first block."""
    bucket = Bucket(config.task, config.tested_digits, config.evaluation_seed, split)
    block = bucket.problems(0, bucket.num_pairs)
    return int(block.lengths.sum()) * config.problems_per_cell


def write_jobs(jobs: Sequence[Job], folder: Path) -> None:
    """Write jobs.jsonl in a sweep's folder. Raises Failure."""
    lines = (json.dumps(job.line().model_dump()) + "\n" for job in jobs)
    write_text(folder / "jobs.jsonl", "".join(lines))


def read_jobs(folder: Path) -> Iterator[JobLine]:
    """Read the lines of jobs.jsonl. Raises Failure."""
    file = folder / "jobs.jsonl"
    for line in read_text(file).splitlines():
        try:
            yield validated(parse_json(line), JobLine)
        except (InvalidValue, ValueError) as error:
            raise Failure(f"{file} is corrupt: {error}: plan the sweep again") from error
