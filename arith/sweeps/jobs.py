"""Plan the jobs of runs (generate, train, score), and tell which are done.

A job is one call of a tape-arith command. A repeated job resumes where it stopped, and does nothing
if it is done. Only the files of its run decide whether it is done, whichever process wrote
them. Never imports torch.
"""

import shlex
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.data.dataset import Manifest
from tape_arith.arith.data.write_dataset import generate_dataset
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import slug
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.registry.names import Name
from tape_arith.arith.runs.command_lines import init_from_options, score_options
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.preset import changed_settings
from tape_arith.arith.runs.request import Request
from tape_arith.arith.runs.run import RunState
from tape_arith.arith.stopping import Stopped, Stopper
from tape_arith.arith.terminal import say


@dataclass(frozen=True)
class Progress:
    """Progress of a job: steps of a training, or blocks of a grid.

    done  whether a sweep would skip the job
    """

    done: bool = False
    running: bool = False
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True)
class Job(ABC):
    """One call of a command for a run. A subclass is a kind of job."""

    kind: ClassVar[str]

    id: str
    request: Request
    options: TrainOptions
    depends: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder that the job writes: two jobs on one folder never run at the same time."""
        return self.request.run.path

    @property
    @abstractmethod
    def argv(self) -> list[str]:
        """The command line after `tape-arith`."""

    @abstractmethod
    def progress(self) -> Progress:
        """Read from files how far the job is. Raises Failure if a file is corrupt."""

    def done(self) -> bool:
        """Return whether the files say that the job is done."""
        with suppress(Failure):  # corrupt, as `status` says
            return self.progress().done
        return False

    @abstractmethod
    def cost(self) -> tuple[int, float]:
        """Count the tokens that the whole job reads and its useful FLOPs.

        Raises Failure if a user's encoding cannot list its matrix products.
        """

    @abstractmethod
    def perform(self, stopper: Stopper) -> bool:
        """Do the job in this process, as its command would; return whether it is complete.

        Raises UsageError and Failure where the command does.
        """

    @property
    def _config_options(self) -> list[str]:
        request = self.request
        changed = changed_settings(request.config, request.preset)
        settings = [f"--set={key}={value}" for key, value in changed.items()]
        return ["--preset", request.preset, *settings, "--seed", str(request.seed)]


class GenerateJob(Job):
    """Writes the dataset `options.data`, which a training of this run reads."""

    kind = "generate"

    @property
    def folder(self) -> Path:
        assert self.options.data is not None, "a dataset is written to a folder"
        return self.options.data

    @property
    def argv(self) -> list[str]:
        return ["generate", *self._config_options, "--out", str(self.folder)]

    def progress(self) -> Progress:
        try:
            manifest = Manifest.load(self.folder)
        except (UsageError, Failure):  # the job itself says what is wrong
            return Progress()
        return Progress(manifest.holds(*self._problems))

    def cost(self) -> tuple[int, float]:
        return 0, 0.0

    def perform(self, stopper: Stopper) -> bool:
        try:
            generate_dataset(self.folder, *self._problems, should_stop=stopper)
        except Stopped:
            if stopper.time_is_up:
                command = shlex.join(["tape-arith", *self.argv])
                say(
                    "the time limit ended before the problems were generated, and a part of them "
                    f"is not kept: raise it, or run `{command}` first"
                )
            return False
        return True

    @property
    def _problems(self) -> tuple[Bucket, int]:
        request = self.request
        return request.config.bucket(request.seed), request.config.num_problems


class TrainJob(Job):
    """Trains a run."""

    kind = "train"

    @property
    def argv(self) -> list[str]:
        request, options = self.request, self.options
        argv = ["train", "--pe", request.name.encoding.own]
        if request.source is not None:
            argv += init_from_options(request.name, request.source.run.path)
        argv += [*self._config_options, "--runs", str(request.root)]
        argv += ["--data", str(options.data)] if options.data else []
        argv += ["--no-score"] + ([] if options.curves else ["--no-curves"])
        argv += ["--track", ",".join(options.trackers)] if options.trackers else []
        argv += ["--on-nonfinite", options.on_nonfinite] if options.on_nonfinite else []
        return argv + options.compute.options

    def progress(self) -> Progress:
        return training_progress(self.request.state())

    def done(self) -> bool:
        with suppress(Failure):
            return self.request.state().trained  # without reading the metrics
        return False

    def cost(self) -> tuple[int, float]:
        from tape_arith.arith.decoders.cost import training_flops, training_tokens

        config, name = self.request.config, Name(self.request.name.encoding)
        return training_tokens(config), training_flops(config, name)

    def perform(self, stopper: Stopper) -> bool:
        from tape_arith.arith.training.session import train_run

        request, origin = self.request, self.request.name.encoding.origin
        run = train_run(
            request,
            self.options,
            source=None if request.source is None else request.source.run,
            only_positional=origin is not None and origin.only_positional,
            should_stop=stopper,
        )
        return run.state().trained


@dataclass(frozen=True)
class ScoreJob(Job):
    """Scores a trained run on `evaluation_set`."""

    kind = "score"

    evaluation_set: EvaluationSet = DEFAULT_SET

    @property
    def argv(self) -> list[str]:
        compute = self.options.compute.for_scoring
        scoring = score_options(self.request.name.extrapolation, self.evaluation_set)
        return ["score", str(self.folder), *scoring, *compute.options]

    def progress(self) -> Progress:
        request, grid = self.request, self.request.grid(self.evaluation_set)
        file = request.run.grid_file(request.name.extrapolation, self.evaluation_set)
        running = request.state().activity == f"score {file.name}"
        if grid is None:
            return Progress(running=running)
        blocks = grid.evaluation.problems_per_cell
        return Progress(grid.complete, running, grid.blocks_done, blocks)

    def cost(self) -> tuple[int, float]:
        from tape_arith.arith.decoders.cost import grid_tokens, training_flops_a_token

        config, name = self.request.config, Name(self.request.name.encoding)
        tokens = grid_tokens(config, self.evaluation_set.split)
        # A forward takes a third of the FLOPs of a training step.
        flops = training_flops_a_token(name, config) / 3
        return tokens, tokens * flops

    def perform(self, stopper: Stopper) -> bool:
        from tape_arith.arith.scoring.session import score_run

        try:
            grid = score_run(
                self.request.run,
                self.request.name.extrapolation,
                evaluation_set=self.evaluation_set,
                compute=self.options.compute.for_scoring,
                should_stop=stopper,
            )
        except Stopped:
            return False
        return grid.complete


def training_progress(state: RunState) -> Progress:
    """Return how far a training is. Raises Failure if its files are corrupt."""
    running = state.activity == "train"
    if not state.exists:
        return Progress(running=running)
    loss = state.metrics[-1]["loss"] if state.metrics else None
    steps = state.record.config.steps
    return Progress(state.trained, running, state.step, steps, loss, state.seconds_left)


class JobEnd(NamedTuple):
    """The end of a job: exit code (75: run it again), last message, log if it has one."""

    job: Job
    code: int
    reason: str = ""
    log: Path | None = None


def log_file(folder: Path, job: str) -> Path:
    """Return the log of a job that runs as a process of its own, in the sweep's folder."""
    return folder / "logs" / f"{slug(job.replace('/', '.'))}.log"


def plan(
    requests: Sequence[Request],
    options: TrainOptions,
    out: Path,
    splits: Sequence[str] = (EVALUATION,),
    *,
    data: Path | None = None,
) -> list[Job]:
    """Return the jobs of `requests` below `out`, each after the jobs that it depends on.

    data  the folder where datasets are written; with None, training makes the same problems itself

    Raises UsageError if `options` name a dataset.
    """
    if options.data is not None:
        raise UsageError("a dataset belongs to one training: many runs take a folder of datasets")
    jobs: dict[str, Job] = {}

    def dataset(request: Request) -> Path | None:
        return None if data is None else request.config.dataset_folder(data, request.seed)

    def add(kind: type[Job], target: Path, request: Request, *depends: Job, **facts: Any) -> Job:
        name = target.relative_to(out) if target.is_relative_to(out) else target
        key = f"{kind.kind}/{name.as_posix().removesuffix('.json')}"
        own, ids = replace(options, data=dataset(request)), tuple(job.id for job in depends)
        return jobs.setdefault(key, kind(key, request, own, ids, **facts))

    def train(request: Request) -> Job:
        depends: list[Job] = []
        if folder := dataset(request):
            depends.append(add(GenerateJob, folder, request))
        if request.source is not None:
            depends.append(train(request.source))
        return add(TrainJob, request.run.path, request, *depends)

    for request in requests:
        trained = train(request)
        for evaluation_set in map(EvaluationSet, splits):
            grid = request.run.grid_file(request.name.extrapolation, evaluation_set)
            add(ScoreJob, grid, request, trained, evaluation_set=evaluation_set)
    return list(jobs.values())


def done_jobs(jobs: Sequence[Job]) -> set[str]:
    """Return the ids of the jobs that need not run.

    A job need not run if its files are there, or if all jobs that depend on it are done, because a
    scored run needs no weights.
    """
    done, dependents = set[str](), defaultdict[str, list[str]](list)
    for job in reversed(jobs):  # each follows the jobs that it depends on
        later = dependents[job.id]
        if (later and done.issuperset(later)) or job.done():
            done.add(job.id)
        for earlier in job.depends:
            dependents[earlier].append(job.id)
    return done
