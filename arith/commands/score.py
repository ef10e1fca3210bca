"""`tape-arith score`: score the grid of a run."""

import json

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import leave, set_up, stopping_by
from tape_arith.arith.documents import with_checksum
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
    from tape_arith.arith.api.run import Run
    from tape_arith.arith.grids.evaluation_set import EvaluationSet

    stopper, compute = set_up(time_limit, threads), Compute(backend, compiled)
    with stopping_by(stopper):
        grid = Run(run).score(
            with_ or None,
            split=split,
            max_digits=max_digits,
            compute=compute,
            fresh=fresh,
            stopper=stopper,
        )
    if as_json:
        print(json.dumps(with_checksum(grid.content(), "grid")))
    else:
        print(grid.summary(EvaluationSet(split, max_digits)))
    if not grid.complete:
        leave(stopper)
