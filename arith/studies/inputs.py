"""Inputs of studies: trained runs that may be compared, their problems, and forward passes whose
attention weights are recorded.

Legend: B batch, T tokens, H heads, N layers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.data.rows import Rows, pad
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.folder import existing_run
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.weights import trained_decoder, trained_record
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.backends import AttentionChoice, load
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences

Integers = NDArray[np.int64]
NUMBERS_A_BATCH = 20_000_000
"""Attention weights of all layers of a batch: two sets of them take 320 MB in float64."""


@dataclass(frozen=True)
class StudiedRun:
    """A finished run and its folder."""

    path: Path
    record: RunRecord

    @property
    def leading_bos(self) -> int:
        """The largest number of [BOS] that training put in front of a problem."""
        return self.record.config.leading_bos

    def decoder(self) -> tuple[Decoder, Hardware]:
        """Load the final decoder in float32, uncompiled, with attention that shows its weights."""
        name = self.record.name
        plain = AttentionChoice("eager", compiled=False)
        decoder, hardware = trained_decoder(existing_run(self.path), name, self.record, plain)
        decoder.attend_with(load(hardware.attention))
        return decoder.eval(), hardware


def comparable_runs(paths: Sequence[Path]) -> list[StudiedRun]:
    """Load the runs at `paths`, in this order.

    Raises UsageError if there is none, one is not trained to its end or named twice, or presets or
    settings differ in more than the [BOS] tokens that training put in front.
    """
    if not paths:
        raise UsageError("no run is named: give the folders of runs, as `tape-arith list` shows")
    runs = [StudiedRun(path, trained_record(existing_run(path))) for path in paths]
    resolved = [path.resolve() for path in paths]
    for number, path in enumerate(resolved):
        if path in resolved[:number]:
            raise UsageError(f"{paths[number]} is named twice: name each run once")
    first = _settings(runs[0])
    for run in runs[1:]:
        other = _settings(run)
        differ = [key for key in {**first, **other} if first.get(key) != other.get(key)]
        if differ:
            differences = ", ".join(f"{k} {other.get(k)}, not {first.get(k)}" for k in differ)
            raise UsageError(
                f"{run.path} cannot be compared with {runs[0].path} ({differences}): study them "
                "one by one"
            )
    return runs


def _settings(run: StudiedRun) -> dict[str, Any]:
    record = run.record
    settings = {"preset": record.preset, "task_version": record.task_version}
    settings |= {"first_steps": record.first_steps, **record.config.as_dict()}
    del settings["leading_bos"]
    return settings


@dataclass(frozen=True)
class Sample:
    """The problems of an evaluation set at `indices`, int64[n]."""

    problems: Problems
    keys: Integers
    indices: Integers

    def batches(self, decoder: Decoder) -> Iterator[Rows]:
        """Yield batches of one length each, so that nothing is padded, small enough to keep the
        attention weights of all layers in memory."""
        maps = decoder.config.num_layers * decoder.config.num_heads
        lengths = self.problems.lengths[self.indices]
        for length in np.unique(lengths):
            same = self.indices[lengths == length]
            size = max(1, NUMBERS_A_BATCH // (maps * int(length) ** 2))
            for start in range(0, len(same), size):
                yield pad(self.problems, self.keys, same[start : start + size])


def evaluation_bucket(run: StudiedRun, split: str = EVALUATION) -> Bucket:
    """Return the problems that the run is scored on."""
    config = run.record.config
    return Bucket(config.task, config.tested_digits, config.evaluation_seed, split)


def count_available(run: StudiedRun, count: int | None = None) -> int:
    """Return `count`, or for None the number of problems of the run's evaluation set.

    Raises UsageError if there are fewer.
    """
    available = run.record.config.problems_per_cell * evaluation_bucket(run).num_pairs
    if count is not None and count > available:
        raise UsageError(f"the evaluation set has {available:,} problems: {count:,} are too many")
    return available if count is None else count


def describe_evaluation(bucket: Bucket) -> dict[str, Any]:
    """Return the facts that a study keeps of an evaluation set."""
    return {
        "task": bucket.task,
        "version": bucket.version,
        "seed": bucket.seed,
        "max_digits": bucket.max_digits,
    }


def describe_problems(bucket: Bucket, count: int) -> dict[str, Any]:
    """Return the facts that a study keeps of the first `count` problems of an evaluation set."""
    return describe_evaluation(bucket) | {"problems": count, "sha256": bucket.sha256(count)}


def first_problems(run: StudiedRun, count: int) -> Sample:
    """Return the first `count` problems of the evaluation set. Raises UsageError for too many."""
    bucket, count = evaluation_bucket(run), count_available(run, count)
    return Sample(bucket.problems(0, count), bucket.keys(0, count), np.arange(count))


def problems_by_region(run: StudiedRun, count: int) -> dict[str, Sample]:
    """Return the first `count` problems (or all, if there are fewer) "in distribution", both
    operands of trained lengths, and "out of distribution"; a region without problems is absent."""
    bucket = evaluation_bucket(run)
    lengths = bucket.operand_lengths(0, count_available(run))
    inside = (lengths <= run.record.config.trained_digits).all(axis=1)
    regions = {
        "in distribution": np.flatnonzero(inside)[:count],
        "out of distribution": np.flatnonzero(~inside)[:count],
    }
    stop = max(int(indices.max(initial=-1)) for indices in regions.values()) + 1
    every = Sample(bucket.problems(0, stop), bucket.keys(0, stop), np.arange(stop))
    return {
        region: replace(every, indices=indices)
        for region, indices in regions.items()
        if len(indices)
    }


@dataclass(frozen=True)
class Watched:
    """The attention weights [B, H, T, T] of each layer, and the inner products [B or 1, H or 1, T,
    T] of the positional state that it used, None for an encoding without such a state."""

    weights: list[Tensor]
    products: list[Tensor | None]


def watched(decoder: Decoder, seqs: Sequences) -> Watched:
    """Record a forward of padded rows, in the precision of the decoder's parameters.

    Raises UsageError if the attention backend never shows its weights (`eager` does), and the
    encoding's own; Failure if weights are not finite.
    """
    seen = Watched([], [])

    def watch(layer: int, kind: str, value: Any) -> None:
        if kind == "state":
            seen.products.append(decoder.pe.inner_products(value))
        if kind == "weights":
            if not bool(value.isfinite().all()):
                raise Failure(f"attention weights of layer {layer + 1} are not finite")
            seen.weights.append(value)

    with torch.no_grad():
        decoder(replace(seqs, watch=watch, weights_too=True))
    assert len(seen.weights) == len(seen.products) == decoder.config.num_layers
    return seen
