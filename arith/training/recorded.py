"""The gradient of packed batches by a CUDA graph: one launch in place of hundreds a layer.

Packed batches have one shape in almost every step; here their answers have, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tape_arith.arith.data.rows import Rows
from tape_arith.arith.scoring.score import sequences, to_device
from tape_arith.models.recording import Recording
from tape_arith.models.sequences import Sequences

_IGNORED = -100
"""A target of `cross_entropy` that adds neither loss nor gradient."""
_TOLERANCE = 0.01
"""Relative distance of two gradients that differ by rounding; of other draws or tokens it is 1."""


class PackedBatch(NamedTuple):
    """A packed batch on the device: m scored tokens and, in front of no token, fillers.

    chosen         int64 [m]  flat indices of the scored tokens
    targets        int64 [m]  the tokens after them; fillers have _IGNORED
    answer_tokens  int64 [1]  number by which the summed loss is divided
    """

    seqs: Sequences
    chosen: Tensor
    targets: Tensor
    answer_tokens: Tensor

    @classmethod
    def of(cls, rows: Rows, answer_tokens: int, most: int, device: str) -> "PackedBatch":
        """Copy `rows` to the device, with fillers for `most` scored tokens."""
        chosen, targets = rows.answers, rows.targets[rows.is_answer]
        fillers = (0, max(0, most - len(chosen)))
        batch_key, count = to_device(np.array([[rows.batch_key], [answer_tokens]]), device)
        return cls(
            replace(sequences(rows, device), batch_key=batch_key),
            to_device(np.pad(chosen, fillers), device),
            to_device(np.pad(targets, fillers, constant_values=_IGNORED), device),
            count,
        )

    @property
    def tensors(self) -> list[Tensor]:
        """All that differs from one batch to the next."""
        seqs = self.seqs
        assert isinstance(seqs.batch_key, Tensor) and seqs.starts is not None
        varying = [seqs.tokens, seqs.final_length, seqs.key, seqs.starts, seqs.batch_key]
        return [*varying, *self[1:]]

    @property
    def shape(self) -> tuple[object, ...]:
        """Shapes and plain numbers, of which a graph holds one case."""
        return *(x.shape for x in self.tensors), self.seqs.longest, self.seqs.bound


class RecordedGradient:
    """Computes `gradient`, a function of a batch, by a CUDA graph from the first batch on.

    failure  why it computes without the graph, if recording failed; `tell` was told

    The graph is recorded on another batch, and counts only if it then gives the gradient of this
    one, so that no number is used of a graph that kept something of the batch it was recorded on.
    """

    def __init__(
        self,
        gradient: Callable[[PackedBatch], Sequence[Tensor]],
        tell: Callable[[str], None],
    ) -> None:
        self._gradient = gradient
        self._tell = tell
        self._recording: Recording | None = None
        self._shape: tuple[object, ...] = ()
        self.failure: str | None = None

    def __call__(self, batch: PackedBatch, another: Callable[[], PackedBatch]) -> Sequence[Tensor]:
        """Return `gradient(batch)`; the next call may overwrite it."""
        if self._recording is not None and batch.shape == self._shape:
            return self._recording(batch.tensors)
        expected = self._gradient(batch)
        if self._recording is not None or self.failure is not None:
            return expected
        example = another()
        if example.shape != batch.shape:
            return expected  # a batch like that is rare: the next step records
        try:
            recording = Recording(lambda: self._gradient(example), example.tensors)
            results = recording(batch.tensors)
            if distance(results, expected) < _TOLERANCE:
                self._recording, self._shape = recording, batch.shape
                return results
            self.failure = "it does not give the gradient of another batch"
        except RuntimeError as error:
            self.failure = " ".join(str(error).split())[:200]
        self._tell(f"note: no CUDA graph of a step ({self.failure}); training continues without")
        return expected


def distance(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the distance of all numbers together, relative to the expected ones."""
    pairs = zip(actual, expected, strict=True)
    error = torch.stack([(x - y).norm() for x, y in pairs]).norm()
    return float(error / torch.stack([y.norm() for y in expected]).norm())
