"""Attention patterns of runs: over a sample of problems, and the maps of one."""

import re
from collections.abc import Sequence

import numpy as np

from tape_arith.arith.errors import UsageError
from tape_arith.arith.studies.attention_data import equal_places, maps, patterns
from tape_arith.arith.studies.attention_figure.study import Example, StudiedAttention, Study
from tape_arith.arith.studies.inputs import StudiedRun, by_region, evaluation_bucket
from tape_arith.arith.tasks.task import Digits, Problems, Task, load_task
from tape_arith.arith.tasks.vocabulary import decode
from tape_arith.arith.terminal import bar


def attention_study(runs: Sequence[StudiedRun], count: int, written: str | None) -> Study:
    """Runs that can be compared over the first `count` problems of their evaluation set in
    distribution and as many out of it, and the maps of the problem `written` as people do,
    "123+45".

    Errors: UsageError where `written` is no problem of their task; Failure for a corrupt file or
    weights that are not finite.
    """
    config, bucket = runs[0].record.config, evaluation_bucket(runs[0])
    problem = None if written is None else read_problem(load_task(config.task), written)
    studied: list[StudiedAttention] = []
    with bar("watch", len(runs)) as update:
        for number, run in enumerate(runs, start=1):
            studied.append(_of_run(run, count, problem))
            update(number, str(run.path))
    return Study(
        runs=tuple(studied),
        preset=runs[0].record.preset,
        trained_digits=config.trained_digits,
        evaluation={
            "task": bucket.task,
            "version": bucket.version,
            "seed": bucket.seed,
            "max_digits": bucket.max_digits,
        },
        example=None if problem is None or written is None else _example(problem, written),
    )


def _of_run(run: StudiedRun, count: int, problem: Problems | None) -> StudiedAttention:
    decoder, hardware = run.decoder()
    return StudiedAttention(
        run=str(run.path),
        encoding=run.record.encoding,
        seed=run.record.seed,
        leading_bos=run.leading_bos,
        regions={
            region: patterns(decoder, sample.problems, sample.keys, sample.among, hardware.device)
            for region, sample in by_region(run, count).items()
        },
        maps=None if problem is None else maps(decoder, problem, hardware.device),
    )


def read_problem(task: Task, written: str) -> Problems:
    """One problem, its operands as people write them, the most significant digit first.

    Errors: UsageError for what is no problem of `task`.
    """
    operand = "([1-9][0-9]*)"
    found = re.fullmatch(f" *{operand} *{re.escape(task.symbol)} *{operand} *", written)
    if found is None:
        raise UsageError(
            f"'{written}' is no problem of {task.name}: two numbers with '{task.symbol}' between "
            f"them and without leading zeros, as in 123{task.symbol}45"
        )
    width = max(map(len, found.groups()))
    a, b = (
        Digits(
            np.array([[*map(int, reversed(text.zfill(width)))]], dtype=np.uint8),
            np.array([len(text)]),
        )
        for text in found.groups()
    )
    return task.problems(a, b, width)


def _example(problem: Problems, written: str) -> Example:
    tokens = [decode([token]) for token in problem.tokens]
    _, query, key = equal_places(
        problem.operand_lengths,
        problem.prompt_lengths,
        problem.lengths - problem.prompt_lengths - 1,
    )
    return Example(
        written=written.replace(" ", ""),
        tokens=tuple(tokens),
        prompt=int(problem.prompt_lengths[0]),
        equal_places=tuple(zip(query.tolist(), key.tolist(), strict=True)),
    )
