"""`tape-arith score`: score the grid of a run."""

import json

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import leave, stopper_for, use_threads
from tape_arith.arith.documents import with_checksum
from tape_arith.arith.registry.names import parse_extrapolation
from tape_arith.arith.runs.options import Compute

EXAMPLE = "tape-arith score runs/mini/rope/seed-0 --with yarn"


def command(
    run: option.RunPath,
    with_: option.With = None,
    split: option.Split = "evaluation",
    max_digits: option.MaxDigits = None,
    as_json: option.AsJson = False,
    time_limit: option.TimeLimit = None,
    threads: option.Threads = None,
    backend: option.Backend = "auto",
    compiled: option.Compiled = None,
    fresh: option.Fresh = False,
) -> None:
    """Score a run on its grid of lengths, by one teacher-forced pass."""
    from tape_arith.arith.grids.evaluation_set import EvaluationSet
    from tape_arith.arith.runs.find import existing_run

    evaluation_set = EvaluationSet(split, max_digits)
    extrapolation = parse_extrapolation(with_) if with_ else None
    stopper = stopper_for(time_limit)
    use_threads(threads)
    from tape_arith.arith.scoring.session import score_run

    with stopper.handling_signals():
        grid = score_run(
            existing_run(run),
            extrapolation,
            evaluation_set=evaluation_set,
            compute=Compute(backend, compiled),
            fresh=fresh,
            should_stop=stopper,
        )
    if as_json:
        print(json.dumps(with_checksum(grid.content(), "grid")))
    else:
        print(grid.summary(evaluation_set))
    if not grid.complete:
        leave(stopper)
