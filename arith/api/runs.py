"""Generate problems; train and score runs, one or many."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from tape_arith.arith.data.bucket import EVALUATION, known_split
from tape_arith.arith.errors import EXIT_DONE, EXIT_FAILED, UsageError, unknown
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import (
    Name,
    NamePart,
    parse,
    parse_extrapolation,
    parse_list,
    parse_task,
)
from tape_arith.arith.runs import find
from tape_arith.arith.runs import run as runs_on_disk
from tape_arith.arith.runs.command_lines import train_command
from tape_arith.arith.runs.config import DATASETS, Config
from tape_arith.arith.runs.options import AUTO, DEFAULTS, Compute, TrainOptions
from tape_arith.arith.runs.preset import load_preset, preset_of, with_task
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.request import Request
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.terminal import bar, say

if TYPE_CHECKING:
    import pandas as pd

    from tape_arith.arith.scoring.answer import Answer
    from tape_arith.arith.sweeps.run_jobs import Outcome
    from tape_arith.arith.sweeps.run_sweep import PlannedSweep
    from tape_arith.arith.training.distributed import ProcessGroup
    from tape_arith.models.decoder import Decoder


@dataclass(frozen=True)
class Run(runs_on_disk.Run):
    """A run at a path. `record()` is its recipe, `state()` tells how far it is.

    Raises UsageError if the path has no run.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", find.existing_run(Path(self.path)).path)

    def to_frame(self) -> "pd.DataFrame":
        """Return the metrics of training, one row every few steps, without nested values."""
        import pandas as pd

        frame = pd.DataFrame(self.metrics())
        return frame.drop(columns=["small_grid", "state"], errors="ignore")

    def train(
        self,
        steps: int | None = None,
        *,
        options: TrainOptions = DEFAULTS,
        stopper: Stopper | None = None,
    ) -> "Run":
        """Train to the end of the run's budget; `steps` raises the budget first."""
        from tape_arith.arith.training.begin import extend_run
        from tape_arith.arith.training.session import continue_run

        _configure()
        with _stopping(stopper) as stop, _first_process(options, stop) as processes:
            if steps is not None:
                extend_run(self, steps, data=options.data)
            continue_run(self, options, processes=processes, should_stop=stop)
        return self

    def score(
        self,
        extrapolation: str | None = None,
        *,
        split: str = EVALUATION,
        max_digits: int | None = None,
        compute: Compute = AUTO,
        fresh: bool = False,
        stopper: Stopper | None = None,
    ) -> Grid:
        """Return the run's grid of exact match; a complete grid is read, not scored again.

        extrapolation  a change of the encoding at test time, as in "yarn"
        split          "evaluation", or "carry" for problems with long carry chains
        max_digits     digits of the longest operands; None for the run's `tested_digits`
        """
        from tape_arith.arith.scoring.session import score_run

        _configure()
        with _stopping(stopper) as stop:
            return score_run(
                self,
                _parsed(extrapolation),
                evaluation_set=EvaluationSet(known_split(split), max_digits),
                compute=compute,
                fresh=fresh,
                should_stop=stop,
            )

    def answer(self, problem: str, extrapolation: str | None = None) -> "Answer":
        """Return the run's greedy answer to a problem that is written as in "123+45"."""
        from tape_arith.arith.scoring.answer import answer

        _configure()
        return answer(self, problem, _parsed(extrapolation))

    def decoder(self, extrapolation: str | None = None) -> "Decoder":
        """Return the trained decoder, a torch.nn.Module that is ready to evaluate."""
        from tape_arith.arith.decoders.weights import trained_decoder, trained_record

        _configure()
        record = trained_record(self)
        name = Name(record.name.encoding, _parsed(extrapolation))
        return trained_decoder(self, name, record)

    def export(
        self, out: str | Path | None = None, extrapolation: str | None = None, fresh: bool = False
    ) -> Path:
        """Write the run as a model for transformers; return the folder, by default in exports."""
        from tape_arith.arith.export.export_run import export_run

        _configure()
        folder = None if out is None else Path(out)
        return export_run(self, extrapolation=_parsed(extrapolation), out=folder, fresh=fresh)


def find_runs(runs: str | Path = "runs") -> list[Run]:
    """Return the runs below a folder, sorted by path."""
    return [Run(run.path) for run in find.find_runs(Path(runs))]


def find_run(
    target: str | Path,
    *,
    runs: str | Path = "runs",
    preset: str | None = None,
    seed: int | None = None,
) -> tuple[Run, str | None]:
    """Return the run in the folder `target`, or that of the encoding `target`; its extrapolation.

    Raises UsageError unless exactly one run below `runs` matches.
    """
    if Path(target).is_dir() or ("/" in str(target) and ".py:" not in str(target)):
        if preset is not None or seed is not None:
            raise UsageError(
                f"{target} is a folder: --preset and --seed go with an encoding's name"
            )
        return Run(Path(target)), None
    root, name = Path(runs), parse(str(target))
    found = find.find_runs(root, preset, name.encoding, seed or 0)
    if not found:
        raise UsageError(
            f"no run of {name.encoding}, seed {seed or 0}, in {root}: "
            f"`{train_command(name, preset, root, seed or 0)}` trains one"
        )
    if len(found) > 1:
        paths = ", ".join(str(run.path) for run in found)
        raise UsageError(f"{name} is in {paths}: choose one with --preset")
    return Run(found[0].path), str(name.extrapolation) if name.extrapolation else None


def generate(
    preset: str = "paper-40",
    *,
    task: str | None = None,
    seed: int = 0,
    count: int | None = None,
    form: str = "tokens",
    out: str | Path | None = None,
    workers: int = 0,
    fresh: bool = False,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """Write the training problems of a preset, the same for any workers; return their path.

    count    number of problems; None for the preset's
    form     "tokens" (a folder), "text" or "parquet" (a file)
    out      None for a folder or file in data, where `train` finds a folder
    workers  number of threads; 0 for one per core
    """
    from tape_arith.arith.data.write_dataset import ENDINGS, generate_dataset, write_problems

    if form not in ENDINGS:
        raise unknown("format", form, ENDINGS)
    _, config = recipe(preset, task, {**(settings or {}), **more})
    bucket, number = config.bucket(seed), count or config.num_problems
    folder = config.dataset_folder(DATASETS, seed)
    path = folder.with_name(folder.name + ENDINGS[form]) if out is None else Path(out)
    if form == "tokens":
        generate_dataset(path, bucket, number, workers=workers, fresh=fresh)
        return path
    with bar(f"generate {path.name}", number) as update:
        return write_problems(
            path, bucket, number, form, workers=workers, progress=update, fresh=fresh
        )


def verify(dataset: str | Path) -> str:
    """Check every hash of a dataset; return a summary. Raises Failure if a hash is wrong."""
    from tape_arith.arith.data import dataset as datasets

    manifest = datasets.verify(Path(dataset))
    return f"{dataset}: {manifest.count:,} problems, every hash is right ({manifest.sha256[:12]})"


def train(
    pe: str,
    *,
    preset: str | None = None,
    task: str | None = None,
    seed: int | None = None,
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

    _configure()
    source = None if init_from is None else find.existing_run(Path(init_from))
    like = None if source is None else source.record()
    chosen, config = recipe(preset, task, {**(settings or {}), **more}, like)
    if seed is None:
        seed = 0 if like is None else like.seed
    request = Request(parse(pe), seed, chosen, config, Path(runs))
    with _stopping(stopper) as stop, _first_process(options, stop) as processes:
        run = train_run(
            request,
            options,
            source=source,
            only_positional=only_positional,
            fresh=fresh,
            processes=processes,
            should_stop=stop,
        )
    return Run(run.path)


def run(
    pe: str,
    *,
    seeds: Sequence[int] = (0,),
    preset: str | None = None,
    task: str | None = None,
    runs: str | Path = "runs",
    datasets: str | Path = DATASETS,
    slots: int | None = None,
    engine: str = "local",
    options: TrainOptions = DEFAULTS,
    stopper: Stopper | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> "Outcome":
    """Generate, train and score encodings and draw their heatmap; skip what is done.

    slots   number of jobs at once; None chooses it
    engine  where jobs run: "local", "ray" or "slurm:partition=gpu"
    """
    from tape_arith.arith.sweeps.run_sweep import run_requests

    names = parse_list(pe)
    if not names:
        raise UsageError("--pe is empty: name encodings, as in --pe rope,fire")
    _configure()
    chosen, config = recipe(preset, task, {**(settings or {}), **more})
    requests = [Request(name, seed, chosen, config, Path(runs)) for seed in seeds for name in names]
    with _stopping(stopper) as stop:
        return run_requests(requests, options, Path(datasets), slots, engine, stop)


def plan_sweep(
    sweep: str,
    *,
    runs: str | Path = "runs",
    slots: int | None = None,
    engine: str = "local",
    options: TrainOptions = DEFAULTS,
) -> "PlannedSweep":
    """Plan a bundled sweep or that of a file; `costs()` estimates it, `run(stopper)` runs it."""
    from tape_arith.arith.sweeps import run_sweep
    from tape_arith.arith.sweeps.sweep import load_sweep

    _configure()
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


def _configure() -> None:
    """Set this process up to compute, unless a command did so with its own number of threads."""
    from tape_arith.models.hardware import configure_process

    configure_process()


def _parsed(extrapolation: str | None) -> NamePart | None:
    return None if extrapolation is None else parse_extrapolation(extrapolation)


@contextmanager
def _first_process(options: TrainOptions, stop: Stopper) -> Iterator["ProcessGroup"]:
    """Yield the processes of `torchrun` to the first one, which trains, prints and returns.

    The others train along and exit.
    """
    from tape_arith.arith.training.distributed import process_group
    from tape_arith.arith.training.session import train_as_worker

    with process_group() as processes:
        if processes.first:
            yield processes
        else:
            done = train_as_worker(processes, options, should_stop=stop)
            sys.exit(EXIT_DONE if done else EXIT_FAILED)


@contextmanager
def _stopping(given: Stopper | None) -> Iterator[Stopper]:
    """Let Ctrl-C or a notebook's stop button save and end the work after the current step.

    A command's stopper handles signals already.
    """
    stopper = given or Stopper()
    if (
        given is not None or current_thread() is not main_thread()
    ):  # only the main thread gets signals
        yield stopper
        return
    with stopper.handling_signals():
        yield stopper
    if stopper.signal is not None:
        raise KeyboardInterrupt("saved: the same call continues from here")
