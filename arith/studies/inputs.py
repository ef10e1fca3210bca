"""Trained runs as studies take them: what may be compared, their decoders, their problems."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.find import existing_run
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.weights import trained_decoder, trained_record
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.backends import load
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.names.backends import AttentionChoice

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class StudiedRun:
    """A finished run and where it is."""

    path: Path
    record: RunRecord

    @property
    def leading_bos(self) -> int:
        """At most so many [BOS] tokens stood before a problem in training."""
        return self.record.config.leading_bos

    def decoder(self) -> tuple[Decoder, Hardware]:
        """The final one, uncompiled, with attention that shows its weights; in float32, without
        autocast."""
        name = self.record.name
        plain = AttentionChoice("eager", compiled=False)
        decoder, hardware = trained_decoder(existing_run(self.path), name, self.record, plain)
        decoder.attend_with(load(hardware.attention))
        return decoder.eval(), hardware


@dataclass(frozen=True)
class Sample:
    """Problems of an evaluation set, and the places of those that are studied."""

    problems: Problems
    keys: Integers
    among: Integers


def comparable_runs(paths: Sequence[Path]) -> list[StudiedRun]:
    """The runs at `paths`, in this order.

    Errors: UsageError where there is none, one is not trained to its end or named twice, or they
    are of different presets or settings, but for the [BOS] tokens that training put in front.
    """
    if not paths:
        raise UsageError("no run is named: give the folders of runs, as `tape-arith list` shows")
    runs = [StudiedRun(path, trained_record(existing_run(path))) for path in paths]
    resolved = [path.resolve() for path in paths]
    for number, place in enumerate(resolved):
        if place in resolved[:number]:
            raise UsageError(f"{paths[number]} is named twice: name each run once")
    first = runs[0]
    for run in runs[1:]:
        mine, theirs = _settings(first), _settings(run)
        differ = [key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]
        if differ:
            told = ", ".join(f"{key} {theirs.get(key)}, not {mine.get(key)}" for key in differ)
            raise UsageError(
                f"{run.path} cannot be compared with {first.path} ({told}): study them one by one"
            )
    return runs


def _settings(run: StudiedRun) -> dict[str, Any]:
    record = run.record
    settings = {"preset": record.preset, "task_version": record.task_version}
    settings |= {"first_steps": record.first_steps, **record.config.as_dict()}
    del settings["leading_bos"]
    return settings


def evaluation_bucket(run: StudiedRun) -> Bucket:
    """The problems that the run is scored on."""
    config = run.record.config
    return Bucket(config.task, config.tested_digits, config.evaluation_seed, EVALUATION)


def first_problems(run: StudiedRun, count: int) -> Sample:
    """The first `count` problems of the run's evaluation set. Errors: UsageError for too many."""
    bucket = evaluation_bucket(run)
    there = run.record.config.problems_per_cell * bucket.num_pairs
    if count > there:
        raise UsageError(f"the evaluation set has {there:,} problems, and {count:,} are asked for")
    return Sample(bucket.problems(0, count), bucket.keys(0, count), np.arange(count))


def by_region(run: StudiedRun, count: int) -> dict[str, Sample]:
    """The first `count` problems of the evaluation set whose operands are both of trained lengths,
    "in distribution", and of the others, "out of distribution" (as many as there are; without a
    key where there are none)."""
    config, bucket = run.record.config, evaluation_bucket(run)
    lengths = bucket.operand_lengths(0, config.problems_per_cell * bucket.num_pairs)
    inside = (lengths <= config.trained_digits).all(axis=1)
    chosen = {
        "in distribution": np.flatnonzero(inside)[:count],
        "out of distribution": np.flatnonzero(~inside)[:count],
    }
    stop = max(int(among.max(initial=-1)) for among in chosen.values()) + 1
    whole = Sample(bucket.problems(0, stop), bucket.keys(0, stop), np.arange(stop))
    return {region: replace(whole, among=among) for region, among in chosen.items() if len(among)}
