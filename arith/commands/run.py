"""`tape-arith run`: from nothing to a heatmap."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands.job_options import (
    chosen_config,
    conclude,
    stopper_for,
    use_threads,
    whole_numbers,
)
from tape_arith.arith.commands.options import (
    Attention,
    Compiled,
    Engine,
    LeadingBos,
    NoCurves,
    Preset,
    Runs,
    Settings,
    Slots,
    TaskName,
    Threads,
    TimeLimit,
    Track,
    complete_encoding,
)
from tape_arith.models.backends import AttentionChoice
from tape_arith.models.names.parse import parse_list

EXAMPLE = "tape-arith run --pe rope,fire,tape --seeds 0,1,2 --preset mini"


def command(
    pe: Annotated[
        str, typer.Option(help="Encodings, with commas.", autocompletion=complete_encoding)
    ],
    seeds: Annotated[str, typer.Option(help="Seeds, with commas.")] = "0",
    preset: Preset = None,
    settings: Settings = None,
    task: TaskName = None,
    leading_bos: LeadingBos = 0,
    data: Annotated[Path, typer.Option(help="The folder of datasets.")] = Path("data"),
    out: Runs = Path("runs"),
    time_limit: TimeLimit = None,
    threads: Threads = None,
    attention: Attention = "auto",
    compiled: Compiled = None,
    no_curves: NoCurves = False,
    track: Track = None,
    workers: Annotated[int, typer.Option(help="Processes that generate (default: all cores).")] = 0,
    slots: Slots = None,
    engine: Engine = "local",
) -> None:
    """Generate, train, score and draw; what is done already is never done again."""
    names = parse_list(pe)
    numbers = whole_numbers("--seeds", seeds)
    stopper = stopper_for(time_limit)
    use_threads(threads)
    name, config = chosen_config(preset, settings, task, leading_bos)
    from tape_arith.arith.runs.datasets import refuse_dataset
    from tape_arith.arith.runs.metrics import parse_trackers
    from tape_arith.arith.sweeps.jobs import JobOptions
    from tape_arith.arith.sweeps.run_sweep import run_all

    refuse_dataset(data)
    options = JobOptions(
        AttentionChoice(attention, compiled), not no_curves, data, workers, parse_trackers(track)
    )
    with stopper.handling_signals():
        outcome = run_all(
            names,
            numbers,
            name,
            config,
            options,
            out=out,
            slots=slots,
            engine=engine,
            stopper=stopper,
        )
    conclude(outcome, stopper)
