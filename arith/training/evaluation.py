"""Measure during training: exact match on a small grid, and the encoding's state.

They change no weight, and are never used to select a checkpoint.
Legend: B batch, T tokens, n problems.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import fsum, isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tape_arith.arith.data.rows import pack, pad
from tape_arith.arith.decoders.failures import fitting
from tape_arith.arith.grids.axes import Axes, longest_digits, number_longer, scored_axes
from tape_arith.arith.runs.config import Config
from tape_arith.arith.scoring.score import score, sequences
from tape_arith.arith.tasks.task import Problems, concatenate, take
from tape_arith.models.runner import Runner

_SPLIT = "small grid"
"""Name of a stream of problems that is independent of those of training and evaluation. (All
streams contain the shortest problems, because these are so few.)"""
_MOST_LENGTHS = 16
_PROBLEMS_A_CELL = {1: 48, 2: 3}
"""By the number of axes: a grid of one axis has few cells."""
STATE_PROBLEMS = 32
"""Number of problems over which each measure of the state is averaged."""


@dataclass(frozen=True)
class SmallGrid:
    """A few problems for each cell of some lengths, in and out of distribution.

    It is the same for every run of a config. It serves for curves and for the spread over the last
    evaluations. It selects no checkpoint: results are always those of the last step.
    """

    problems: Problems
    keys: NDArray[np.int64]
    axes: Axes

    @classmethod
    def of(cls, config: Config) -> "SmallGrid":
        """Return the chosen cells' problems from the first blocks of a separate stream."""
        bucket = config.evaluation_bucket(_SPLIT)
        axes = scored_axes(config.bucket(0), bucket)
        count = _PROBLEMS_A_CELL[len(axes)] * bucket.num_cells
        lengths = [_chosen_lengths(axis.trained, axis.tested) for axis in axes]
        # In pieces, because few of the generated problems are in a chosen cell.
        parts, chosen = [], []
        for piece in bucket.pieces(0, count):
            inside = [np.isin(*each) for each in zip(piece.axis_lengths.T, lengths, strict=True)]
            chosen.append(np.all(inside, axis=0))
            parts.append(take(piece, np.flatnonzero(chosen[-1])))
        keys = bucket.keys(0, count)[np.concatenate(chosen)]
        return cls(concatenate(parts), keys, axes)

    def exact_match(self, runner: Runner, should_stop: Callable[[], bool]) -> dict[str, Any]:
        """Return exact match in distribution, out of distribution and by the longest operand.

        Every cell has the same weight. Out of distribution is None if no longer length is tested.
        Raises Stopped if `should_stop` is true before the end.
        """
        runner.decoder.eval()
        exact = score(runner, self.problems, self.keys, should_stop=should_stop).exact
        longer = longest_digits(self.axes, self.problems.axis_lengths)
        outside = number_longer(self.axes, self.problems.axis_lengths) > 0
        return {
            "in_distribution": float(exact[~outside].mean()),
            "out_of_distribution": float(exact[outside].mean()) if outside.any() else None,
            "by_length": {
                str(length): float(exact[longer == length].mean()) for length in np.unique(longer)
            },
        }


def _chosen_lengths(trained_digits: int, tested_digits: int) -> list[int]:
    """Return all lengths if they are few, else evenly spaced ones and those next to the trained.

    Some encodings solve one or two digits more than trained and nothing beyond.

    >>> _chosen_lengths(8, 16) == list(range(1, 17))
    True
    >>> _chosen_lengths(40, 80)
    [5, 10, 15, 20, 25, 30, 35, 40, 41, 42, 45, 50, 55, 60, 65, 70, 75, 80]
    """
    spaced = {-(-part * tested_digits // _MOST_LENGTHS) for part in range(1, _MOST_LENGTHS + 1)}
    last = range(trained_digits, min(trained_digits + 2, tested_digits) + 1)
    return sorted(spaced | set(last))


def state_measures(
    runner: Runner, problems: Problems, keys: NDArray[np.int64]
) -> dict[str, list[float]] | None:
    """Return what the encoding measures of the state that enters each layer; None if nothing.

    Each measure has one number per layer: the mean over all tokens except padding.
    """
    plain = runner.on(replace(runner.hardware, compiled=False))  # no graphs for one forward
    runner.decoder.eval()

    def groups() -> list[NDArray[np.int64]]:
        return np.array_split(np.arange(len(keys)), min(runner.finer, len(keys)))

    parts = fitting(
        lambda: [_state_means(plain, problems, keys, rows) for rows in groups()],
        runner,
        lambda: len(groups()[0]),
        work="measuring the state",
    )
    tokens = sum(count for count, _ in parts)
    means = {
        name: [
            fsum(count / tokens * part[name][layer] for count, part in parts)
            for layer in range(len(layers))
        ]
        for name, layers in parts[0][1].items()
    }
    # A measure that is not finite is dropped and never ends a training.
    return {name: layers for name, layers in means.items() if all(map(isfinite, layers))} or None


def _state_means(
    runner: Runner, problems: Problems, keys: NDArray[np.int64], indices: NDArray[np.int64]
) -> tuple[int, dict[str, list[float]]]:
    """Return the number of tokens of the problems at `indices`, and the means over them."""
    device, pe = runner.hardware.device, runner.decoder.pe
    rows = (pack if runner.packs else pad)(problems, keys, indices)
    widths = rows.prompt_lengths + rows.answer_tokens - 1
    ends = widths if rows.starts is None else widths.sum(keepdims=True)
    inside = torch.from_numpy(np.arange(rows.inputs.shape[1]) < ends[:, None]).to(device)
    states: list[Any] = []
    means: dict[str, list[float]] = {}

    def watch(layer: int, name: str, state: Any) -> None:
        if name == "state":
            states.append(state)
            for measure, values in pe.measures(states[0], state).items():
                mean = values.expand(inside.shape)[inside].double().mean()
                means.setdefault(measure, []).append(float(mean))

    with torch.no_grad():
        runner(replace(sequences(rows, device), watch=watch))
    return int(widths.sum()), means
