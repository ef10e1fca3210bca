"""The stability of runs under positional shifts, measured one run after the other."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from tape_arith.arith.studies.inputs import (
    StudiedRun,
    comparable_runs,
    evaluation_bucket,
    first_problems,
)
from tape_arith.arith.studies.stability_data import deviations
from tape_arith.arith.studies.stability_figure import Precision, Series, Study
from tape_arith.arith.terminal import bar

TYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}


def stability_study(paths: Sequence[Path], count: int, precisions: Sequence[Precision]) -> Study:
    """The runs at `paths` over the first `count` problems of their evaluation set.

    Errors: UsageError where runs cannot be compared or have fewer problems; Failure for a corrupt
    file or weights that are not finite.
    """
    runs = comparable_runs(paths)
    bucket = evaluation_bucket(runs[0])
    first_problems(runs[0], count)  # too many are refused before anything is computed
    series: list[Series] = []
    with bar("watch", len(runs) * len(precisions)) as update:
        for number, run in enumerate(runs):
            series += _of_run(run, count, precisions)
            update((number + 1) * len(precisions), str(run.path))
    return Study(
        series=tuple(series),
        preset=runs[0].record.preset,
        evaluation={
            "task": bucket.task,
            "version": bucket.version,
            "seed": bucket.seed,
            "max_digits": bucket.max_digits,
            "problems": count,
            "sha256": bucket.sha256(count),
        },
    )


def _of_run(run: StudiedRun, count: int, precisions: Sequence[Precision]) -> Iterator[Series]:
    sample = first_problems(run, count)
    decoder, hardware = run.decoder()
    for precision in precisions:
        decoder.to(TYPES[precision])
        for found in deviations(
            decoder, sample.problems, sample.keys, sample.among, hardware.device
        ):
            yield Series(
                run=str(run.path),
                encoding=run.record.encoding,
                seed=run.record.seed,
                leading_bos=run.leading_bos,
                precision=precision,
                change=found.change,
                measure=found.measure,
                values=found.values,
                why=found.why,
            )
