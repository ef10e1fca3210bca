"""Generate problems; train one encoding or many."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tape_arith.arith.api.arguments import AtLeastOne, Problems, Seed, Workers, checked
from tape_arith.arith.api.processes import configure, training
from tape_arith.arith.api.run import Run
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.registry.names import parse_list, parse_task
from tape_arith.arith.runs import find
from tape_arith.arith.runs.config import DATASETS, Config
from tape_arith.arith.runs.options import DEFAULTS, TrainOptions
from tape_arith.arith.runs.preset import load_preset, preset_of, with_task
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.request import Request
from tape_arith.arith.stopping import Stopper, stopping
from tape_arith.arith.terminal import say

if TYPE_CHECKING:
    from tape_arith.arith.sweeps.run_jobs import Outcome
    from tape_arith.arith.sweeps.run_sweep import PlannedSweep


@checked
def generate(
    preset: str = "paper-40",
    *,
    task: str | None = None,
    seed: Seed = 0,
    count: Problems | None = None,
    form: str = "tokens",
    out: str | Path | None = None,
    workers: Workers = 0,
    fresh: bool = False,
    stopper: Stopper | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """Write the training problems of a preset, the same for any workers; return their path.

    count    number of problems; None for the preset's
    form     "tokens" (a folder), "text" or "parquet" (a file)
    out      None for a folder or file in data, where `train` finds a folder
    workers  number of threads; 0 for one per core
    """
    from tape_arith.arith.data.write_dataset import ENDINGS, generate_dataset

    if form not in ENDINGS:
        raise unknown("format", form, ENDINGS)
    _, config = recipe(preset, task, {**(settings or {}), **more})
    bucket, number = config.bucket(seed), config.num_problems if count is None else count
    folder = config.dataset_folder(DATASETS, seed)
    path = folder.with_name(folder.name + ENDINGS[form]) if out is None else Path(out)
    with stopping(stopper) as stop:
        generate_dataset(path, bucket, number, form, workers=workers, fresh=fresh, should_stop=stop)
    return path


@checked
def verify(dataset: str | Path) -> str:
    """Check every hash of a dataset; return a summary. Raises Failure if a hash is wrong."""
    from tape_arith.arith.data import dataset as datasets

    manifest = datasets.verify(Path(dataset))
    return f"{dataset}: {manifest.count:,} problems, every hash is right ({manifest.sha256[:12]})"


@checked
def train(
    pe: str,
    *,
    preset: str | None = None,
    task: str | None = None,
    seed: Seed | None = None,
    runs: str | Path = "runs",
    init_from: str | Path | None = None,
    only_positional: bool = False,
    options: TrainOptions = DEFAULTS,
    fresh: bool = False,
    stopper: Stopper | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Run:
    """Train one encoding, or continue its run; return the run.

    pe               the encoding, as in "tape" or "fire:init_l=512" or "mine.py:Mine"
    preset           a preset of `tape-arith list`; None chooses one that suits this machine
    task             a task of `tape-arith list`; None for the preset's
    runs             the folder of runs
    init_from        a finished run from whose weights this one starts, by default with its preset,
                     settings and seed
    only_positional  with `init_from`: whether to train the encoding's own parameters alone
    options          options that change numbers by rounding at most
    fresh            whether to delete an earlier run first
    settings, more   values that replace the preset's, as in steps=60
    """
    from tape_arith.arith.training.session import train_run

    names = parse_list(pe)
    if not names:
        raise UsageError("--pe is empty: name an encoding, as in --pe tape")
    if len(names) > 1:
        raise UsageError(f"train takes one encoding: `tape-arith run --pe {pe}` takes several")
    with training(options, stopper) as (stop, processes):
        source = None if init_from is None else find.existing_run(Path(init_from))
        like = None if source is None else source.record()
        chosen, config = recipe(preset, task, {**(settings or {}), **more}, like)
        if seed is None:
            seed = 0 if like is None else like.seed
        run = train_run(
            Request(names[0], seed, chosen, config, Path(runs)),
            options,
            source=source,
            only_positional=only_positional,
            fresh=fresh,
            processes=processes,
            should_stop=stop,
        )
    return Run(run.path)


@checked
def run(
    pe: str,
    *,
    seeds: Sequence[Seed] = (0,),
    preset: str | None = None,
    task: str | None = None,
    runs: str | Path = "runs",
    datasets: str | Path = DATASETS,
    slots: AtLeastOne | None = None,
    engine: str = "local",
    options: TrainOptions = DEFAULTS,
    archive: str | Path | None = None,
    stopper: Stopper | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> "Outcome":
    """Generate, train and score encodings and draw their heatmap; skip what is done.

    slots    number of jobs at once; None chooses it
    engine   where jobs run: "local", "ray" or "slurm:partition=gpu"
    archive  where scored runs are packed after each grid; None: nowhere
    """
    from tape_arith.arith.sweeps.run_sweep import run_requests

    requests = requested(pe, seeds, preset, task, runs, {**(settings or {}), **more})
    with stopping(stopper) as stop:
        out = None if archive is None else Path(archive)
        return run_requests(requests, options, Path(datasets), slots, engine, stop, out)


def requested(
    pe: str,
    seeds: Sequence[int],
    preset: str | None,
    task: str | None,
    runs: str | Path,
    settings: Mapping[str, Any],
) -> list[Request]:
    """Return the runs that `run` makes, seed by seed. Raises UsageError."""
    names = parse_list(pe)
    if not names:
        raise UsageError("--pe is empty: name encodings, as in --pe rope,fire")
    if not seeds:
        raise UsageError("there is no seed: give one or more, as in seeds=[0, 1]")
    configure()
    chosen, config = recipe(preset, task, settings)
    return [Request(name, seed, chosen, config, Path(runs)) for seed in seeds for name in names]


@checked
def plan_sweep(
    sweep: str,
    *,
    runs: str | Path = "runs",
    slots: AtLeastOne | None = None,
    engine: str = "local",
    options: TrainOptions = DEFAULTS,
) -> "PlannedSweep":
    """Plan a bundled sweep or that of a file; `costs()` estimates it, `run()` runs it.

    `costs(on="h200")` estimates it on that GPU, one per slot.
    """
    from tape_arith.arith.sweeps import run_sweep
    from tape_arith.arith.sweeps.sweep import load_sweep

    configure()
    return run_sweep.plan_sweep(load_sweep(sweep), options, Path(runs), slots, engine)


def recipe(
    preset: str | None,
    task: str | None,
    settings: Mapping[str, Any],
    like: RunRecord | None = None,
) -> tuple[str, Config]:
    """Return the preset's name, and its config with `settings`.

    With a task other than the preset's, the name is PRESET@TASK. Without `preset`, name and config
    are those of the run `like`; without both, the preset is the one that suits this machine.
    """
    chosen = {key: str(value) for key, value in settings.items()}
    if task is not None and chosen.setdefault("task", task) != task:
        raise UsageError(f"--task is {task} and --set task={chosen['task']}: leave one out")
    if preset is not None and task is not None:
        with_task(preset, str(parse_task(task)))
    if preset is None and like is not None:
        config = like.config.with_settings(chosen)
        return preset_of(like.preset, config.task), config
    if preset is None:
        from tape_arith.arith.decoders.cost import default_preset

        preset, reason = default_preset()
        say(reason)
    config = load_preset(preset).with_settings(chosen)
    return preset_of(preset, config.task), config
