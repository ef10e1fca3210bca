"""Errors in answers: measures where and how decoders go wrong.

One teacher-forced pass suffices: up to the first wrong place the decoder itself predicts the right
answer, so the argmax at that place is exactly the first error of greedy decoding. What follows it
is not measured: an answer whose first error is a digit may have a wrong length as well.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.weights import trained_decoder
from tape_arith.arith.scoring.score import PROBE_ROWS, ROWS_A_CHUNK, low_precision_threshold, score
from tape_arith.arith.studies.errors_data import ErrorCounts, ErrorStudy, RunErrors, count_errors
from tape_arith.arith.studies.inputs import (
    comparable_runs,
    count_available,
    describe_problems,
    evaluation_bucket,
)
from tape_arith.arith.tasks.task import load_task
from tape_arith.arith.terminal import bar
from tape_arith.models.backends import AUTO, AttentionChoice
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware


def error_study(
    paths: Sequence[Path],
    split: str = EVALUATION,
    problems: int | None = None,
    compute: AttentionChoice = AUTO,
) -> ErrorStudy:
    """Count the errors of the runs at `paths` on the first `problems` (None: all) of their
    evaluation set.

    Raises UsageError if runs cannot be compared, two have one encoding and seed, or there are fewer
    problems; Failure for a corrupt file.
    """
    runs = comparable_runs(paths)
    identities = [(run.record.encoding, run.record.seed) for run in runs]
    for number, (encoding, seed) in enumerate(identities):
        if (encoding, seed) in identities[:number]:
            raise UsageError(
                f"{runs[number].path} is {encoding}, seed {seed}, once more: name each run once"
            )
    first = runs[0].record
    config, bucket = first.config, evaluation_bucket(runs[0], split)
    count = count_available(runs[0], problems)
    studied: list[RunErrors] = []
    with bar("answer", count * len(runs)) as update:
        for number, run in enumerate(runs):
            record = run.record
            decoder, hardware = trained_decoder(RunFolder(run.path), record.name, record, compute)

            def progress(rows: int, before: int = number * count) -> None:
                update(before + rows)

            counts = errors(decoder, bucket, count, config.trained_digits, hardware, progress)
            studied.append(RunErrors(str(run.path), record.encoding, record.seed, counts))
    return ErrorStudy(
        runs=tuple(studied),
        preset=first.preset,
        settings=first.settings,
        trained_digits=config.trained_digits,
        evaluation=describe_problems(bucket, count) | {"split": split},
    )


def errors(
    decoder: Decoder,
    bucket: Bucket,
    count: int,
    trained_digits: int,
    hardware: Hardware,
    progress: Callable[[int], None] = lambda rows: None,
) -> ErrorCounts:
    """Count the errors in the answers to the first `count` problems of `bucket`, scored as a grid
    is; `progress` gets the number of problems done after each chunk.

    Raises UsageError for a task without carry chains.
    """
    task = load_task(bucket.task)
    decoder.eval()
    probe = min(PROBE_ROWS, count)
    threshold = low_precision_threshold(
        decoder, bucket.problems(0, probe), bucket.keys(0, probe), hardware
    )
    parts = []
    for start in range(0, count, ROWS_A_CHUNK):
        stop = min(start + ROWS_A_CHUNK, count)
        problems = bucket.problems(start, stop)
        outcome = score(decoder, problems, bucket.keys(start, stop), hardware, threshold)
        counts = count_errors(
            problems,
            task.carry_chains(*bucket.operands(start, stop)),
            outcome.first_wrong,
            outcome.predicted,
            trained_digits=trained_digits,
            max_digits=bucket.max_digits,
            places=task.answer_width(bucket.max_digits) + 1,
        )
        parts.append(counts)
        progress(stop)
    return sum(parts[1:], parts[0])
