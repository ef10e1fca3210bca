"""Score a run; each call continues where the last one stopped."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tape_arith.arith.archives import on_disk
from tape_arith.arith.data.bucket import Bucket, check_covers
from tape_arith.arith.data.seen import SOON_MADE, SeenProblems
from tape_arith.arith.decoders.build import user_errors
from tape_arith.arith.decoders.environment import scoring_facts
from tape_arith.arith.decoders.failures import explain_failures
from tape_arith.arith.decoders.weights import trained_decoder
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.grids.axes import scored_axes
from tape_arith.arith.grids.comparable import is_same_run
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.facts import Evaluation
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.lock import NAME as LOCK
from tape_arith.arith.lock import check_lock, lock_folder
from tape_arith.arith.machine import own_version
from tape_arith.arith.registry.names import Name, NamePart
from tape_arith.arith.runs.command_lines import why_no_weights
from tape_arith.arith.runs.options import AUTO, Compute
from tape_arith.arith.runs.record import RunRecord, check_can_continue
from tape_arith.arith.runs.run import Run
from tape_arith.arith.scoring.greedy import FINAL_ANSWERS, add_final_answers
from tape_arith.arith.scoring.score_grid import begin_scoring, score_grid, scoring_now
from tape_arith.arith.stopping import Stopped, is_urgent
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.terminal import bar, say
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.hardware import detect
from tape_arith.models.runner import Runner


def score_run(
    run: Run,
    extrapolation: NamePart | None = None,
    *,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    compute: Compute = AUTO,
    fresh: bool = False,
    should_stop: Callable[[], bool],
) -> Grid:
    """Score a finished run on `evaluation_set`, or continue its scoring; return the grid.

    A complete grid is returned even if the weights are missing, as in a committed run. Raises
    UsageError if training is not finished or used another version of the task, or if the task does
    not have the split; Stopped if a signal asks to stop before there is anything to save.
    """
    record = run.record()
    check_can_continue(run.path, record)
    config = record.config
    evaluation_set = evaluation_set.normalized(config.tested_digits)
    digits = evaluation_set.max_digits or config.tested_digits
    file = run.grid_file(extrapolation, evaluation_set)
    bucket = config.evaluation_bucket(evaluation_set.split, digits)

    def before_piece() -> None:
        if is_urgent(should_stop):
            raise Stopped

    earlier = None if fresh or not on_disk(file).exists() else Grid.load(file)
    empty = empty_grid(
        record,
        bucket,
        config.problems_per_cell,
        extrapolation,
        sha256=None if earlier is None else _sha256_of(earlier),
        before_piece=before_piece,
    )
    grid = _begun(file, empty, fresh)
    if grid.complete:
        if (run.path / LOCK).exists():  # remove it if its holder was killed
            with suppress(Failure), lock_folder(run.path):
                pass
        return grid
    if run.state().weights != "final":
        raise UsageError(why_no_weights(run))
    name = Name(record.name.encoding, extrapolation)
    runner = Runner(trained_decoder(run, name, record), detect(*compute))
    num_problems = config.problems_per_cell * bucket.num_cells
    began = time.perf_counter()
    title = f"score {name} seed {record.seed}{evaluation_set}"
    with (
        lock_folder(run.path, f"score {file.name}"),
        bar(title, num_problems, grid.num_scored) as update,
    ):
        grid = _begun(file, empty, fresh)  # another process may have scored until now

        def save(grid: Grid) -> None:
            check_lock(run.path)
            grid.save(file)

        stage = file.stem.replace("grid", "score", 1)
        seconds = run.record().seconds.get(stage, 0.0) if grid is not empty else 0.0
        with explain_failures(f"scoring {name}"), user_errors(name.encoding):
            reach = _untrained_lengths(runner.decoder.pe, bucket)
            now = scoring_now(runner, {**scoring_facts(runner.hardware), **reach})
            begin_scoring(grid, now)
            try:
                if load_task(config.task).step_symbols and not grid.num_scored:
                    # No progress is shown meanwhile.
                    count = min(2 * FINAL_ANSWERS, num_problems)
                    say(f"{title}: first, up to {count} final answers are decoded token by token")
                    parts = add_final_answers(grid.scoring, runner, bucket, grid.axes, num_problems)
                    if any(should_stop() for _ in parts):
                        raise Stopped
                if record.problems_seen > SOON_MADE:
                    problems = f"the {record.problems_seen:,} problems of its training"
                    say(f"{title}: first, {problems} are generated")
                training = record.config.bucket(record.seed)
                seen = SeenProblems(training, record.problems_seen, before_piece)
                score_grid(runner, bucket, grid, save, update, should_stop, now, seen)
            except Stopped:
                save(grid)
        run.write_timing(stage, seconds + time.perf_counter() - began)
    return grid


def _sha256_of(grid: Grid) -> str | None:
    """Return the hash of a grid's problems, if this version has made the same ones for it."""
    versions = str(grid.scoring.get("tape-arith", "")).split(", ")
    return grid.evaluation.sha256 if own_version() in versions else None


def _untrained_lengths(pe: PositionalEncoding, bucket: Bucket) -> dict[str, float]:
    """Return the facts UNTRAINED of an encoding that its longest problems of `bucket` exceed."""
    digits = int(load_task(bucket.task).places(np.array([bucket.most]))[0])
    longest = {"digits": digits, "tokens": bucket.longest}
    limits = pe.trained_reach()
    facts = {unit: f"untrained_beyond_{unit}" for unit in limits if limits[unit] < longest[unit]}
    return {fact: limits[unit] for unit, fact in facts.items()}


def empty_grid(
    record: RunRecord,
    bucket: Bucket,
    problems_per_cell: int,
    extrapolation: NamePart | None = None,
    **hashing: Any,
) -> Grid:
    """Return the grid of a run on the first problems of `bucket`, before any is scored.

    hashing  arguments of `Evaluation.of` about the hash of these problems
    """
    # The size is checked before the problems are generated for their hash.
    check_covers(bucket.max_digits, record.config.trained_digits)
    bucket.check_count(problems_per_cell)
    return Grid.empty(
        record.encoding,
        extrapolation=str(extrapolation) if extrapolation else None,
        preset=record.preset,
        seed=record.seed,
        axes=scored_axes(record.config.bucket(0), bucket),
        budget=record.budget,
        evaluation=Evaluation.of(bucket, problems_per_cell, **hashing),
        settings=record.settings,
    )


def _begun(file: Path, empty: Grid, fresh: bool) -> Grid:
    """Load the grid in `file`; return `empty` if the file is missing or `fresh` is set.

    Raises UsageError if the grid is not of the run and evaluation set of `empty`.
    """
    if fresh or not on_disk(file).exists():
        return empty
    grid = Grid.load(file)
    if not is_same_run(grid, empty):
        raise UsageError(f"{file} belongs to another run or evaluation set: --fresh scores again")
    return grid
