"""Measurements during training: exact match on a small grid, and the encoding's state.

They change no weight, and no checkpoint is ever selected by them.
Legend: B batch, T tokens, n problems.
"""

from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows, pack, pad
from tape_arith.arith.scoring.score import score, sequences
from tape_arith.arith.tasks.task import Problems, concatenate, take
from tape_arith.arith.training.config import Config
from tape_arith.models.compile import prepare
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware

SPLIT = "small grid"
"""Name of the stream of the small grid, apart from those of training and evaluation. (All of them
hold the shortest problems, since there are so few.)"""
MOST_LENGTHS = 16
PROBLEMS_A_CELL = 3
# Problems over which the measures of a state are means.
STATE_PROBLEMS = 32

Measures = dict[str, list[float]]


@dataclass(frozen=True)
class SmallGrid:
    """A few problems for each pair of some operand lengths, in and out of distribution.

    It is the same for every run of a config and serves for curves and for the spread over the last
    checkpoints. Nothing is selected by it: results are those of the last step.
    """

    problems: Problems
    keys: NDArray[np.int64]
    trained_digits: int

    @classmethod
    def of(cls, config: Config) -> "SmallGrid":
        """The problems of the chosen cells in the first blocks of their own stream."""
        bucket = Bucket(config.task, config.tested_digits, config.evaluation_seed, SPLIT)
        count = PROBLEMS_A_CELL * bucket.num_pairs
        lengths = chosen_lengths(config.trained_digits, config.tested_digits)
        first_too, second_too = np.isin(bucket.operand_lengths(0, count), lengths).T
        kept = first_too & second_too
        # Of tens of thousands of cells a few hundred are kept: a piece at a time in memory.
        parts, first = [], 0
        for piece in bucket.pieces(0, count):
            last = first + len(piece.lengths)
            parts.append(take(piece, np.flatnonzero(kept[first:last])))
            first = last
        return cls(concatenate(parts), bucket.keys(0, count)[kept], config.trained_digits)

    def exact_match(self, decoder: Decoder, hardware: Hardware) -> dict[str, Any]:
        """Return exact match in distribution, out of distribution and by the longer operand.

        Every cell has the same weight. Out of distribution is None if nothing longer is tested.
        """
        decoder.eval()
        exact = score(decoder, self.problems, self.keys, hardware).exact
        longer = self.problems.operand_lengths.max(axis=1)
        outside = longer > self.trained_digits
        return {
            "in_distribution": float(exact[~outside].mean()),
            "out_of_distribution": float(exact[outside].mean()) if outside.any() else None,
            "by_length": {
                str(length): float(exact[longer == length].mean()) for length in np.unique(longer)
            },
        }


def chosen_lengths(trained_digits: int, tested_digits: int) -> list[int]:
    """Return all lengths if they are few, else evenly spaced ones and the longest trained one.

    >>> chosen_lengths(8, 16) == list(range(1, 17))
    True
    >>> chosen_lengths(40, 80)
    [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80]
    """
    steps = range(1, MOST_LENGTHS + 1)
    spaced = {-(-step * tested_digits // MOST_LENGTHS) for step in steps}
    return sorted(spaced | {trained_digits})


def state_measures(
    decoder: Decoder, problems: Problems, keys: NDArray[np.int64], hardware: Hardware
) -> Measures | None:
    """Return the encoding's own measures of the state that enters each layer; None if it has none.

    Each measure has one number for each layer, the mean over all tokens without padding.
    """
    every = np.arange(len(problems.lengths))
    prepare(decoder, replace(hardware, compiled=False))  # no graphs for what is watched once
    rows = (pack if decoder.packs else pad)(problems, keys, every)
    inside = torch.from_numpy(real_tokens(rows)).to(hardware.device)
    states: list[Any] = []
    measured: list[dict[str, float]] = []

    def mean(values: Tensor) -> float:
        return float(values.expand(inside.shape)[inside].double().mean())

    def watch(layer: int, what: str, state: Any) -> None:
        if what == "state":
            states.append(state)
            measures = decoder.pe.measures(states[0], state)
            measured.append({name: mean(values) for name, values in measures.items()})

    decoder.eval()
    with torch.no_grad(), hardware.autocast():
        decoder(replace(sequences(rows, hardware.device), watch=watch))
    by_name = {name: [layer[name] for layer in measured] for name in measured[0]}
    # A measure that is not finite is dropped and never ends a training.
    return {name: layers for name, layers in by_name.items() if all(map(isfinite, layers))} or None


def real_tokens(rows: Rows) -> NDArray[np.bool_]:
    """Mask of the inputs that are tokens of problems and not padding: bool [B, T]."""
    widths = rows.prompt_lengths + rows.answer_tokens - 1
    ends = widths if rows.starts is None else widths.sum(keepdims=True)
    inside: NDArray[np.bool_] = np.arange(rows.inputs.shape[1]) < ends[:, None]
    return inside


@dataclass(frozen=True)
class Metrics:
    """One line of metrics.jsonl.

    loss           mean over the steps since the last line, in nats per scored token
    gradient_norm  of the last step
    tokens         tokens so far, without padding
    exact_match    on held-out problems of the trained lengths; None between evaluations
    small_grid     result of `SmallGrid.exact_match`, at evaluations
    state          result of `state_measures`, at evaluations
    skipped        steps so far that were left out because loss or gradient was not finite
    """

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    tokens_per_second: float
    seconds: float
    exact_match: float | None
    small_grid: dict[str, Any] | None = None
    state: Measures | None = None
    skipped: int = 0

    def content(self) -> dict[str, Any]:
        """Return the content of the line, without optional parts that are empty."""
        content = asdict(self)
        absent = [key for key in ("small_grid", "state", "skipped") if not content[key]]
        return {key: value for key, value in content.items() if key not in absent}
