"""The first error of each answer: its kind and its place.

One teacher-forced pass suffices: up to its first wrong token, the decoder predicts the right
answer, so the argmax there is exactly the first error of greedy decoding. Later tokens are not
measured: an answer whose first error is a digit may also have a wrong length.
"""

from typing import Any

import numpy as np
import pandas as pd

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.grids.axes import Axes, Bools, Ints, number_longer
from tape_arith.arith.scoring.score import ROWS_A_CHUNK, Outcome, score
from tape_arith.arith.studies.study import INSIDE, OUTSIDE, example_answer
from tape_arith.arith.tasks.families.tokens import DIGIT_ZERO, EOS
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, Task
from tape_arith.models.runner import Runner

EXACT = "exact"
"""The value of `error` for a right answer."""
KINDS = {
    "ended_early": "ended too early",
    "went_on": "did not end",
    "one_less": "digit one less",
    "one_more": "digit one more",
    "other_digit": "another digit",
    "no_digit": "no digit",
    "for_symbol": "digit for a symbol",
    "other_symbol": "another symbol",
}
"""Kinds of a first error. Digits are one less or more in decimal numbers alone; symbols are signs
between or before digits, or letters and signs of a user's task."""
WRONG_LENGTH, OFF_BY_ONE = ["ended_early", "went_on"], ["one_less", "one_more"]


def count_first_errors(runner: Runner, bucket: Bucket, count: int, axes: Axes) -> pd.DataFrame:
    """Count the first errors in answers to the first `count` problems of `bucket`."""
    task, parts = load_task(bucket.task), []
    for start in range(0, count, ROWS_A_CHUNK):
        stop = min(start + ROWS_A_CHUNK, count)
        problems = bucket.problems(start, stop)
        outcome = score(runner, problems, bucket.keys(start, stop))
        drawn = bucket.drawn(start, stop)
        chains = task.carry_chains(drawn) if task.has_carries else None
        parts.append(first_errors(problems, chains, outcome, axes, has_decimals(task)))
    columns = ["region", "chain", "error", "place"]
    counts = pd.concat(parts).value_counts(columns, sort=False, dropna=False)
    return counts.rename("problems").reset_index()


def first_errors(
    problems: Problems,
    chains: Ints | None,
    outcome: Outcome,
    axes: Axes,
    decimals: bool = True,
) -> pd.DataFrame:
    """Return one row per problem; `chains` int64[n] has the length of its longest carry chain.

    Digits one less or more are kinds of their own if answers have `decimals`.
    """
    longer = number_longer(axes, problems.axis_lengths) > 0
    starts = problems.starts + problems.prompt_lengths
    right = problems.tokens[starts + np.maximum(outcome.first_wrong, 0)].astype(np.int64)
    predicted, difference = outcome.predicted, (outcome.predicted - right) % 10
    # Digits are compared modulo 10: in a sum a lost carry leaves one less, an invented carry one
    # more. A lost last carry ends the answer early, an invented one continues it.
    kinds = {
        EXACT: outcome.first_wrong < 0,
        "ended_early": predicted == EOS,
        "went_on": right == EOS,
        "other_symbol": ~_is_digit(right) & ~_is_digit(predicted),
        "no_digit": ~_is_digit(predicted),
        "for_symbol": ~_is_digit(right),
        "one_less": decimals & (difference == 9),
        "one_more": decimals & (difference == 1),
    }
    places = pd.Series(outcome.first_wrong, dtype="Int64")
    return pd.DataFrame(
        {
            "region": np.where(longer, OUTSIDE, INSIDE),
            "chain": pd.Series(chains, places.index, dtype="Int64"),
            "error": np.select(list(kinds.values()), list(kinds), "other_digit"),
            "place": places.mask(outcome.first_wrong < 0),
        }
    )


def _is_digit(tokens: Ints) -> Bools:
    return (tokens >= DIGIT_ZERO) & (tokens < DIGIT_ZERO + 10)


def has_digits(task: Task[Any]) -> bool:
    """Tell whether answers have digits."""
    return any(map(str.isdecimal, example_answer(task)))


def has_decimals(task: Task[Any]) -> bool:
    """Tell whether answers are numbers of ten digits; steps of a scratchpad may be carries."""
    decimal = task.digit_order is not None and task.base == 10 and not task.step_symbols
    return decimal and has_digits(task)
