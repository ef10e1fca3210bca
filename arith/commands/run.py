"""`tape-arith run`: generate, train, score and draw in one command."""

from pathlib import Path
from typing import Annotated

from tape_arith.arith.api.processes import configure
from tape_arith.arith.commands import jobs, option
from tape_arith.arith.runs.preset import parse_settings

EXAMPLE = "tape-arith run --pe rope,fire,tape --seeds 0,1,2 --preset mini"

_Seeds = Annotated[
    str, option.what("--seeds", "--seed", metavar="LIST", help="Seeds, with commas.")
]
_Datasets = Annotated[
    Path, option.where("--datasets", metavar="DIR", help="The folder of datasets.")
]


def command(
    pe: option.EncodingList,
    seeds: _Seeds = "0",
    preset: option.Preset = None,
    settings: option.Settings = None,
    task: option.TaskName = None,
    datasets: _Datasets = Path("data"),
    runs: option.MadeRuns = Path("runs"),
    dry_run: option.DryRun = False,
    on: option.On = None,
    time_limit: option.TimeLimit = None,
    archive: option.Archive = None,
    threads: option.Threads = None,
    backend: option.Backend = "auto",
    compiled: option.Compiled = None,
    precision: option.InPrecision = "auto",
    no_curves: option.NoCurves = False,
    track: option.Track = None,
    slots: option.Slots = None,
    engine: option.Engine = "local",
) -> None:
    """Generate, train, score and draw; what is finished is not repeated."""
    from tape_arith.arith.api.runs import requested

    configure(threads)
    numbers = option.whole_numbers("--seeds", seeds)
    slots = option.estimated_slots(dry_run, on, slots)
    options = option.train_options(backend, compiled, no_curves, track, precision)
    changed = parse_settings(settings)
    with jobs.stopping(time_limit) as stopper:
        from tape_arith.arith.sweeps.run_sweep import plan_run, run_requests

        requests = requested(",".join(pe), numbers, preset, task, runs, changed)
        if dry_run:
            jobs.print_plan(plan_run(requests, options, datasets, slots, engine), on)
            return
        outcome = run_requests(requests, options, datasets, slots, engine, stopper, archive)
    for file in outcome.files:
        print(file)
    jobs.conclude(outcome, stopper)
