"""`tape-arith score`: score the grid of a run."""

import json

from tape_arith.arith.api.processes import configure
from tape_arith.arith.commands import jobs, option
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

    configure(threads)
    with jobs.stopping(time_limit) as stopper:
        grid = Run(run).score(
            with_ or None,
            split=split,
            max_digits=max_digits,
            compute=Compute(backend, compiled),
            fresh=fresh,
            stopper=stopper,
        )
    if as_json:
        print(json.dumps(with_checksum(grid.content(), "grid")))
    else:
        print(grid.summary(EvaluationSet(split, max_digits)))
    if not grid.complete:
        jobs.leave(stopper)
