"""Run the jobs of a sweep or of the command `run`; write tables and figures of the results."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from tape_arith.arith.compare.board import Board
from tape_arith.arith.compare.groups import Excluded, choose_group, warn_excluded
from tape_arith.arith.compare.leaderboard import board_of
from tape_arith.arith.compare.selection import Selection, read_states
from tape_arith.arith.compare.sweep_tables import (
    SweptRow,
    Table,
    ablation_table,
    families,
    in_order,
    sweep_table,
)
from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.data.dataset import FILE
from tape_arith.arith.decoders.build import check_trainable
from tape_arith.arith.errors import EXIT_USAGE, Failure, UsageError
from tape_arith.arith.figures import heatmap, style
from tape_arith.arith.figures.ablations import compose as compose_ablations
from tape_arith.arith.files import slug, write_text
from tape_arith.arith.grids.comparable import differences
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel, panels_of
from tape_arith.arith.lock import lock_folder
from tape_arith.arith.origin import write_table
from tape_arith.arith.registry.names import Name, name_and_options
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.options import AUTO, Compute, TrainOptions
from tape_arith.arith.runs.request import Request
from tape_arith.arith.stopping import Stopper, stopping
from tape_arith.arith.sweeps.archive import archiving
from tape_arith.arith.sweeps.engines import Engine, connect, remote_engine
from tape_arith.arith.sweeps.engines.local import local_engine
from tape_arith.arith.sweeps.engines.worker import JobState, read_state, state_file, write_state
from tape_arith.arith.sweeps.estimate import Plan
from tape_arith.arith.sweeps.jobs import Job, JobEnd, ScoreJob, TrainJob, log_file, plan
from tape_arith.arith.sweeps.run_jobs import Outcome, run_jobs, say_result, with_files
from tape_arith.arith.sweeps.slots import Slots, choose_slots
from tape_arith.arith.sweeps.sweep import RUN, Combination, Sweep, sweep_copy, sweep_folder
from tape_arith.arith.terminal import say
from tape_arith.arith.training.begin import check_free

_Scored = dict[tuple[Name, Config], list[Grid]]
"""The grids, one per seed, of an encoding with a config."""


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
    connect(remote)
    _check(requests, options.compute if remote is None else AUTO)
    free, failed = _free_requests(requests)
    jobs = plan(free, options, out, data=datasets)
    succeeded = archiving(archive, jobs)
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
        sweep with this name; UsageError as `archiving`.
        """
        connect(self.remote)
        folder, succeeded = self.folder, archiving(archive, self.jobs)

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
        """Return the leaderboard of the scored runs on the first split.

        None if nothing is scored, or if presets or settings vary, because such runs are not ranked
        against each other.
        """
        sweep = self.sweep
        if sweep.varied or len(sweep.presets) > 1:
            return None
        scored, excluded = scored_grids(sweep, self.out, EvaluationSet(sweep.splits[0]))
        if not scored:
            return None
        panels = list(map(Panel.of, scored.values()))
        runs = read_states(self.requests[0].root)
        return board_of(panels, runs, excluded, pairs=sweep.contrasts)


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
    first = requests[0]
    sweep = Sweep(RUN, "", (first.preset,), (Combination(first.preset, (first.config,)),), ())
    jobs = plan(requests, options, first.root, data=datasets)
    places = _places(sweep, first.root, jobs, slots, engine)
    return Plan(sweep, first.root, requests, jobs, *places)


def _places(
    sweep: Sweep, out: Path, jobs: Sequence[Job], slots: int | None, engine: str
) -> tuple[Slots, Engine | None]:
    """Return the slots of jobs, and the engine if they run on other machines.

    Raises UsageError if a job could not run there.
    """
    remote = remote_engine(engine, slots, sweep_folder(sweep.name, out))
    compute = jobs[0].options.compute if remote is None else AUTO
    _check([job.request for job in jobs], compute)
    return Slots(slots or 1, threads=1) if remote else choose_slots(jobs, slots), remote


def _check(requests: Sequence[Request], compute: Compute) -> None:
    """Raise UsageError if a run could not be trained and scored with attention by `compute`."""
    for config, name in dict.fromkeys((each.config, each.name) for each in requests):
        check_trainable(config, name, compute)


def draw_comparison(requests: Sequence[Request]) -> list[Path]:
    """Draw the heatmap and write the tables of the requested encodings; return the figure's path.

    Includes every completely scored seed that is comparable with the others, requested or not.
    Returns [] if there is none.
    """
    first = requests[0]
    selection = Selection(first.root, ",".join(str(each.name) for each in requests), first.preset)
    budget = first.config.steps, first.config.sha256
    grids, unusable = list[Grid](), list[Grid]()
    for grid in selection.grids():
        requested = (grid.budget.steps, grid.budget.config_sha256) == budget
        (grids if requested and grid.complete else unusable).append(grid)
    if unusable:
        left_out = ", ".join(f"{grid.name} seed {grid.seed}" for grid in unusable)
        say(f"note: left out, in part scored or of other settings or steps: {left_out}")
    if not grids:
        say("nothing is scored yet, so nothing is drawn: the same command scores what is left")
        return []
    grids, excluded = choose_group(grids, differences)
    warn_excluded(excluded)
    panels = panels_of(grids, selection.wanted)
    figure = selection.figure_path(panels)
    style.save(heatmap.compose(panels), figure)
    table = in_order(SweptRow(panel, {}) for panel in panels)
    _write_table(sweep_table(table), figure.parent / "table")
    return [figure]


def _write_table(table: Table[Any], stem: Path) -> list[Path]:
    """Write a table as Markdown and as CSV; return the paths."""
    texts = {f"{stem.name}.md": table.to_markdown(), f"{stem.name}.csv": table.to_csv()}
    for name, text in texts.items():
        write_table(stem.parent / name, text)
    return [stem.parent / name for name in texts]


def write_tables(sweep: Sweep, out: Path) -> list[Path]:
    """Write tables of the complete grids, one per split, and of ablations; return the paths.

    Reports and skips runs that are not comparable with the rest. Removes files that an earlier
    sweep with this name left, and says so.
    """
    folder = sweep_folder(sweep.name, out)
    written: list[Path] = []
    scored = {split: scored_grids(sweep, out, EvaluationSet(split)) for split in sweep.splits}
    warn_excluded(dict.fromkeys(chain(*(excluded for _, excluded in scored.values()))))
    for split, (grids, _) in scored.items():
        table = [row for each in sweep.combinations for row in _rows(sweep, each, grids)]
        if table:
            stem = "table" if split == EVALUATION else f"table@{split}"
            written += _write_table(sweep_table(table), folder / stem)
    grids, _ = scored.get(EVALUATION, ({}, []))
    for combination in sweep.combinations if _is_family(sweep) else ():
        panels = [panel for _, panel in choices(sweep, combination.configs, grids)]
        if panels:
            preset = [slug(combination.preset)] if len(sweep.presets) > 1 else []
            label = ",".join(filter(None, [*preset, sweep.label(combination.configs[0])]))
            stem = f"ablations@{label}" if label else "ablations"
            members = families(panels)
            written += _write_table(ablation_table(members), folder / stem)
            written.append(folder / f"{stem}.png")
            style.save(compose_ablations(members, panels), written[-1])
    earlier = [*folder.glob("table*.*"), *folder.glob("ablations*.*")]
    if stale := sorted(file.name for file in set(earlier) - set(written)):
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        say(f"note: removed {', '.join(stale)} from {folder}: nothing of the sweep is in them")
    return written


def _rows(sweep: Sweep, combination: Combination, scored: _Scored) -> list[SweptRow]:
    """Return a row for each scored encoding, with the settings that the sweep varies."""
    preset = {"preset": combination.preset} if len(sweep.presets) > 1 else {}
    return in_order(
        SweptRow(panel, preset | sweep.settings(config))
        for config, panel in choices(sweep, combination.configs, scored)
    )


def _is_family(sweep: Sweep) -> bool:
    """Tell whether nothing is tuned and most encodings differ only in options from another one."""
    if len(sweep.combinations[0].configs) > 1:
        return False
    counts = Counter(name_and_options(str(name))[0] for name in sweep.names)
    related = sum(count for count in counts.values() if count > 1)
    return 2 * related > len(sweep.names)


def scored_grids(
    sweep: Sweep, out: Path, evaluation_set: EvaluationSet = DEFAULT_SET
) -> tuple[_Scored, list[Excluded]]:
    """Return the complete grids of each encoding with each config.

    The grids of a config are comparable; others are returned with how they differ.
    """
    names: dict[Config, dict[Grid, Name]] = {}
    for request in sweep.requests(out):
        if grid := request.complete_grid(evaluation_set):
            names.setdefault(request.config, {})[grid] = request.name
    scored, left_out = _Scored(), list[Excluded]()
    for config, name_of in names.items():
        # Equal configs are not enough: a run may have been extended, or have begun from another.
        grids, excluded = choose_group(name_of, differences)
        left_out += excluded
        for grid in grids:
            scored.setdefault((name_of[grid], config), []).append(grid)
    return scored, left_out


def choices(
    sweep: Sweep, configs: Sequence[Config], scored: _Scored
) -> Iterator[tuple[Config, Panel]]:
    """Yield, for each encoding, its config in a combination of settings, with its grids.

    If learning rates are tuned, the config that is best in distribution is chosen (the first of
    equals), never by a result out of distribution. An encoding is skipped unless all its rates have
    the same seeds with a mean in distribution; otherwise the choice would not be fair.
    """
    for name in sweep.names:
        panels = {config: scored.get((name, config), []) for config in configs}
        best = configs[0]
        if len(configs) > 1:
            for config, panel in panels.items():
                panels[config] = [grid for grid in panel if grid.converged is not None]
            seeds = {tuple(grid.seed for grid in panel) for panel in panels.values()}
            if len(seeds) > 1 or seeds == {()}:
                continue
            best = max(panels, key=lambda config: _in_distribution(panels[config]))
        if panels[best]:
            yield best, Panel.of(panels[best])


def _in_distribution(panel: Sequence[Grid]) -> float:
    """Return the mean on the standard problems, even for grids of a hard split."""
    standard = [grid if grid.split == EVALUATION else grid.standard for grid in panel]
    return fmean(grid.mean("in_distribution") or 0.0 for grid in standard if grid is not None)
