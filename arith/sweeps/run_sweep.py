"""Plan and run a sweep, or the jobs of `run`: on this machine or through a remote engine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tape_arith.arith.compare.words import MOST_NAMED, figure_path, summary
from tape_arith.arith.errors import EXIT_DONE, Failure, UsageError
from tape_arith.arith.figures.heatmap import draw
from tape_arith.arith.figures.tables import rows, to_csv, to_markdown
from tape_arith.arith.files import write_text
from tape_arith.arith.runs.build import TrainOptions, check_trainable, training_bucket
from tape_arith.arith.runs.datasets import generate_dataset
from tape_arith.arith.runs.folder import ExpectedRun, find_grids
from tape_arith.arith.runs.lock import lock_folder
from tape_arith.arith.runs.score import score_run
from tape_arith.arith.runs.train import train_run
from tape_arith.arith.stopping import Stopped, Stopper
from tape_arith.arith.sweeps.engines.engine import LOCAL, Ended, Engine, remote_engine
from tape_arith.arith.sweeps.engines.local import InProcess, Local, visible_gpus
from tape_arith.arith.sweeps.estimate import forecast, forecast_total
from tape_arith.arith.sweeps.jobs import (
    Job,
    JobLine,
    JobOptions,
    done_jobs,
    plan,
    read_jobs,
    write_jobs,
)
from tape_arith.arith.sweeps.scheduler import Outcome, run_jobs
from tape_arith.arith.sweeps.status import forget_ends, note_end
from tape_arith.arith.sweeps.sweep import Run, Sweep, sweep_folder
from tape_arith.arith.terminal import say
from tape_arith.arith.training.config import Config
from tape_arith.models.backends import AUTO
from tape_arith.models.names.parse import Name


@dataclass(frozen=True)
class PlannedSweep:
    """A sweep that can run: every encoding was built once, every job has its cost."""

    sweep: Sweep
    file: str
    out: Path
    slots: int
    jobs: list[Job]
    forecast: dict[str, Any]
    """What the jobs cost and about how long they take here: stable keys, for `--json`."""

    def run(self, stopper: Stopper, remote: Engine | None = None) -> Outcome:
        """Run what is not done, here or through `remote`.

        Raises Busy if another process runs a sweep of this name.
        """
        folder = sweep_folder(self.sweep, self.out)

        def ended(end: Ended) -> None:
            note_end(folder, end.job.id, end.code, end.reason, end.log)

        with lock_folder(folder, "sweep"):
            say(f"{self.sweep.name}: {forecast_total(self.forecast)}")
            warn_if_overwriting(self.jobs, folder, self.file)
            write_jobs(self.jobs, folder)
            forget_ends(folder)
            return _run_jobs(self.jobs, self.slots, folder, stopper, ended, remote=remote)

    def report(self, outcome: Outcome) -> dict[str, Any]:
        """The state of each job, with stable keys for `--json`."""
        done = done_jobs(self.jobs)
        failed = {end.job.id: end for end in outcome.failed}
        states = []
        for job in self.jobs:
            end = failed.get(job.id)
            state = "done" if job.id in done else "failed" if end else "to do"
            log = str(end.log) if end and end.log else None
            states.append({"id": job.id, "state": state, "reason": end and end.reason, "log": log})
        return {"schema": 1, "sweep": self.sweep.name, "jobs": states}


def plan_sweep(
    sweep: Sweep,
    file: str,
    out: Path,
    options: JobOptions,
    slots: int | None = None,
    *,
    here: bool = True,
) -> PlannedSweep:
    """Plan a sweep and estimate its cost, by default with a slot a GPU, or one.

    If jobs do not run `here`, the attention and the speed of this machine are not asked. Raises
    UsageError if a run could not be trained and scored here.
    """
    runs = sweep.runs(out)
    for config, name in dict.fromkeys((run.config, run.name) for run in runs):
        check_trainable(config, name, options.compute if here else AUTO)
    jobs = plan(runs, options, out, sweep.splits)
    slots = slots or max(1, len(visible_gpus()))
    return PlannedSweep(sweep, file, out, slots, jobs, forecast(sweep, jobs, slots, here))


def warn_if_overwriting(jobs: Sequence[Job], folder: Path, file: str) -> None:
    """Warn if `folder` lists trainings that the sweep in `file` does not have with these settings.

    Two sweep files of one name share a folder: the list of jobs and the tables are replaced.
    """
    try:
        before = _trainings(read_jobs(folder)) if (folder / "jobs.jsonl").exists() else {}
    except Failure:  # a corrupt list is replaced without a word
        return
    after = _trainings(job.line() for job in jobs)
    dropped = [line for key, line in before.items() if key not in after]
    if dropped:
        old, new = _settings(dropped), _settings(after.values())
        say(
            f"note: {folder} was that of {_describe(dropped, old - new)}; its list of jobs and its "
            f"tables are now those of {file}: {_describe(after.values(), new - old)}. Runs stay; "
            "if these are two sweeps, give their files names of their own"
        )


def _trainings(lines: Iterable[JobLine]) -> Mapping[tuple[str, ExpectedRun], JobLine]:
    return {(line.id, line.run): line for line in lines if line.kind == "train"}


def _settings(lines: Iterable[JobLine]) -> set[str]:
    """The settings that differ from the preset's, as "steps=4"."""
    words = (word for line in lines for word in line.argv)
    return {word.removeprefix("--set=") for word in words if word.startswith("--set=")}


def _describe(lines: Iterable[JobLine], settings: Iterable[str]) -> str:
    """ "mini (steps=4): rope, fire" """
    folders = [Path(line.folder) for line in lines]
    presets = dict.fromkeys(folder.parent.parent.name for folder in folders)
    names = list(dict.fromkeys(folder.parent.name for folder in folders))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    own = f" ({', '.join(sorted(settings))})" if settings else ""
    return f"{', '.join(presets)}{own}: {', '.join(names[:MOST_NAMED])}{more}"


def run_all(
    names: Sequence[Name],
    seeds: Sequence[int],
    preset: str,
    config: Config,
    options: JobOptions,
    *,
    out: Path,
    slots: int | None = None,
    engine: str = LOCAL,
    stopper: Stopper,
) -> Outcome:
    """Run all encodings with the first seed, then with the next, so that what is done is a whole
    comparison; draw it, unless this call brought nothing but failures."""
    remote = remote_engine(engine, slots, folder := out / "sweeps" / "run")
    if not names or not seeds:
        raise UsageError("nothing to run: name encodings with --pe and seeds with --seeds")
    for name in names:
        check_trainable(config, name, options.compute if remote is None else AUTO)
    runs = [Run(name, seed, preset, config, out) for seed in seeds for name in names]
    jobs = plan(runs, options, out)
    for job in jobs:
        if grid := job.complete_grid():
            say(summary(grid))
    outcome = _run_jobs(jobs, slots or 1, folder, stopper, remote=remote)
    if not outcome.failed or any(end.job.kind == "score" for end in outcome.done):
        _draw_comparison(names, out, preset)
    return outcome


def _run_jobs(
    jobs: Sequence[Job],
    slots: int,
    folder: Path,
    stopper: Stopper,
    ended: Callable[[Ended], None] = lambda end: None,
    *,
    remote: Engine | None = None,
) -> Outcome:
    """Run `jobs` in this process with one slot, else in subprocesses, or through `remote`."""
    engine = remote or InProcess(lambda job: perform(job, stopper))
    local = remote is None and slots > 1
    if local:
        engine = Local(slots, folder, visible_gpus())
    generated: dict[Path | None, float] = {}

    def started(job: Job) -> None:
        if local:
            say(f"started: {job.id}")

    def after(end: Ended) -> None:
        job = end.job
        if job.kind == "generate":
            generated[job.dataset] = end.seconds
        elif job.kind == "train" and job.dataset in generated and job.done():
            if "generate" not in job.folder.timings():
                job.folder.write_timing("generate", generated[job.dataset])
        elif end.code == EXIT_DONE and (grid := job.complete_grid()):
            say(summary(grid))
        ended(end)

    return run_jobs(jobs, engine, stopper, started=started, ended=after)


def perform(job: Job, should_stop: Callable[[], bool]) -> bool:
    """Do a job in this process, as its command would in another; return whether it is done.

    Raises UsageError and Failure, as its command.
    """
    run, options = job.run, job.options
    if job.kind == "generate":
        assert job.dataset is not None
        bucket, count = training_bucket(run.config, run.seed), run.config.num_problems
        try:
            generate_dataset(
                job.dataset, bucket, count, workers=options.workers, should_stop=should_stop
            )
        except Stopped:
            return False
        return True
    if job.kind == "train":
        origin = run.name.encoding.origin
        folder = train_run(
            run.root,
            run.preset,
            run.config,
            run.name,
            run.seed,
            TrainOptions(job.dataset, options.compute, options.curves, options.trackers),
            source=None if run.source is None else run.source.folder,
            only_positional=origin is not None and origin.only_positional,
            should_stop=should_stop,
        )
        return folder.finished()
    grid = score_run(
        run.folder,
        run.name.extrapolation,
        evaluation_set=job.evaluation_set,
        compute=options.compute.for_scoring,
        should_stop=should_stop,
    )
    return grid.complete


def _draw_comparison(names: Sequence[Name], out: Path, preset: str) -> None:
    """Draw the heatmap and write the tables of what is scored, beside the runs of the preset."""
    grids = find_grids(out, preset, names)
    panels = [[grid for grid in grids if grid.name == str(name)] for name in names]
    panels = [panel for panel in panels if panel]
    if not panels:
        say("nothing is scored yet, so nothing is drawn")
        return
    figure = figure_path(out, panels)
    draw(panels, figure)
    write_text(out / preset / "table.md", to_markdown(rows(panels)))
    write_text(out / preset / "table.csv", to_csv(rows(panels)))
    print(figure)
