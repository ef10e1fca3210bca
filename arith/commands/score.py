"""`tape-arith score`: a run's grid."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands.job_options import leave, show, stopper_for, use_threads
from tape_arith.arith.commands.options import (
    Attention,
    Compiled,
    Fresh,
    MaxDigits,
    Split,
    Threads,
    TimeLimit,
)
from tape_arith.arith.errors import UsageError
from tape_arith.models.names.backends import AttentionChoice
from tape_arith.models.names.parse import parse_extrapolation

EXAMPLE = "tape-arith score runs/mini/rope/seed-0 --with yarn"


def command(
    run: Annotated[Path, typer.Argument(help="A run's folder, as `tape-arith list` shows it.")],
    with_: Annotated[
        str | None, typer.Option("--with", help="An extrapolation at test time: yarn[:ramp=paper].")
    ] = None,
    split: Split = "evaluation",
    max_digits: MaxDigits = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Only one part of N, as in 1/4: parts run side by side."),
    ] = None,
    merge: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Make the grid of N parts that are done.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The grid on stdout.")] = False,
    time_limit: TimeLimit = None,
    threads: Threads = None,
    attention: Attention = "auto",
    compiled: Compiled = None,
    fresh: Fresh = False,
) -> None:
    """Score a run on the grid of operand lengths, by one teacher-forced pass."""
    from tape_arith.arith.data.bucket import known_split
    from tape_arith.arith.runs.find import existing_run
    from tape_arith.arith.scoring.evaluation_set import Asked
    from tape_arith.arith.scoring.shards import Shard

    asked = Asked(known_split(split), max_digits)
    extrapolation = parse_extrapolation(with_) if with_ else None
    part = Shard.parse(shard) if shard is not None else None
    if merge is not None:
        if part is not None or fresh or attention != "auto" or compiled is not None:
            raise UsageError(
                "--merge takes parts that are done: no --shard, --fresh, --attention or --compile"
            )
        from tape_arith.arith.runs.merging import merge_run

        show(merge_run(existing_run(run), extrapolation, asked=asked, of=merge), as_json, asked)
        return
    stopper = stopper_for(time_limit)
    use_threads(threads)
    from tape_arith.arith.runs.score import score_run

    with stopper.listening():
        grid = score_run(
            existing_run(run),
            extrapolation,
            asked=asked,
            shard=part,
            compute=AttentionChoice(attention, compiled),
            fresh=fresh,
            should_stop=stopper,
        )
    show(grid, as_json, asked)
    if not (part.complete(grid) if part is not None else grid.complete):
        leave(stopper)
