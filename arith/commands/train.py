"""`tape-arith train`: train one run and score it."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.api.processes import configure
from tape_arith.arith.commands import completion, jobs, option
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import is_encoding
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Policy
from tape_arith.arith.runs.preset import parse_settings

EXAMPLE = "tape-arith train --pe tape --preset mini --seed 1"

_Run = Annotated[
    Path | None, typer.Argument(help="The folder of a run to continue, instead of --pe.")
]
_Encoding = Annotated[
    list[str] | None,
    option.what(
        "--pe",
        "--model",
        metavar="NAME",
        help="The positional encoding: name[:option=value...][+name]. Or a model.",
        autocompletion=completion.complete_encoding,
    ),
]
_Steps = Annotated[
    int | None,
    option.how_long(
        metavar="N", min=1, help="With RUN: extend its budget to this number of steps."
    ),
]
_InitFrom = Annotated[
    Path | None,
    option.what(
        metavar="RUN",
        help="Start from the final weights of a run, by default with its preset, settings and "
        "seed.",
    ),
]
_OnlyPositional = Annotated[
    bool, option.what("--only-positional", help="With --init-from: train only the encoding.")
]
_Data = Annotated[
    Path | None,
    option.where(
        metavar="DIR",
        help="A dataset (default: that of `generate` in data, if it fits; else problems are "
        "generated as needed).",
    ),
]
_NoScore = Annotated[bool, option.how_long("--no-score", help="Score no grid.")]
_OnNonfinite = Annotated[
    Policy | None,
    option.how_long(
        help="If a loss or gradient is not finite: stop, or skip that update and count it "
        "(default: as in the run's record, stop for a new run)."
    ),
]


def command(
    run: _Run = None,
    pe: _Encoding = None,
    preset: option.Preset = None,
    seed: option.Seed = None,
    settings: option.Settings = None,
    task: option.TaskName = None,
    steps: _Steps = None,
    init_from: _InitFrom = None,
    only_positional: _OnlyPositional = False,
    data: _Data = None,
    runs: option.MadeRuns = Path("runs"),
    no_score: _NoScore = False,
    time_limit: option.TimeLimit = None,
    threads: option.Threads = None,
    backend: option.Backend = "auto",
    compiled: option.Compiled = None,
    precision: option.InPrecision = "auto",
    no_curves: option.NoCurves = False,
    track: option.Track = None,
    on_nonfinite: _OnNonfinite = None,
    fresh: option.Fresh = False,
) -> None:
    """Train one encoding, or continue a run, then score its grid."""
    name = None if pe is None else ",".join(pe)
    makes_new = any((preset, settings, task, init_from, fresh)) or seed is not None
    _check(run, name, steps, makes_new=makes_new or runs != Path("runs"))
    if only_positional and init_from is None:
        raise UsageError("--only-positional needs --init-from RUN, whose weights stay as they are")
    options = option.train_options(
        backend, compiled, no_curves, track, precision, data, on_nonfinite
    )
    from tape_arith.arith.api.run import Run
    from tape_arith.arith.api.runs import train

    configure(threads)
    with jobs.stopping(time_limit) as stopper:
        if run is not None:
            trained = Run(run).train(steps, options=options, stopper=stopper)
        else:
            trained = train(
                str(name),
                preset=preset,
                task=task,
                seed=seed,
                runs=runs,
                init_from=init_from,
                only_positional=only_positional,
                options=options,
                fresh=fresh,
                stopper=stopper,
                settings=parse_settings(settings),
            )
        complete = trained.state().trained
        if complete and not no_score:
            added = parse(name).extrapolation if name else None
            compute = options.compute.for_scoring
            grid = trained.score(str(added) if added else None, compute=compute, stopper=stopper)
            complete = grid.complete
            print(grid.summary())
    print(trained.path)
    if not complete:
        jobs.leave(stopper)


def _check(run: Path | None, pe: str | None, steps: int | None, *, makes_new: bool) -> None:
    """Raise UsageError unless options name one run, to continue or to train.

    makes_new  whether any option is about a new run
    """
    if run is not None and pe is not None:
        raise UsageError("RUN continues with its own encoding: leave out --pe or RUN")
    if run is None and pe is None:
        raise UsageError("name an encoding (--pe tape) or the folder of a run to continue")
    if run is not None and not run.exists() and is_encoding(str(run)):
        raise UsageError(f"RUN is the folder of a run: write --pe {run} to train an encoding")
    if run is not None and makes_new:
        raise UsageError(
            "RUN continues with the settings in its run.json: leave out --preset, --set, --task, "
            "--seed, --runs and --init-from; to start over, give these and --pe with --fresh, "
            "without RUN"
        )
    if steps is not None and run is None:
        raise UsageError("--steps extends an existing run; for a new one use --set steps=N")
