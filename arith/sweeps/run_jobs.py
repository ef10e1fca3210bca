"""From nothing to a heatmap: generate, train, score and draw, never a thing twice."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tape_arith.arith.compare.words import figure_path, summary
from tape_arith.arith.errors import EXIT_DONE, UsageError
from tape_arith.arith.figures.heatmap import draw
from tape_arith.arith.figures.table import rows, to_csv, to_markdown
from tape_arith.arith.files import write_text
from tape_arith.arith.runs.build import check_trainable, training_bucket
from tape_arith.arith.runs.datasets import generate_dataset
from tape_arith.arith.runs.find import find_grids
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.score import score_run
from tape_arith.arith.runs.train import train_run
from tape_arith.arith.stopping import Stopped, Stopper
from tape_arith.arith.sweeps.engines import LOCAL, elsewhere
from tape_arith.arith.sweeps.engines.engine import Ended, Engine
from tape_arith.arith.sweeps.engines.in_process import InProcess
from tape_arith.arith.sweeps.engines.local import Local, visible_gpus
from tape_arith.arith.sweeps.jobs import How, Job, finished, plan
from tape_arith.arith.sweeps.scheduler import Outcome, conduct
from tape_arith.arith.sweeps.sweep import Run
from tape_arith.arith.terminal import say
from tape_arith.arith.training.config import Config
from tape_arith.models.names.backends import AUTO
from tape_arith.models.names.parse import Name


def run_all(
    names: Sequence[Name],
    seeds: Sequence[int],
    preset: str,
    config: Config,
    *,
    runs: Path,
    how: How,
    slots: int | None = None,
    engine: str = LOCAL,
    stopper: Stopper,
) -> Outcome:
    """All encodings of the first seed, then of the next: what is there when the time is up is a
    whole comparison. It is drawn, unless nothing came of this call but failures."""
    sent = elsewhere(engine, slots, folder := runs / "sweeps" / "run")
    if not names or not seeds:
        raise UsageError("nothing to run: name encodings with --pe and seeds with --seeds")
    for name in names:
        check_trainable(config, name, how.compute if sent is None else AUTO)
    jobs = plan([Run(name, s, preset, config, runs) for s in seeds for name in names], how, runs)
    tell_what_is_done(jobs)
    outcome = conduct_here(jobs, slots or 1, folder, stopper, sent=sent)
    if not outcome.failed or any(end.job.grid for end in outcome.done):
        draw_comparison(names, runs, preset)
    return outcome


def conduct_here(
    jobs: Sequence[Job],
    slots: int,
    folder: Path,
    stopper: Stopper,
    ended: Callable[[Ended], None] = lambda end: None,
    *,
    sent: Engine | None = None,
) -> Outcome:
    """Run `jobs` on this machine: in this process with one slot, else in as many subprocesses,
    which log to `folder`; or where `sent` sends them."""
    engine: Engine = sent or InProcess(lambda job: perform(job, stopper))
    if sent is None and slots > 1:
        engine = Local(slots, folder, visible_gpus())
    generated: dict[Path | None, float] = {}

    def started(job: Job) -> None:
        if sent is None and slots > 1:
            say(f"started: {job.id}")

    def after(end: Ended) -> None:
        job = end.job
        if job.kind == "generate":
            generated[job.dataset] = end.seconds
        elif job.kind == "train" and job.dataset in generated and job.done():
            record_generation(job, generated[job.dataset])
        grid = job.read_grid()
        if grid is not None and grid.complete and end.code == EXIT_DONE:
            say(summary(grid))
        ended(end)

    return conduct(jobs, engine, stopper, started=started, ended=after)


def perform(job: Job, should_stop: Callable[[], bool]) -> bool:
    """Do a job in this process, as its argv would in another; whether it came to its end.

    Errors: UsageError and Failure, as its command.
    """
    run, how = job.run, job.how
    if job.kind == "generate":
        assert job.dataset is not None
        bucket, count = training_bucket(run.config, run.seed), run.config.num_problems
        try:
            generate_dataset(
                job.dataset, bucket, count, workers=how.workers, should_stop=should_stop
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
            TrainOptions(job.dataset, how.compute, how.curves, how.track),
            source=None if run.source is None else run.source.folder,
            only_positional=origin is not None and origin.only_positional,
            should_stop=should_stop,
        )
        return folder.finished()
    grid = score_run(
        run.folder,
        run.name.extrapolation,
        evaluation_set=job.evaluation_set,
        compute=how.compute.for_scoring,
        should_stop=should_stop,
    )
    return grid.complete


def record_generation(job: Job, seconds: float) -> None:
    """How long its problems took to write, or to look at where they were there: once."""
    folder = job.run.folder
    if "generate" not in folder.timings():
        folder.write_timing("generate", seconds)


def tell_what_is_done(jobs: Sequence[Job]) -> None:
    """The means of what an earlier call scored."""
    done = finished(jobs)
    for job in jobs:
        grid = job.read_grid() if job.id in done else None
        if grid is not None and grid.complete:
            say(summary(grid))


def draw_comparison(names: Sequence[Name], runs: Path, preset: str) -> None:
    """The heatmap and the table of what is scored so far, beside the runs of the preset."""
    grids = find_grids(runs, preset, names)
    scored = [[g for g in grids if g.name == str(name)] for name in names]
    panels = [panel for panel in scored if panel]
    if not panels:
        say("nothing is scored yet, so nothing is drawn")
        return
    figure = figure_path(runs, panels)
    draw(panels, figure)
    write_text(runs / preset / "table.md", to_markdown(rows(panels)))
    write_text(runs / preset / "table.csv", to_csv(rows(panels)))
    print(figure)
