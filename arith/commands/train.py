"""`tape-arith train`: train one run and score it."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import (
    chosen_config,
    leave,
    stopper_for,
    train_options,
    use_threads,
)
from tape_arith.arith.errors import EXIT_FAILED, UsageError
from tape_arith.arith.registry.locate import is_encoding
from tape_arith.arith.registry.names import parse_list
from tape_arith.arith.runs.config import Policy

EXAMPLE = "tape-arith train --pe tape --preset mini --seed 1"


def command(
    run: Annotated[
        Path | None, typer.Argument(help="The folder of a run to continue, instead of --pe.")
    ] = None,
    pe: Annotated[
        str | None,
        typer.Option(
            help="The positional encoding: name[:option=value...][+name].",
            autocompletion=option.complete_encoding,
        ),
    ] = None,
    preset: option.Preset = None,
    seed: option.Seed = None,
    settings: option.Settings = None,
    task: option.TaskName = None,
    steps: Annotated[
        int | None, typer.Option(help="With RUN: extend its budget to this number of steps.")
    ] = None,
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Start from the final weights of a run, by default with its preset, settings and "
            "seed.",
        ),
    ] = None,
    only_positional: Annotated[
        bool,
        typer.Option("--only-positional", help="With --init-from: train only the encoding."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A dataset (default: that of `generate` in data, if it fits; else problems are "
            "generated as needed)."
        ),
    ] = None,
    runs: option.MadeRuns = Path("runs"),
    no_score: Annotated[bool, typer.Option("--no-score", help="Score no grid.")] = False,
    time_limit: option.TimeLimit = None,
    threads: option.Threads = None,
    backend: option.Backend = "auto",
    compiled: option.Compiled = None,
    no_curves: option.NoCurves = False,
    track: option.Track = None,
    on_nonfinite: Annotated[
        Policy | None,
        typer.Option(
            help="The reaction to a step whose loss or gradient is not finite: stop, or skip the "
            "update and count it (default: stop, or as in the run's record).",
        ),
    ] = None,
    fresh: option.Fresh = False,
) -> None:
    """Train one encoding, or continue a run, then score its grid."""
    if run is not None and pe is not None:
        raise UsageError("RUN continues with its own encoding: leave out --pe, or RUN")
    if run is None and pe is None:
        raise UsageError("name an encoding (--pe tape) or the folder of a run to continue")
    if run is not None and not run.exists() and is_encoding(str(run)):
        raise UsageError(f"RUN is the folder of a run: write --pe {run} to train an encoding")
    recipe = (preset, settings, task, fresh, runs != Path("runs"), init_from)
    if run is not None and (any(recipe) or seed is not None):
        raise UsageError(
            "RUN continues with the settings in its run.json: leave out --preset, --set, --task, "
            "--seed, --runs and --init-from; to start over, give these and --pe with --fresh, "
            "without RUN"
        )
    if steps is not None and run is None:
        raise UsageError("--steps extends an existing run; for a new one use --set steps=N")
    if only_positional and init_from is None:
        raise UsageError("--only-positional goes with --init-from RUN, whose weights stay")
    names = parse_list(pe) if pe is not None else []
    if run is None and not names:
        raise UsageError("--pe is empty: name an encoding, as in --pe tape")
    if len(names) > 1:
        raise UsageError(f"train takes one encoding: `tape-arith run --pe {pe}` takes several")
    stopper = stopper_for(time_limit)
    use_threads(threads)
    options = train_options(backend, compiled, no_curves, track, data, on_nonfinite)
    from tape_arith.arith.runs.find import existing_run
    from tape_arith.arith.runs.request import Request
    from tape_arith.arith.scoring.session import score_run
    from tape_arith.arith.training.begin import extend_run
    from tape_arith.arith.training.distributed import process_group
    from tape_arith.arith.training.session import continue_run, train_as_worker, train_run

    with stopper.handling_signals(), process_group() as group:
        if not group.first:
            if not train_as_worker(group, options, should_stop=stopper):
                raise typer.Exit(EXIT_FAILED)
            return
        if run is not None:
            trained = existing_run(run)
            if steps is not None:
                extend_run(trained, steps, data=data)
            continue_run(trained, options, processes=group, should_stop=stopper)
            extrapolation = None
        else:
            extrapolation = names[0].extrapolation
            source = None if init_from is None else existing_run(init_from)
            origin = None if source is None else source.record()
            name, config = chosen_config(preset, settings, task, like=origin)
            if seed is None:
                seed = 0 if origin is None else origin.seed
            trained = train_run(
                Request(names[0], seed, name, config, runs),
                options,
                source=source,
                only_positional=only_positional,
                fresh=fresh,
                processes=group,
                should_stop=stopper,
            )
        finished = trained.state().weights == "final"
        if finished and not no_score:
            grid = score_run(
                trained, extrapolation, compute=options.compute.for_scoring, should_stop=stopper
            )
            finished = grid.complete
            print(grid.summary())
    print(trained.path)
    if not finished:
        leave(stopper)
