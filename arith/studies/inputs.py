"""Inputs of studies: trained runs that may be compared, their problems, and forward passes whose
attention weights are recorded.

Legend: B batch, T tokens, H heads, N layers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.data.rows import Rows, pad
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.folder import existing_run
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.weights import trained_decoder, trained_record
from tape_arith.arith.scoring.grid import Region
from tape_arith.arith.studies.study import INSIDE, OUTSIDE
from tape_arith.arith.tasks.task import Problems, take
from tape_arith.arith.terminal import bar
from tape_arith.models.build import load_backend
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.names import AttentionChoice
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
    def facts(self) -> dict[str, Any]:
        """The first columns of a study's rows."""
        record = self.record
        return {
            "run": str(self.path),
            "encoding": record.encoding,
            "seed": record.seed,
            "leading_bos": record.config.leading_bos,
        }

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Put the facts in front of `frame`."""
        return pd.concat([pd.DataFrame(self.facts, index=frame.index), frame], axis=1)


@dataclass(frozen=True)
class Sample:
    """Problems of an evaluation set, with the keys of their random choices."""

    problems: Problems
    keys: Integers

    def batches(self, decoder: Decoder) -> Iterator[Rows]:
        """Yield batches of one length each, so that nothing is padded, small enough to keep the
        attention weights of all layers in memory."""
        maps = decoder.config.num_layers * decoder.config.num_heads
        for length in np.unique(self.problems.lengths):
            same = np.flatnonzero(self.problems.lengths == length)
            size = max(1, NUMBERS_A_BATCH // (maps * int(length) ** 2))
            for start in range(0, len(same), size):
                yield pad(self.problems, self.keys, same[start : start + size])


@dataclass(frozen=True)
class StudiedRuns:
    """Runs that may be compared, and the problems of `split` that they are scored on."""

    runs: list[StudiedRun]
    split: str

    @property
    def record(self) -> RunRecord:
        """The record of the first run; the others differ in the encoding, the seed and the [BOS]
        of training alone."""
        return self.runs[0].record

    @property
    def bucket(self) -> Bucket:
        """The evaluation set."""
        config = self.record.config
        return Bucket(config.task, config.tested_digits, config.evaluation_seed, self.split)

    def regions(self, count: int | None = None) -> dict[Region, Integers]:
        """Return the indices of the first `count` problems (None: of all) in distribution, both
        operands of trained lengths, and out of it; a region without problems is absent.

        Raises UsageError if there are fewer.
        """
        config, bucket = self.record.config, self.bucket
        available = config.problems_per_cell * bucket.num_pairs
        count = available if count is None else count
        if count > available:
            raise UsageError(f"the evaluation set has {available:,} problems: {count:,} are more")
        trained = (bucket.operand_lengths(0, count) <= config.trained_digits).all(axis=1)
        regions = {INSIDE: np.flatnonzero(trained), OUTSIDE: np.flatnonzero(~trained)}
        return {region: indices for region, indices in regions.items() if len(indices)}

    def sample(self, indices: Integers) -> Sample:
        """Return the problems at `indices`, int64[n]."""
        stop = int(indices.max()) + 1
        problems, keys = self.bucket.problems(0, stop), self.bucket.keys(0, stop)
        return Sample(take(problems, indices), keys[indices])

    def facts(self, regions: dict[Region, Integers]) -> dict[str, Any]:
        """Return the facts of a study of the problems at the indices of `regions`."""
        bucket, record = self.bucket, self.record
        return {
            "preset": record.preset,
            "settings": record.settings,
            "trained_digits": record.config.trained_digits,
            "evaluation": {
                "task": bucket.task,
                "version": bucket.version,
                "split": bucket.split,
                "seed": bucket.seed,
                "max_digits": bucket.max_digits,
                "problems": {region: len(indices) for region, indices in regions.items()},
                "sha256": bucket.sha256(max(int(i.max()) for i in regions.values()) + 1),
            },
        }

    def watchable(self) -> Iterator[tuple[StudiedRun, Decoder, Hardware]]:
        """Yield each run with its final decoder in float32, uncompiled, with attention that shows
        its weights."""
        eager = AttentionChoice("eager", compiled=False)
        with bar("watch", len(self.runs)) as update:
            for number, run in enumerate(self.runs, start=1):
                folder = existing_run(run.path)
                decoder, hardware = trained_decoder(folder, run.record.name, run.record, eager)
                decoder.attend_with(load_backend(hardware.attention))
                yield run, decoder.eval(), hardware
                update(number, str(run.path))


def comparable_runs(paths: Sequence[Path], split: str = EVALUATION) -> StudiedRuns:
    """Load the runs at `paths`, in this order.

    Raises UsageError if there is none, one is not trained to its end or there twice, or presets or
    settings differ in more than the [BOS] tokens that training put in front.
    """
    if not paths:
        raise UsageError("no run is named: give the folders of runs, as `tape-arith list` shows")
    runs = [StudiedRun(path, trained_record(existing_run(path))) for path in paths]
    first = _settings(runs[0])
    identities: set[tuple[Any, ...]] = set()
    for run in runs:
        settings = _settings(run)
        differ = [key for key in {**first, **settings} if first.get(key) != settings.get(key)]
        if differ:
            differences = ", ".join(f"{k} {settings.get(k)}, not {first.get(k)}" for k in differ)
            raise UsageError(
                f"{run.path} cannot be compared with {runs[0].path} ({differences}): study them "
                "one by one"
            )
        _, encoding, seed, _ = identity = tuple(run.facts.values())
        if identity[1:] in identities:
            raise UsageError(f"{run.path} is {encoding}, seed {seed}, twice: name each run once")
        identities.add(identity[1:])
    return StudiedRuns(runs, split)


def _settings(run: StudiedRun) -> dict[str, Any]:
    record = run.record
    settings = {"preset": record.preset, "task_version": record.task_version}
    settings |= {"first_steps": record.first_steps, **record.config.as_dict()}
    del settings["leading_bos"]
    return settings


@dataclass(frozen=True)
class Watched:
    """The attention weights [B, H, T, T] of each layer, and the inner products [B or 1, H or 1, T,
    T] of the positional state that it used, None for an encoding without such a state."""

    weights: list[Tensor]
    products: list[Tensor | None]


def watched(decoder: Decoder, seqs: Sequences) -> Watched:
    """Record a forward of padded rows, in the precision of the decoder's parameters.

    The attention backend must be `eager`, which alone shows its weights. Raises UsageError as the
    encoding does; Failure if weights are not finite.
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
        decoder(replace(seqs, watch=watch))
    assert len(seen.weights) == len(seen.products) == decoder.config.num_layers
    return seen
