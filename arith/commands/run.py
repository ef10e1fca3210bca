"""`tape-arith run`: generate, train, score and draw in one command."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import (
    chosen_config,
    conclude,
    stopper_for,
    train_options,
    use_threads,
    whole_numbers,
)
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.names import parse_list
from tape_arith.arith.runs.options import AUTO

EXAMPLE = "tape-arith run --pe rope,fire,tape --seeds 0,1,2 --preset mini"


def command(
    pe: option.EncodingList,
    seeds: Annotated[str, typer.Option("--seeds", "--seed", help="Seeds, with commas.")] = "0",
    preset: option.Preset = None,
    settings: option.Settings = None,
    task: option.TaskName = None,
    datasets: option.Datasets = Path("data"),
    runs: option.MadeRuns = Path("runs"),
    time_limit: option.TimeLimit = None,
    threads: option.Threads = None,
    backend: option.Backend = "auto",
    compiled: option.Compiled = None,
    no_curves: option.NoCurves = False,
    track: option.Track = None,
    slots: option.Slots = None,
    engine: option.Engine = "local",
) -> None:
    """Generate, train, score and draw; nothing finished is done again."""
    names = parse_list(pe)
    numbers = whole_numbers("--seeds", seeds)
    if not names:
        raise UsageError("--pe is empty: name encodings, as in --pe rope,fire")
    from tape_arith.arith.sweeps.engines import remote_engine
    from tape_arith.arith.sweeps.sweep import RUN, sweep_folder

    stopper = stopper_for(time_limit)
    folder = sweep_folder(RUN, runs)
    remote = remote_engine(engine, slots, folder)
    use_threads(threads)
    name, config = chosen_config(preset, settings, task)
    from tape_arith.arith.data.dataset import FILE
    from tape_arith.arith.runs.request import Request
    from tape_arith.arith.sweeps.engines.local import local_engine
    from tape_arith.arith.sweeps.jobs import ScoreJob, plan, run_jobs, say_result
    from tape_arith.arith.sweeps.run_sweep import check_requests, draw_comparison
    from tape_arith.arith.sweeps.slots import choose_slots

    if (datasets / FILE).exists():
        raise UsageError(
            f"{datasets} is a dataset, and --datasets takes the folder of datasets: --datasets "
            f"{datasets.parent} (`train` takes one dataset)"
        )
    options = train_options(backend, compiled, no_curves, track)
    requests = [Request(pe, seed, name, config, runs) for seed in numbers for pe in names]
    with stopper.handling_signals():
        check_requests(requests, options.compute if remote is None else AUTO)
        jobs = plan(requests, options, runs, data=datasets)
        for job in jobs:
            if isinstance(job, ScoreJob):
                say_result(job)
        job_engine = remote or local_engine(choose_slots(jobs, slots), folder, stopper)
        outcome = run_jobs(jobs, job_engine, stopper)
        try:
            if (figure := draw_comparison(requests)) is not None:
                print(figure)
        finally:  # names failed jobs even if the figure cannot be drawn
            conclude(outcome, stopper)
