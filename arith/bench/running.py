"""Running the stages that were asked for: every line shown when it comes, and kept in a file."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from tape_arith.arith.bench import report, stages
from tape_arith.arith.bench.measure import Measurement, Options, not_measured
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.environment import environment
from tape_arith.arith.runs.presets import known
from tape_arith.models.hardware import detect

#: What every stage takes.
COMMON = frozenset({"seconds", "quick", "threads"})


def run(names: Sequence[str], options: Options, file: Path | None = None) -> bool:
    """Measure the stages `names`, print their lines, keep them in `file` (JSON, whole after each
    stage). False where one of several stages failed: its last line says why.

    Errors: UsageError for an unknown stage and for an option that none of the stages takes;
    Failure and UsageError of a stage that is alone.
    """
    todo = stages.chosen(names)
    known(options.preset)
    _refuse_dropped(todo, options)
    facts = environment(detect(options.compute)) | {"cores": os.cpu_count(), "stages": todo}
    failed: list[str] = []
    lines: list[Measurement] = []

    def keep(complete: bool) -> None:
        if file is not None:
            report.write(file, lines, facts, options, complete)

    def everything() -> Iterator[Measurement]:
        for stage in todo:
            try:
                yield from stages.module(stage).measure(options)
            except (Failure, UsageError) as error:
                if len(todo) == 1:
                    raise
                failed.append(stage)
                yield not_measured(stage, "the rest of this stage", "", str(error))
            keep(complete=False)

    for line in report.shown(everything()):
        lines.append(line)
    keep(complete=not failed)
    return not failed


def _refuse_dropped(todo: Sequence[str], options: Options) -> None:
    """A stage's TAKES names the options that it takes besides the common ones."""
    taken = COMMON.union(*(stages.module(stage).TAKES for stage in todo))
    default = Options()
    for option in fields(Options):
        if option.name not in taken and getattr(options, option.name) != getattr(
            default, option.name
        ):
            raise UsageError(
                f"{', '.join(todo)} would drop {option.metadata['option']}: leave it out"
            )
