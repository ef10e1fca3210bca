"""Score a run: each call goes on where the last one stopped."""

import time
from collections.abc import Callable
from pathlib import Path

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.build import empty_grid, scoring_facts, user_errors
from tape_arith.arith.runs.command_lines import why_no_weights
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.lock import check_lock, lock_folder, remove_stale
from tape_arith.arith.runs.record import check_can_continue
from tape_arith.arith.runs.weights import trained_decoder, trained_record
from tape_arith.arith.scoring.comparable import is_same_run
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.grid import GRID_REMEDY, Grid
from tape_arith.arith.scoring.score import score_grid
from tape_arith.arith.terminal import bar
from tape_arith.arith.training.step import explain_failures
from tape_arith.models.backends import AUTO, AttentionChoice
from tape_arith.models.names.parse import Name, NamePart


def score_run(
    folder: RunFolder,
    extrapolation: NamePart | None = None,
    *,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    compute: AttentionChoice = AUTO,
    fresh: bool = False,
    should_stop: Callable[[], bool],
) -> Grid:
    """Return the grid of a finished run on what is `evaluation_set`; resume an interrupted scoring.

    Raises UsageError if training is not finished or was on another version of the task, or if the
    task has no such split.
    """
    # A complete grid is returned without weights too: a committed run has none.
    carried = folder.has_results_without_weights()
    if carried:
        record = folder.record()
        check_can_continue(folder.path, record)
    else:
        record = trained_record(folder)
    config = record.config
    evaluation_set = evaluation_set.normalized(config.tested_digits)
    digits = evaluation_set.max_digits or config.tested_digits
    file = folder.grid_file(extrapolation, evaluation_set)
    bucket = Bucket(config.task, digits, config.evaluation_seed, evaluation_set.split)
    empty = empty_grid(record, bucket, config.problems_per_cell, extrapolation)
    grid = empty
    if file.exists() and not fresh:
        grid = _begun(file, empty)
        if grid.complete:
            remove_stale(folder.path)
            return grid
    if carried:
        raise UsageError(why_no_weights(folder))
    name = Name(record.name.encoding, extrapolation)
    decoder, hardware = trained_decoder(folder, name, record, compute)
    rows = config.problems_per_cell * bucket.num_pairs
    done = grid.blocks_done * bucket.num_pairs
    began = time.perf_counter()
    title = f"score {name} seed {record.seed}{evaluation_set}"
    with lock_folder(folder.path, f"score {file.name}"), bar(title, rows, done) as update:
        if file.exists() and not fresh:  # another process may have gone on before we held it
            grid = _begun(file, empty)
            done = grid.blocks_done * bucket.num_pairs

        def progress(count: int) -> None:
            nonlocal done
            done += count
            update(done)

        def save(grid: Grid) -> None:
            check_lock(folder.path)
            grid.save(file)

        stage = file.stem.replace("grid", "score", 1)
        earlier = folder.timings().get(stage, 0.0) if grid is not empty else 0.0
        with explain_failures(f"scoring {name}"), user_errors(name.encoding):
            grid = score_grid(
                decoder,
                bucket,
                grid,
                hardware,
                save=save,
                progress=progress,
                should_stop=should_stop,
                facts=scoring_facts(hardware),
            )
        folder.write_timing(stage, earlier + time.perf_counter() - began)
    return grid


def _begun(file: Path, empty: Grid) -> Grid:
    """Load the unfinished grid in `file`; raise unless it is of the same run as `empty`."""
    grid = Grid.load(file)
    if not is_same_run(grid, empty):
        raise UsageError(f"{file} is of another run or evaluation set: --fresh scores again")
    if not grid.counted:
        raise Failure(f"{file} is corrupt: cells hold more than its blocks; {GRID_REMEDY}")
    return grid
