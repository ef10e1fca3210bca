"""Check what every task promises: `tape-arith check NAME`.

The checks draw small problems, and some of hundreds of digits. Only a second computation, as with
Python's integers, can tell whether the answers are right.

n  problems
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from tape_arith.arith.contracts.promises import (
    Check,
    ContractReport,
    declaration_warnings,
    outcome_of,
)
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import Location
from tape_arith.arith.registry.names import task_location
from tape_arith.arith.tasks.families.numbers import Int64
from tape_arith.arith.tasks.families.tokens import BLANK, DIGIT_ZERO, EOS
from tape_arith.arith.tasks.load import load_task, task_hash
from tape_arith.arith.tasks.task import Problems, Task, concatenate

_DIGITS, _OPERANDS = 6, 5
_LONG = 300
"""Digits of the longest problems, far more than an int64 holds."""
_COUNT = 2_000
_ALONE = 30
"""Problems drawn one by one, which takes as long as a hundred times as many together."""
_NO_PROBLEMS = ("", "?", "1,,+-x", "one")


class _Sample:
    """A task and the problems of it that the checks draw."""

    def __init__(self, name: str) -> None:
        self.name, self.task = name, load_task(name)

    @cached_property
    def bucket(self) -> Bucket:
        return self.bucket_of(_DIGITS)

    @cached_property
    def problems(self) -> Problems:
        return self.bucket.problems(0, _COUNT)

    def bucket_of(self, digits: int) -> Bucket:
        counts = any(axis.counts == "operands" for axis in self.task.axes)
        return Bucket(self.name, digits, 0, "contract", _OPERANDS if counts else 0)


def _each(problems: Problems) -> Iterator[tuple[bytes, bytes]]:
    """Yield the tokens of each prompt and of its answer, end token included."""
    ends = problems.starts + problems.prompt_lengths
    for start, end, stop in zip(
        problems.starts, ends, problems.starts + problems.lengths, strict=True
    ):
        yield problems.tokens[start:end].tobytes(), problems.tokens[end:stop].tobytes()


def _prompt_sizes(task: Task[Any], bucket: Bucket, count: int) -> tuple[Int64, Int64]:
    """Return requested lengths, int64[n, axes], and sizes of prompts, int64[n].

    The size counts tokens, without blanks, separators and markers.
    """
    left_out = bytes([BLANK, *map(task.vocabulary.token, task.separators + task.format.symbols)])
    prompts = (prompt for prompt, _ in _each(bucket.problems(0, count)))
    sizes = np.array([len(prompt.translate(None, left_out)) for prompt in prompts])
    return bucket.axis_lengths(0, count), sizes


def check_builds(sample: _Sample) -> None:
    """It is built with its options, makes problems and reads its `example`; it has one or two axes,
    at least one of digits. An axis that counts places says how many, and no other does.

    Usually: a symbol that the vocabulary lacks and `symbols` does not name; arrays whose first
    dimension is not that of the problems.
    """
    task = sample.task
    counts = [axis.counts for axis in task.axes]
    assert len(counts) in (1, 2) and "digits" in counts, f"axes of {', '.join(counts) or 'nothing'}"
    for axis in task.axes:
        assert axis.is_place == (axis.places >= axis.shortest), (
            f"{axis.places} places on the axis {axis.name}, which counts {axis.counts}"
        )
    sample.bucket.problems(0, _COUNT)
    task.parse(task.example)


def check_tokens(sample: _Sample) -> None:
    """Problems are as long as they say, of tokens of the vocabulary, with one end token, the last.

    Usually: digits written without the Writer, as 0 to 9 and not as ids; `lengths` of a Field that
    count other tokens than it has.
    """
    problems, task = sample.problems, sample.task
    tokens = problems.tokens
    assert len(tokens) == problems.lengths.sum(), (
        f"{len(tokens):,} tokens where the lengths say {problems.lengths.sum():,}"
    )
    unknown = tokens[(tokens >= len(task.vocabulary)) | ((tokens < DIGIT_ZERO) & (tokens != EOS))]
    assert not len(unknown), f"the token {unknown[0]} is none of its symbols"
    last = problems.starts + problems.lengths - 1
    assert np.array_equal(np.flatnonzero(tokens == EOS), last), "an end token inside a problem"


def check_bounds(sample: _Sample) -> None:
    """No problem is longer than the bounds that follow from its lengths.

    Usually: a last carry, a separator or '=' that `answer_bound` or `prompt_bound` does not count;
    `draw` makes other lengths than it is asked for.
    """
    problems, task = sample.problems, sample.task
    lengths = sample.bucket.axis_lengths(0, _COUNT)
    bounds = task.prompt_bound(lengths)
    for part, bound in (("prompt", bounds), ("answer", task.answer_bound(lengths))):
        assert bound.dtype.kind in "iu", f"{part}_bound has {bound.dtype}, not whole numbers"
    for part, actual, bound in (
        ("prompt", problems.prompt_lengths, bounds),
        ("problem", problems.lengths, problems.final_lengths),
    ):
        worst = int(np.argmax(actual - bound))
        assert actual[worst] <= bound[worst], (
            f"a {part} of {actual[worst]} tokens where its bound is {bound[worst]}, "
            f"at the lengths {lengths[worst].tolist()}"
        )


def check_final_length(sample: _Sample) -> None:
    """The bound of a problem follows from its own lengths, whichever problems are made with it.

    Usually: a maximum over all problems, which are others in scoring; a number that the drawn
    digits left on `self`, which reveals the answer.
    """
    bucket = sample.bucket
    lengths, problems = bucket.axis_lengths(0, _COUNT), bucket.problems(0, _COUNT)
    rows = [slice(row, row + 1) for row in range(_ALONE)]
    # All bounds first, while the task is as drawing all problems left it.
    bounds = [sample.task.final_lengths(lengths[one], problems.prompt_lengths[one]) for one in rows]
    for one, bound in zip(rows, bounds, strict=True):
        together = problems.final_lengths[one.start]
        for alone in (bound[0], bucket.problems(one.start, one.stop).final_lengths[0]):
            assert alone == together, (
                f"a bound of {together} tokens among other problems, {alone} alone"
            )


def check_lengths(sample: _Sample) -> None:
    """A prompt has a token for each digit of its lengths, and longer problems have longer prompts;
    along an axis of places the prompt's bound stays the same.

    Usually: `draw` ignores `lengths` or caps them; an axis in the wrong column of `lengths`.
    """
    task, axes = sample.task, sample.task.axes
    measured = [_prompt_sizes(task, sample.bucket, _COUNT)]
    with suppress(UsageError):  # `any length` says so
        measured.append(_prompt_sizes(task, sample.bucket_of(_LONG), 50))
    for lengths, sizes in measured:
        digits = lengths[:, [axis.counts == "digits" for axis in axes]].sum(axis=1)
        worst = int(np.argmin(sizes - digits))
        assert sizes[worst] >= digits[worst], (
            f"a prompt of {sizes[worst]} tokens, without blanks and separators, at the lengths "
            f"{lengths[worst].tolist()}"
        )
    lengths, sizes = measured[0]
    for axis, declared in enumerate(axes):
        if declared.is_place:
            last = np.where(np.arange(len(axes)) == axis, declared.places, lengths)
            bound, at_last = map(task.prompt_bound, (lengths, last))
            assert np.array_equal(bound, at_last), (
                f"prompts are bounded by another number at another {declared.name}: no place"
            )
            continue
        other_lengths = np.delete(lengths, axis, axis=1)
        # Padding hides what is shorter than the longest.
        alike = (other_lengths == other_lengths.min(axis=0)).all(axis=1)
        shortest, longest = (
            sizes[alike & (lengths[:, axis] == extreme)].mean()
            for extreme in (lengths[:, axis].min(), lengths[:, axis].max())
        )
        assert longest > shortest, (
            f"the prompts with the most {declared.name} have {longest:.1f} tokens on average, "
            f"those with the fewest {shortest:.1f}"
        )


def check_cells(sample: _Sample) -> None:
    """A block of problems has every combination of lengths once.

    Usually: problems that report the lengths that they turned out to have, as without a leading
    zero, not those that they were asked for.
    """
    bucket = sample.bucket
    blocks = _COUNT // bucket.num_cells
    lengths = bucket.problems(0, blocks * bucket.num_cells).axis_lengths
    for block in lengths.reshape(blocks, bucket.num_cells, -1):
        cells = len(np.unique(block, axis=0))
        assert cells == bucket.num_cells, f"{cells} of {bucket.num_cells} cells in a block"


def check_slices(sample: _Sample) -> None:
    """A problem is the same whenever it is made, and whichever others are made with it.

    Usually: numpy's own random numbers (take those of `halves`); something kept on `self`; an
    array that is as wide as the longest number and is drawn from as a whole.
    """
    together, stops = sample.problems, (0, 1, 2, 50, _COUNT)
    apart = concatenate([sample.bucket.problems(*pair) for pair in pairwise(stops)])
    for field in ("tokens", "lengths", "prompt_lengths", "axis_lengths"):
        same = np.array_equal(getattr(together, field), getattr(apart, field))
        assert same, f"other {field.replace('_', ' ')} when made in parts"


def check_processes(sample: _Sample) -> str | None:
    """Another process makes the same problems.

    Usually: numpy's own random numbers, drawn when the file is read; the hash of a text or the
    order of a set, which differ from process to process.
    """
    if task_location(sample.name).is_builtin:
        return "its problems are frozen in the tests"
    expected = problems_hash(sample.name)
    if expected != problems_hash(sample.name):
        return "they differ in one process already"
    code = f"from {__name__} import problems_hash; print(problems_hash({sample.name!r}))"
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr.strip().rpartition("\n")[2]
    assert child.stdout.strip() == expected, "it makes other problems"
    return None


def problems_hash(name: str) -> str:
    """Return a hash of the problems that the checks draw."""
    return _Sample(name).bucket.sha256(_COUNT)


def check_answers(sample: _Sample) -> None:
    """Answers are not empty, not all the same, and one prompt has one answer.

    Usually: something is drawn that the prompt does not show; numbers of no digits, as for 0.
    """
    answers: dict[bytes, bytes] = {}
    for prompt, answer in _each(sample.problems):
        text = sample.task.vocabulary.decode(prompt)
        assert len(answer) > 1, f"an empty answer to {text}"
        assert answers.setdefault(prompt, answer) == answer, f"two answers to {text}"
    assert len(set(answers.values())) > 1, "all answers are the same"


def check_reading(sample: _Sample) -> None:
    """A text that is no problem is refused in one line.

    Usually: int() of what is no number; a pattern that takes an empty text.
    """
    for written in _NO_PROBLEMS:
        try:
            sample.task.parse(written)
        except UsageError:
            continue
        raise AssertionError(f"it takes {written!r} for a problem")


def check_any_length(sample: _Sample) -> str | None:
    """Problems of hundreds of digits are made, within their bounds.

    Usually: int64, which ends at 18 digits; powers of ten.
    """
    try:
        bucket = sample.bucket_of(_LONG)
    except UsageError as error:
        return str(error)
    problems = bucket.problems(0, 50)
    assert (problems.lengths <= problems.final_lengths).all(), "a problem longer than its bound"
    return None


CHECKS: tuple[Check[_Sample], ...] = (
    check_tokens,
    check_bounds,
    check_final_length,
    check_lengths,
    check_cells,
    check_slices,
    check_processes,
    check_answers,
    check_reading,
    check_any_length,
)


def examine(name: str) -> ContractReport:
    """Run every check on a task, or `check_builds` alone if that one fails.

    Raises UsageError as `load_task` does.
    """
    sources, name = task_hash(name), load_task(name).name
    sample, place = _Sample(name), task_location(name)
    outcomes = [outcome_of(check_builds, sample, [place.file])]
    if outcomes[0].holds:
        outcomes += [outcome_of(check, sample, [place.file]) for check in CHECKS]
    return ContractReport(name, sources, tuple(outcomes), tuple(_warnings(place)))


def _warnings(place: Location) -> Iterator[str]:
    """Describe what the file should declare but does not, and what no check can test."""
    declared = place.declaration()
    yield from declaration_warnings(declared)
    for key, option in declared.options.items():
        if not (option.problem or option.meaning):
            yield (
                f"{declared.class_name}: its docstring has no line `{key}  ...`, which says what "
                "the option means"
            )
    if not place.is_builtin:
        yield (
            "no check knows whether the answers are right: compute some once more, as with "
            "Python's integers"
        )
