"""The errors of runs, one run after the other."""

from collections.abc import Sequence
from pathlib import Path

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.weights import trained_decoder
from tape_arith.arith.studies.errors_data import mistakes
from tape_arith.arith.studies.errors_figure import RunErrors, Study
from tape_arith.arith.studies.inputs import comparable_runs
from tape_arith.arith.terminal import bar
from tape_arith.models.names.backends import AUTO, AttentionChoice


def error_study(
    paths: Sequence[Path],
    split: str = EVALUATION,
    problems: int | None = None,
    compute: AttentionChoice = AUTO,
) -> Study:
    """The runs at `paths` on the first `problems` (None: all) of their evaluation set.

    Errors: UsageError where runs cannot be compared, one is there twice, or there are not so many
    problems; Failure for a corrupt file.
    """
    runs = comparable_runs(paths)
    seen = [(run.record.encoding, run.record.seed) for run in runs]
    for number, (encoding, seed) in enumerate(seen):
        if (encoding, seed) in seen[:number]:
            raise UsageError(
                f"{runs[number].path} is {encoding}, seed {seed}, once more: name each run once"
            )
    config = runs[0].record.config
    bucket = Bucket(config.task, config.tested_digits, config.evaluation_seed, split)
    there = config.problems_per_cell * bucket.num_pairs
    count = there if problems is None else problems
    if not 1 <= count <= there:
        raise UsageError(f"the evaluation set has {there:,} problems: give 1 to so many")
    found = []
    done = 0
    with bar("answer", count * len(runs)) as update:

        def progress(rows: int) -> None:
            nonlocal done
            done += rows
            update(done)

        for run in runs:
            record = run.record
            name = record.name
            decoder, hardware = trained_decoder(RunFolder(run.path), name, record, compute)
            counts = mistakes(decoder, bucket, count, config.trained_digits, hardware, progress)
            found.append(RunErrors(str(run.path), record.encoding, record.seed, counts))
    return Study(
        runs=tuple(found),
        preset=runs[0].record.preset,
        settings=runs[0].record.settings,
        trained_digits=config.trained_digits,
        evaluation={
            "task": bucket.task,
            "version": bucket.version,
            "split": split,
            "seed": bucket.seed,
            "max_digits": bucket.max_digits,
            "problems": count,
            "sha256": bucket.sha256(count),
        },
    )
