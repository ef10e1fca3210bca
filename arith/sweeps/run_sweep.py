"""Plan and run the jobs of a sweep or of the command `run`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tape_arith.arith.compare.board import Board
from tape_arith.arith.data.dataset import FILE
from tape_arith.arith.decoders.build import check_trainable
from tape_arith.arith.errors import EXIT_USAGE, Failure, UsageError
from tape_arith.arith.files import write_text
from tape_arith.arith.lock import lock_folder
from tape_arith.arith.runs.options import AUTO, Compute, TrainOptions
from tape_arith.arith.runs.request import Request
from tape_arith.arith.sharing.pack import checked_archive, pack
from tape_arith.arith.stopping import Stopper, stopping
from tape_arith.arith.sweeps.engines import Engine, remote_engine
from tape_arith.arith.sweeps.engines.local import local_engine
from tape_arith.arith.sweeps.engines.worker import JobState, read_state, state_file, write_state
from tape_arith.arith.sweeps.estimate import Plan
from tape_arith.arith.sweeps.jobs import Job, JobEnd, ScoreJob, TrainJob, log_file, plan
from tape_arith.arith.sweeps.results import draw_comparison, leaderboard, write_tables
from tape_arith.arith.sweeps.run_jobs import Outcome, run_jobs, say_result, with_files
from tape_arith.arith.sweeps.slots import Slots, choose_slots
from tape_arith.arith.sweeps.sweep import RUN, Sweep, sweep_copy, sweep_folder
from tape_arith.arith.terminal import say
from tape_arith.arith.training.begin import check_free


def run_requests(
    requests: Sequence[Request],
    options: TrainOptions,
    datasets: Path,
    slots: int | None,
    engine: str,
    stopper: Stopper,
    archive: Path | None = None,
) -> Outcome:
    """Generate, train, score and draw the requested runs of one preset, as `run` does."""
    if (datasets / FILE).exists():
        raise UsageError(
            f"{datasets} is a dataset, and --datasets takes the folder of datasets: --datasets "
            f"{datasets.parent} (`train` takes one dataset)"
        )
    out = requests[0].root
    folder = sweep_folder(RUN, out)
    remote = remote_engine(engine, slots, folder)
    if remote:
        remote.connect()
    _check(requests, options.compute, remote)
    free, failed = _free_requests(requests)
    jobs = plan(free, options, out, data=datasets)
    succeeded = _archiving(archive, jobs)
    for job in jobs:
        if isinstance(job, ScoreJob):
            say_result(job)
    chosen = remote or local_engine(choose_slots(jobs, slots), folder, stopper)
    outcome = run_jobs(jobs, chosen, stopper, succeeded=succeeded)
    for request, reason in failed:
        *_, train = (job for job in plan([request], options, out) if isinstance(job, TrainJob))
        outcome.failed.append(JobEnd(train, EXIT_USAGE, reason))
    if outcome.left:
        say("not all is scored, so nothing is drawn: the same command does the rest and draws")
        return outcome
    return with_files(outcome, lambda: draw_comparison(requests))


def _free_requests(requests: Sequence[Request]) -> tuple[list[Request], list[tuple[Request, str]]]:
    """Return the requests that can be trained in their folders, and why others cannot.

    Raises UsageError if none can, before anything is generated.
    """
    free, failed = list[Request](), list[tuple[Request, str]]()
    for request in requests:
        try:
            check_free(request)
            free.append(request)
        except (UsageError, Failure) as error:
            failed.append((request, str(error)))
            if len(failed) == len(requests):
                raise
    return free, failed


class PlannedSweep(Plan):
    """A sweep that can run."""

    @property
    def folder(self) -> Path:
        """The folder of the sweep's logs, states and tables."""
        return sweep_folder(self.sweep.name, self.out)

    def run(self, stopper: Stopper | None = None, archive: Path | None = None) -> Outcome:
        """Run the jobs that are not done, then write the tables of what is scored.

        archive  where scored runs are packed after each grid; None: nowhere

        Writes what `status` reads into the sweep's folder. Raises Busy if another process runs a
        sweep with this name; UsageError if they cannot be packed there.
        """
        if self.remote:
            self.remote.connect()
        folder, succeeded = self.folder, _archiving(archive, self.jobs)

        def failed(end: JobEnd) -> None:
            state = JobState(state="failed", code=end.code, reason=end.reason)
            write_state(log_file(folder, end.job.id), state)

        with stopping(stopper) as stop, lock_folder(folder, "sweep"):
            engine = self.remote or local_engine(self.slots, folder, stop)
            for log in (log_file(folder, job.id) for job in self.jobs):
                if (state := read_state(log)) and state.state == "failed":
                    state_file(log).unlink()  # the job waits again
            write_text(sweep_copy(folder), self.sweep.text)
            outcome = run_jobs(self.jobs, engine, stop, succeeded=succeeded, failed=failed)
        return with_files(outcome, lambda: write_tables(self.sweep, self.out))

    def leaderboard(self) -> Board | None:
        """Return the leaderboard of what is scored, as `results.leaderboard`."""
        return leaderboard(self.sweep, self.out)


def plan_sweep(
    sweep: Sweep, options: TrainOptions, out: Path, slots: int | None, engine: str
) -> PlannedSweep:
    """Plan the jobs of a sweep below `out`. Raises UsageError if one could not run."""
    requests = sweep.requests(out)
    jobs = plan(requests, options, out, sweep.splits)
    return PlannedSweep(sweep, out, requests, jobs, *_places(sweep, out, jobs, slots, engine))


def plan_run(
    requests: Sequence[Request],
    options: TrainOptions,
    datasets: Path,
    slots: int | None,
    engine: str,
) -> Plan:
    """Plan what `run_requests` does, as a sweep of one preset. Raises UsageError likewise."""
    out = requests[0].root
    sweep = Sweep(RUN, "", presets=(requests[0].preset,), combinations=(), groups=())
    jobs = plan(requests, options, out, data=datasets)
    return Plan(sweep, out, requests, jobs, *_places(sweep, out, jobs, slots, engine))


def _places(
    sweep: Sweep, out: Path, jobs: Sequence[Job], slots: int | None, engine: str
) -> tuple[Slots, Engine | None]:
    """Return the slots of jobs, and the engine if they run on other machines.

    Raises UsageError if a job could not run there.
    """
    remote = remote_engine(engine, slots, sweep_folder(sweep.name, out))
    _check([job.request for job in jobs], jobs[0].options.compute, remote)
    return Slots(slots or 1, threads=1) if remote else choose_slots(jobs, slots), remote


def _check(requests: Sequence[Request], compute: Compute, remote: Engine | None) -> None:
    """Raise UsageError if a run could not be trained and scored with attention by `compute`.

    What other machines can compute, only they know.
    """
    for config, name in dict.fromkeys((each.config, each.name) for each in requests):
        check_trainable(config, name, compute if remote is None else AUTO)


def _archiving(archive: Path | None, jobs: Sequence[Job]) -> Callable[[Job], None]:
    """Return a function that packs the runs of `jobs` with a complete grid, given one just scored.

    A machine that goes then takes no result with it. Results that were there before are packed too;
    weights are not. Raises UsageError if `archive` has another ending or the runs are in several
    folders.
    """
    if archive is None:
        return lambda job: None
    out, roots = checked_archive(archive), {job.request.root for job in jobs}
    if len(roots) > 1:
        raise UsageError(
            f"--pack takes the runs of one folder, and this sweep's settings have {len(roots)}: "
            "leave it out, and `tape-arith pack` each"
        )

    def pack_scored(job: Job) -> None:
        if not isinstance(job, ScoreJob):
            return
        scored = [each.request.run for each in jobs if isinstance(each, ScoreJob) and each.done()]
        try:
            pack(list(dict.fromkeys(scored)), out)
        except (Failure, OSError) as error:  # what comes next is worth more than the archive
            say(f"note: {out} is not renewed: {error}")

    return pack_scored
