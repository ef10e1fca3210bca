"""Errors in answers: counts where and how decoders go wrong.

One teacher-forced pass suffices: up to the first wrong place the decoder itself predicts the right
answer, so the argmax at that place is exactly the first error of greedy decoding. What follows it
is not measured: an answer whose first error is a digit may have a wrong length as well.

Rows of the study: `problems` with the same region, `chain` (length of the longest carry chain),
`error` (EXACT or a key of KINDS) and `place` of the first wrong token (0 the least significant;
none for an exact answer).
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.weights import trained_decoder
from tape_arith.arith.scoring.score import (
    PROBE_ROWS,
    ROWS_A_CHUNK,
    Outcome,
    low_precision_threshold,
    score,
)
from tape_arith.arith.studies.errors_report import EXACT
from tape_arith.arith.studies.inputs import Integers, StudiedRuns
from tape_arith.arith.studies.study import INSIDE, OUTSIDE, Study
from tape_arith.arith.tasks.task import DIGIT_ZERO, EOS, Problems, load_task
from tape_arith.arith.terminal import bar
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.names import AttentionChoice

_UNCOMPILED = AttentionChoice(compiled=False)
_COLUMNS = ["region", "chain", "error", "place"]


def measure(runs: StudiedRuns, count: int | None = None) -> Study:
    """Count the errors of `runs` on the first `count` problems (None: all) of their evaluation set.

    Raises UsageError for too many problems and a task without carry chains; Failure for a corrupt
    file.
    """
    regions, digits = runs.regions(count), runs.record.config.trained_digits
    total = sum(map(len, regions.values()))
    frames: list[pd.DataFrame] = []
    for run in runs.runs:
        folder, record = RunFolder(run.path), run.record
        decoder, hardware = trained_decoder(folder, record.name, record, _UNCOMPILED)
        with bar(f"answer {run.path}", total) as update:
            counts = errors(decoder, runs.bucket, total, digits, hardware, update)
        frames.append(run.rows(counts))
    return Study("errors", runs.facts(regions), pd.concat(frames, ignore_index=True))


def errors(
    decoder: Decoder,
    bucket: Bucket,
    count: int,
    trained_digits: int,
    hardware: Hardware,
    progress: Callable[[int], None] = lambda rows: None,
) -> pd.DataFrame:
    """Count the errors in the answers to the first `count` problems of `bucket`, scored as a grid
    is; `progress` gets the number of problems done after each chunk."""
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
        chains = task.carry_chains(*bucket.operands(start, stop))
        parts.append(first_errors(problems, chains, outcome, trained_digits))
        progress(stop)
    counts = pd.concat(parts).value_counts(_COLUMNS, sort=False, dropna=False)
    return counts.rename("problems").reset_index()


def first_errors(
    problems: Problems, chains: Integers, outcome: Outcome, trained_digits: int
) -> pd.DataFrame:
    """Return a row a problem; `chains` int64[n] are the lengths of their longest carry chains."""
    longer = (problems.operand_lengths > trained_digits).any(axis=1)
    starts = problems.starts + problems.prompt_lengths
    right = problems.tokens[starts + np.maximum(outcome.first_wrong, 0)].astype(np.int64)
    predicted, difference = outcome.predicted, (outcome.predicted - right) % 10
    # Digits are compared modulo 10: a lost carry leaves one less, an invented carry one more. A
    # lost last carry ends the answer early, an invented one goes on.
    kinds = {
        EXACT: outcome.first_wrong < 0,
        "ended_early": predicted == EOS,
        "no_digit": (predicted < DIGIT_ZERO) | (predicted >= DIGIT_ZERO + 10),
        "went_on": right == EOS,
        "one_less": difference == 9,
        "one_more": difference == 1,
    }
    places = pd.Series(outcome.first_wrong, dtype="Int64")
    return pd.DataFrame(
        {
            "region": np.where(longer, OUTSIDE, INSIDE),
            "chain": chains,
            "error": np.select(list(kinds.values()), list(kinds), "other_digit"),
            "place": places.mask(outcome.first_wrong < 0),
        }
    )
