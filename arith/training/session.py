"""Train a run or extend its budget; a repeated call continues where the last one stopped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tape_arith.arith.data.dataset import Dataset
from tape_arith.arith.decoders.build import (
    check_trainable,
    decoder_for,
    user_errors,
)
from tape_arith.arith.decoders.environment import environment, record_environment
from tape_arith.arith.decoders.failures import NotCompilable, is_out_of_memory
from tape_arith.arith.decoders.weights import load_state, save, trained_record
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.lock import check_lock, lock_folder
from tape_arith.arith.machine import own_version
from tape_arith.arith.runs.command_lines import resume_command, why_no_weights
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.metrics import tracked
from tape_arith.arith.runs.options import DEFAULTS, TrainOptions
from tape_arith.arith.runs.record import RunRecord, check_can_continue, run_sources
from tape_arith.arith.runs.run import Run
from tape_arith.arith.terminal import bar, say
from tape_arith.arith.training.batches import Source
from tape_arith.arith.training.checkpoints import TrainingCheckpoints
from tape_arith.arith.training.compiling import choose_compiling
from tape_arith.arith.training.data import open_training_data, usual_dataset
from tape_arith.arith.training.distributed import SINGLE, PeerLost, ProcessGroup
from tape_arith.arith.training.init_from import init_from_record, with_origin, write_first_state
from tape_arith.arith.training.trainer import Line, NotFinite, Trainer
from tape_arith.models.hardware import detect
from tape_arith.models.runner import Runner


def train_run(
    run: Run,
    options: TrainOptions = DEFAULTS,
    *,
    source: RunFolder | None = None,
    only_positional: bool = False,
    fresh: bool = False,
    processes: ProcessGroup = SINGLE,
    should_stop: Callable[[], bool],
) -> RunFolder:
    """Train `run`, or continue its training.

    source           a finished run whose weights this one begins from; not needed afterwards
    only_positional  with `source`: whether to train the encoding's own parameters alone
    fresh            whether to delete an earlier run in this folder first

    Raises UsageError if the folder holds another run, `options.data` holds problems of another
    run, or the run cannot begin from `source`; otherwise as `continue_run`.
    """
    source_record = None if source is None else trained_record(source)
    if source_record is not None:
        run = replace(run, name=with_origin(run.name, source_record, only_positional))
    folder, config, name, seed = run.folder, run.config, run.name, run.seed
    check_trainable(config, name, options.compute)
    anew, dataset = fresh or not folder.exists(), None
    if options.data is not None:
        config = replace(config, num_problems=Dataset(options.data).manifest.count)
    elif anew:
        options = replace(options, data=usual_dataset(config, seed))
    if options.data is not None:
        dataset = open_training_data(options.data, config, seed).manifest.sha256
    init_from = None
    if source is not None and source_record is not None:
        init_from = init_from_record(source, source_record, config, name, seed)
    elif name.encoding.origin is not None and anew:
        command = f"train --pe {name.encoding.own} --init-from RUN"
        raise UsageError(f"{name.encoding} begins from a finished run: tape-arith {command}")
    record = RunRecord(
        encoding=str(name.encoding),
        seed=seed,
        preset=run.preset,
        config=config,
        task_version=config.bucket(seed).version,
        first_steps=config.steps,
        data=dataset,
        version=own_version(),
        sources=run_sources(name, config),
        init_from=init_from,
        on_nonfinite=options.on_nonfinite or "stop",
    )
    with lock_folder(folder.path):
        if fresh or not folder.exists():
            folder.delete()  # a killed --fresh leaves files without a record
            if source is not None:
                write_first_state(folder, record, source)
            folder.write_record(record)
        _check_same_run(folder, record, source)
        return continue_run(folder, options, processes=processes, should_stop=should_stop)


def _check_same_run(folder: RunFolder, requested: RunRecord, source: RunFolder | None) -> None:
    """Raise UsageError if `folder` holds another run than the one requested."""
    recorded, steps = folder.record(), requested.config.steps
    differences = recorded.config.differences(requested.config)
    remedy = "train into another folder with --runs, or start this one over with --fresh"
    if (recorded.encoding, recorded.seed) != (requested.encoding, requested.seed):
        differences = differences or f"{recorded.encoding}, seed {recorded.seed}"
    elif requested.config == replace(recorded.config, steps=steps) and (
        steps > recorded.config.steps
    ):
        remedy = f"`{resume_command(folder, '--steps', str(steps))}` extends it, or {remedy}"
    elif source is not None and recorded.init_from != requested.init_from:
        differences = differences or f"it began from other weights than those of {source.path}"
    if differences:
        raise UsageError(f"{folder.path} holds another run ({differences}): {remedy}")


def extend_run(folder: RunFolder, steps: int, *, data: Path | None = None) -> None:
    """Raise the budget of a run to `steps`; its training resumes from before the cool-down.

    Raises UsageError if the run is not finished or already has more steps; otherwise as
    `continue_run`.
    """
    with lock_folder(folder.path):
        record = folder.record()
        check_can_continue(folder.path, record)
        if steps == record.config.steps:
            return
        if not folder.finished():
            # If an earlier extension was killed, the final weights are still those of all steps.
            final = folder.final.exists() and load_state(folder.final, record, "cpu")[1]
            if not final or final.get("step") != record.config.steps:
                raise UsageError(why_no_weights(folder))
        if steps < record.config.steps:
            raise UsageError(f"{folder.path} was trained for {record.config.steps} steps already")
        extended = replace(record, config=record.config.with_settings({"steps": steps}))
        saved_step = record.schedule.cooldown_start
        if extended.schedule.cooldown_start < saved_step:
            raise UsageError(
                f"{steps} steps would cool down before step {saved_step}, from where training "
                "goes on: give more steps"
            )
        if data is not None:
            open_training_data(data, record.config, record.seed, record.data)
        try:
            tensors, facts = load_state(folder.before_cooldown, record, "cpu")
        except Failure as error:
            raise Failure(
                f"{error}; without it the run cannot be extended: train anew for {steps} steps, "
                "into another folder with --runs"
            ) from error
        # The checkpoint is written first, so that a kill from now on leaves an unfinished run.
        save(folder.latest, tensors, facts)
        folder.set_grids_aside(record.config.steps)
        folder.write_record(extended)


def continue_run(
    folder: RunFolder,
    options: TrainOptions = DEFAULTS,
    *,
    processes: ProcessGroup = SINGLE,
    should_stop: Callable[[], bool],
) -> RunFolder:
    """Train the run in `folder` from its last checkpoint to the end of its budget.

    If `should_stop` returns True, training stops after the current step and saves;
    `RunFolder.finished` tells the difference. Of several `processes`, the first calls this function
    and the others `train_as_worker`. After a kill, trackers may get a line twice. Raises UsageError
    if the run began on another version of the task or on other data, Failure if loss or gradient is
    not finite.
    """
    note = ""

    def log(line: Line) -> None:
        nonlocal note
        check_lock(folder.path)
        folder.add_metrics(line)
        track(line)
        exact = "" if line["exact_match"] is None else f"exact {line['exact_match']:.1%}, "
        note = f"loss {line['loss']:.4f}, {exact}{line['tokens_per_second']:,.0f} tokens/s"

    with lock_folder(folder.path):
        record = folder.record()
        check_can_continue(folder.path, record)
        if folder.finished():
            processes.broadcast_text("")
            return folder
        if options.on_nonfinite not in (None, record.on_nonfinite):
            record = replace(record, on_nonfinite=options.on_nonfinite)
            folder.write_record(record)
        if folder.has_results_without_weights():
            raise UsageError(why_no_weights(folder))
        if record.init_from is not None and not folder.checkpoints():
            raise Failure(
                f"{folder.latest} is missing: it holds the weights that the run begins from; put "
                f"it back, or begin anew with --init-from RUN --fresh, RUN one of "
                f"{record.init_from.encoding}"
            )
        if options.data is None:
            data = usual_dataset(record.config, record.seed, record.data)
            options = replace(options, data=data)
        requested = options.compute
        if processes.size == 1:
            compute = choose_compiling(folder, record, requested)
            options = replace(options, compute=compute)
        trainer = build_trainer(record, options, processes)
        hardware = trainer.hardware
        record_environment(folder, environment(hardware) | {"processes": processes.size})
        checkpoints = TrainingCheckpoints(folder, record, trainer)
        checkpoints.resume()
        processes.broadcast_text(str(folder.path.absolute()))
        trainer.sync_from_first()
        folder.truncate_metrics(trainer.step)
        folder.remove_partial()
        say(
            f"training {record.encoding}, seed {record.seed}, preset {record.preset}: "
            f"{trainer.decoder.num_parameters():,} parameters, {hardware.dtype_name} on "
            f"{hardware.device}, {hardware.attention} attention, "
            + (
                "compiled (the first step takes a minute or more)"
                if hardware.compiled
                else "not compiled"
            )
            + (f", {processes.size} processes" if processes.size > 1 else "")
            + (f", from step {trainer.step}" if trainer.step else "")
            + (f", on the problems of {options.data}" if options.data else "")
        )
        title = f"train {record.encoding} seed {record.seed}"
        try:
            with (
                tracked(options.trackers, folder.tracking, record, trainer.step) as track,
                bar(title, record.config.steps, trainer.step) as update,
                user_errors(record.name.encoding),
                _explained(checkpoints),
            ):
                finished = trainer.run(
                    should_stop,
                    log=log,
                    tick=lambda step: update(step, note),
                    save=checkpoints.save,
                    keep=checkpoints.keep,
                )
        except NotCompilable as error:
            chosen = requested.compiled is None and hardware.device == "cpu"
            if not chosen or trainer.step:  # later it would change bits
                raise
            say(f"note: {error}, which is taken now")
            options = replace(options, compute=requested._replace(compiled=False))
            return continue_run(folder, options, processes=processes, should_stop=should_stop)
        if finished:
            # Written before the final weights, so that no kill leaves a finished run without it.
            folder.write_timing("train", trainer.seconds)
            if trainer.skipped != record.skipped_steps:
                folder.write_record(replace(record, skipped_steps=trainer.skipped))
            checkpoints.finish()
    return folder


def build_trainer(
    record: RunRecord, options: TrainOptions, processes: ProcessGroup = SINGLE
) -> Trainer:
    """Build the trainer of a run, at step 0.

    Raises UsageError if the run did not begin on `options.data`, or if `options.compute` does not
    support its encoding.
    """
    config, seed, origin = record.config, record.seed, record.init_from
    runner = Runner(decoder_for(config, record.name, seed), detect(*options.compute))
    bucket = config.bucket(seed)
    source: Source = bucket
    if options.data is not None:
        source = open_training_data(options.data, config, seed, record.data)
    return Trainer(
        runner,
        bucket,
        config,
        source=source,
        schedule=record.schedule,
        curves=options.curves,
        on_nonfinite=record.on_nonfinite,
        skip=0 if origin is None else origin.problems,
        tell=say if processes.first else lambda line: None,
        processes=processes,
    )


@contextmanager
def _explained(checkpoints: TrainingCheckpoints) -> Iterator[None]:
    """Turn values that are not finite, and too little memory, into a Failure with advice."""
    try:
        yield
    except NotFinite as error:
        resumable = _last_good(checkpoints)
        remedy = "train anew with a lower learning_rate"
        if error.may_skip and checkpoints.record.on_nonfinite == "stop":
            command = resume_command(checkpoints.folder, "--on-nonfinite", "skip")
            remedy += f", or leave such steps out: {command}"
        raise Failure(f"{error}; {resumable}: {remedy}") from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason, step = " ".join(str(error).split())[:200], checkpoints.trainer.step + 1
        raise Failure(
            f"out of memory at step {step} ({reason}); {_last_good(checkpoints)}: free some memory "
            "and repeat the command, or train a smaller decoder (num_layers, hidden_size)"
        ) from error


def _last_good(checkpoints: TrainingCheckpoints) -> str:
    if checkpoints.last_good is None:
        return "there is no checkpoint yet"
    return "the last good checkpoint is {}, step {}".format(*checkpoints.last_good)


def train_as_worker(
    processes: ProcessGroup, options: TrainOptions, *, should_stop: Callable[[], bool]
) -> bool:
    """Take part in the training that the first process leads; return False if it broke off.

    Only the first process writes to the run's folder and prints messages; all read the folder.
    Raises Failure if the code of a user's encoding fails in this process.
    """
    try:
        path = processes.broadcast_text()
        if not path:  # there is nothing to train
            return True
        record = RunFolder(Path(path)).record()
        with user_errors(record.name.encoding):
            trainer = build_trainer(record, options, processes)
            trainer.sync_from_first()
            trainer.run(should_stop)
    except (PeerLost, NotFinite):  # the first process reports it
        return False
    return True
