"""Begin a run, or raise its budget: write what must be on disk before the first step."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from tape_arith.arith.data.dataset import Dataset
from tape_arith.arith.decoders.build import check_trainable
from tape_arith.arith.decoders.cost import about
from tape_arith.arith.decoders.weights import load_state, save
from tape_arith.arith.documents import validated
from tape_arith.arith.errors import Corrupt, Failure, UsageError
from tape_arith.arith.lock import check_lock, lock_folder
from tape_arith.arith.machine import own_version
from tape_arith.arith.runs.command_lines import resume_command, why_no_weights
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.record import RunRecord, check_can_continue, run_sources
from tape_arith.arith.runs.request import Request
from tape_arith.arith.runs.run import Run
from tape_arith.arith.training.data import training_data
from tape_arith.arith.training.init_from import init_from_record, with_origin, write_first_state


@contextmanager
def begin_run(
    request: Request,
    options: TrainOptions,
    source: Run | None,
    only_positional: bool,
    fresh: bool,
) -> Iterator[tuple[Run, TrainOptions]]:
    """Lock the requested run, and write its record and first weights if there are none.

    Yields the run, and `options` with the dataset of its training. `train_run` explains the
    arguments. Raises UsageError if `options.data` holds the problems of another run, if the run
    cannot begin from `source`, or as `check_trainable`, before anything is written; also if the
    folder holds another run.
    """
    if source is not None:
        request = replace(request, name=with_origin(request.name, source, only_positional))
    run, config, name, seed = request.run, request.config, request.name, request.seed
    check_trainable(config, name, options.compute)
    new, dataset = fresh or not run.exists(), None
    if options.data is not None:
        config = replace(config, num_problems=Dataset(options.data).manifest.count)
    if options.data is not None or new:
        dataset = training_data(options.data, config, seed)
    if dataset is not None:
        options = replace(options, data=dataset.directory)
    init_from = None
    if source is not None:
        init_from = init_from_record(source, config, name, seed)
    elif name.encoding.origin is not None and new:
        command = f"train --pe {name.encoding.own} --init-from RUN"
        raise UsageError(f"{name.encoding} begins from a finished run: tape-arith {command}")
    record = RunRecord(
        encoding=str(name.encoding),
        seed=seed,
        preset=request.preset,
        config=config,
        task_version=config.bucket(seed).version,
        first_steps=config.steps,
        data=None if dataset is None else dataset.manifest.sha256,
        version=own_version(),
        sources=run_sources(name, config),
        init_from=init_from,
        on_nonfinite=options.on_nonfinite or "stop",
    )
    validated(asdict(record), RunRecord)  # before --fresh deletes anything
    with lock_folder(run.path):
        if fresh or not run.exists():  # asked again, because only now the folder is locked
            run.delete()  # a killed --fresh left files without a record
            if source is not None:
                write_first_state(run, record, source)
            run.write_record(replace(record, about=about(name, config)))
        other = ""
        if source is not None and run.record().init_from != init_from:
            other = f"it began from other weights than those of {source.path}"
        _check_same_run(run, record.encoding, seed, config, other)
        yield run, options


def check_free(request: Request) -> None:
    """Check that the folder of a requested run is free or holds this run, if it can be read.

    Raises UsageError or Failure, as training it would.
    """
    run = request.run
    with suppress(Corrupt):  # the training says what is wrong
        if run.exists():
            _check_same_run(run, str(request.name.encoding), request.seed, request.config)
            check_can_continue(run.path, run.record())


def _check_same_run(
    run: Run, encoding: str, seed: int, config: Config, other_weights: str = ""
) -> None:
    """Raise UsageError if the folder holds a run other than the one requested.

    other_weights  says that the recorded run began from other weights, if so
    """
    recorded, steps = run.record(), config.steps
    differences = recorded.config.differences(config)
    remedy = "train into another folder with --runs, or start this one over with --fresh"
    if (recorded.encoding, recorded.seed) != (encoding, seed):
        differences = differences or f"{recorded.encoding}, seed {recorded.seed}"
    elif steps > recorded.config.steps and not config.differences(
        replace(recorded.config, steps=steps)
    ):
        remedy = f"`{resume_command(run, '--steps', str(steps))}` extends it, or {remedy}"
    if differences := differences or other_weights:
        raise UsageError(f"{run.path} holds another run ({differences}): {remedy}")


def extend_run(run: Run, steps: int, *, data: Path | None = None) -> None:
    """Raise the budget of a run to `steps`; its training resumes from before the cool-down.

    Raises UsageError if the run is not finished or already has more steps; otherwise as
    `continue_run`.
    """
    with lock_folder(run.path):
        record = run.record()
        check_can_continue(run.path, record)
        if steps == record.config.steps:
            return
        if run.state().weights != "final":
            # If an earlier extension was killed, the final weights are still those of all steps.
            final = run.final.exists() and load_state(run.final, record, "cpu")[1]
            if not final or final.get("step") != record.config.steps:
                raise UsageError(why_no_weights(run))
        if steps < record.config.steps:
            raise UsageError(f"{run.path} was trained for {record.config.steps} steps already")
        extended = replace(record, config=record.config.with_settings({"steps": steps}))
        saved_step = record.schedule.cooldown_start
        if extended.schedule.cooldown_start < saved_step:
            raise UsageError(
                f"{steps} steps would cool down before step {saved_step}, from where training "
                "continues: give more steps"
            )
        if data is not None:
            training_data(data, record.config, record.seed, record.data)
        try:
            tensors, facts = load_state(run.before_cooldown, record, "cpu")
        except Failure as error:
            raise Failure(
                f"{error}; without it the run cannot be extended: train again for {steps} steps, "
                "into another folder with --runs"
            ) from error
        # The checkpoint is written first, so that a kill from now on leaves an unfinished run.
        check_lock(run.path)
        save(run.latest, tensors, facts)
        run.set_grids_aside(record.config.steps)
        run.write_record(extended)
