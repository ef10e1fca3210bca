"""Inputs of studies: comparable runs, their problems, forwards that record attention weights.

Legend: B batch, T tokens, H heads, N layers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tape_arith.arith.compare.lengths import trained_and_tested
from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.data.rows import Rows, pad
from tape_arith.arith.decoders.failures import fitting
from tape_arith.arith.decoders.weights import trained_decoder, trained_record
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.grids.axes import Ints, Region, number_longer, scored_axes
from tape_arith.arith.registry.names import check_encoding
from tape_arith.arith.runs.find import existing_run
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.run import Run
from tape_arith.arith.studies.study import INSIDE, OUTSIDE, Study
from tape_arith.arith.tasks.task import Problems, take
from tape_arith.arith.terminal import bar
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import detect
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences

Result = TypeVar("Result")
NUMBERS_A_BATCH = 20_000_000
"""Maximum attention weights in a batch, over all layers; two sets of these take 320 MB in
float64."""


@dataclass
class _Cut:
    finer: int = 1


class Sample(NamedTuple):
    """Problems of an evaluation set, with the keys of their random choices."""

    problems: Problems
    keys: Ints

    def batches(
        self, decoder: Decoder, function: Callable[[Rows], Result]
    ) -> Iterator[tuple[Rows, Result]]:
        """Yield each batch with the result of `function`.

        A batch has one length, so that nothing is padded, and is small enough to keep the attention
        weights of all layers in memory.
        """
        maps, cut = decoder.config.applied_layers * decoder.config.num_heads, _Cut()
        left, length = np.zeros(0, np.int64), 1

        def batch() -> Rows:
            size = max(1, NUMBERS_A_BATCH // (cut.finer * maps * length**2))
            return pad(self.problems, self.keys, left[:size])

        def attempt() -> tuple[Rows, Result]:
            rows = batch()
            return rows, function(rows)

        for length in np.unique(self.problems.lengths).tolist():
            left = np.flatnonzero(self.problems.lengths == length)
            while len(left):
                rows, result = fitting(
                    attempt, cut, lambda: len(batch().source_index), work="the study"
                )
                yield rows, result
                left = left[len(rows.source_index) :]


@dataclass(frozen=True)
class StudiedRuns:
    """The records of finished runs, by folder, and the `split` whose problems are studied.

    The records differ only in the encoding, the seed and the number of [BOS] in training.
    """

    records: dict[Path, RunRecord]
    split: str

    @property
    def record(self) -> RunRecord:
        """The record of the first run."""
        return next(iter(self.records.values()))

    @property
    def bucket(self) -> Bucket:
        """The evaluation set."""
        return self.record.config.evaluation_bucket(self.split)

    @property
    def num_problems(self) -> int:
        """The number of problems in the evaluation set."""
        return self.record.config.problems_per_cell * self.bucket.num_cells

    def regions(self, count: int | None = None) -> dict[Region, Ints]:
        """Return the indices of the first `count` problems (None: all), by region.

        In distribution, all lengths are trained ones. A region without problems is absent.
        Raises UsageError if there are fewer problems.
        """
        bucket, available = self.bucket, self.num_problems
        count = available if count is None else count
        if count > available:
            raise UsageError(
                f"the evaluation set has {available:,} problems, not {count:,}: give --problems "
                f"{available} or fewer"
            )
        axes = scored_axes(self.record.config.bucket(0), bucket)
        trained = number_longer(axes, bucket.axis_lengths(0, count)) == 0
        regions = {INSIDE: np.flatnonzero(trained), OUTSIDE: np.flatnonzero(~trained)}
        return {region: indices for region, indices in regions.items() if len(indices)}

    def sample(self, indices: Ints) -> Sample:
        """Return the problems at `indices`, int64[n]."""
        stop = int(indices.max()) + 1
        problems, keys = self.bucket.problems(0, stop), self.bucket.keys(0, stop)
        return Sample(take(problems, indices), keys[indices])

    def look_inside(self, kind: str) -> None:
        """Raise UsageError if a run is that of a model, into which a study of `kind` cannot see."""
        for record in self.records.values():
            check_encoding(record.name, f"a study of {kind} looks into the decoder of this suite")

    def measure(
        self,
        kind: str,
        regions: dict[Region, Ints],
        measured: Callable[[Runner], pd.DataFrame],
        **facts: Any,
    ) -> Study:
        """Measure each run on the problems at the indices of `regions`; return the study.

        `measured` takes a runner of a run's final decoder and returns its rows. The runner computes
        in float32, so that no number depends on where a study runs, and the decoder exposes its
        attention weights. The study also holds `facts`.
        """
        bucket, record, frames = self.bucket, self.record, []
        with bar(f"study {kind}", len(self.records)) as update:
            for number, (path, run) in enumerate(self.records.items(), start=1):
                decoder = trained_decoder(existing_run(path), run.name, run).eval()
                rows = measured(Runner(decoder, detect(compiled=False).in_float32()))
                columns = {"run": str(path), "encoding": run.encoding, "seed": run.seed}
                columns |= {"leading_bos": run.config.leading_bos}
                frames.append(pd.concat([pd.DataFrame(columns, rows.index), rows], axis=1))
                update(number, str(path))
        facts = {
            "preset": record.preset,
            "settings": record.settings,
            "trained_digits": record.config.trained_digits,
            "lengths": trained_and_tested(scored_axes(record.config.bucket(0), bucket)),
            "evaluation": {
                "task": bucket.task,
                "version": bucket.version,
                "split": bucket.split,
                "seed": bucket.seed,
                "max_digits": bucket.max_digits,
                "problems": {region: len(indices) for region, indices in regions.items()},
                "sha256": bucket.sha256(max(int(i.max()) for i in regions.values()) + 1),
            },
            **facts,
        }
        return Study(kind, facts, pd.concat(frames, ignore_index=True))


def comparable_runs(paths: Sequence[Path], split: str = EVALUATION) -> StudiedRuns:
    """Load the runs at `paths`, in this order.

    Raises UsageError if `paths` is empty, a run is unfinished or given twice, or presets or
    settings differ in more than the number of [BOS] that training put in front.
    """
    if not paths:
        raise UsageError("no run is named: give the folders of runs, as `tape-arith list` shows")
    records: dict[Path, RunRecord] = {}
    identities = set()
    for path in paths:
        record = trained_record(existing_run(path))
        records[path] = record
        first, settings = (_settings(each) for each in (records[paths[0]], record))
        precisions = [Run(each).precision() for each in (paths[0], path)]
        if None not in precisions:
            first["precision"], settings["precision"] = precisions
        differ = [key for key in {**first, **settings} if first.get(key) != settings.get(key)]
        if differ:
            differences = ", ".join(f"{k} {settings.get(k)}, not {first.get(k)}" for k in differ)
            raise UsageError(
                f"{path} cannot be compared with {paths[0]} ({differences}): study them one by one"
            )
        identity = record.encoding, record.seed, record.config.leading_bos
        if identity in identities:
            raise UsageError(
                f"{path} is {record.encoding}, seed {record.seed}, twice: name each run once"
            )
        identities.add(identity)
    return StudiedRuns(records, split)


def _settings(record: RunRecord) -> dict[str, Any]:
    """Return what must be equal of runs that are studied together; `leading_bos` may differ."""
    settings = {"preset": record.preset, "task_version": record.task_version}
    settings |= {**record.budget.as_dict(), **record.config.as_dict()}
    for key in ("leading_bos", "config_sha256"):  # the hash covers leading_bos
        del settings[key]
    return settings


def watched(decoder: Decoder, seqs: Sequences) -> tuple[list[Tensor], list[Tensor | None]]:
    """Run a forward pass of padded rows, in the precision of the decoder's parameters.

    Returns, for each layer (once a loop), the attention weights [B, H, T, T] and the inner products
    [B or 1, H or 1, T, T] of the positional state that it used (None for an encoding without such a
    state). Raises UsageError where the encoding does; Failure if weights are not finite.
    """
    weights: list[Tensor] = []
    products: list[Tensor | None] = []

    def watch(layer: int, kind: str, value: Any) -> None:
        if kind == "state":
            products.append(decoder.pe.inner_products(value))
        if kind == "weights":
            if not bool(value.isfinite().all()):
                raise Failure(
                    f"attention weights of layer {layer + 1} are not finite: leave this run out, "
                    "and look at its encoding with `tape-arith check`"
                )
            weights.append(value)

    with torch.no_grad():
        decoder(replace(seqs, watch=watch))
    return weights, products
