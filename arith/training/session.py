"""One training, from a recipe to final weights; a repeated call continues where it stopped.

The recipe is the run's record. From it follow the problems (batches.py, data.py), the decoder and
the runner that computes with it, the steps (step.py, trainer.py), their checkpoints
(checkpoints.py) and the final weights. begin.py writes what is on disk before the first step.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tape_arith.arith.decoders.build import decoder_for, user_errors
from tape_arith.arith.decoders.environment import machine, record_machine
from tape_arith.arith.decoders.failures import NotCompilable
from tape_arith.arith.errors import Failure, UsageError, is_out_of_memory
from tape_arith.arith.lock import check_lock, lock_folder
from tape_arith.arith.registry.names import source_hashes
from tape_arith.arith.runs.command_lines import resume_command, why_no_weights
from tape_arith.arith.runs.metrics import tracked
from tape_arith.arith.runs.options import DEFAULTS, Compute, TrainOptions
from tape_arith.arith.runs.preset import asks_to_compile
from tape_arith.arith.runs.record import RunRecord, check_can_continue
from tape_arith.arith.runs.request import Request
from tape_arith.arith.runs.run import Run
from tape_arith.arith.terminal import bar, say
from tape_arith.arith.training.batches import Source
from tape_arith.arith.training.begin import begin_run
from tape_arith.arith.training.checkpoints import Checkpoints
from tape_arith.arith.training.data import training_data
from tape_arith.arith.training.distributed import SINGLE, PeerLost, ProcessGroup
from tape_arith.arith.training.trainer import Line, NotFinite, Trainer
from tape_arith.models.compiling import why_not_compilable
from tape_arith.models.hardware import detect
from tape_arith.models.runner import Runner


def train_run(
    request: Request,
    options: TrainOptions = DEFAULTS,
    *,
    source: Run | None = None,
    only_positional: bool = False,
    fresh: bool = False,
    processes: ProcessGroup = SINGLE,
    should_stop: Callable[[], bool],
) -> Run:
    """Train the requested run, or continue its training.

    source           a finished run whose weights this one begins from; it may be deleted afterwards
    only_positional  with `source`: whether to train the encoding's own parameters alone
    fresh            whether to delete an earlier run in this folder first

    Raises as `begin_run` and `Session.train`.
    """
    with begin_run(request, options, source, only_positional, fresh) as (run, options):
        return continue_run(run, options, processes=processes, should_stop=should_stop)


def continue_run(
    run: Run,
    options: TrainOptions = DEFAULTS,
    *,
    processes: ProcessGroup = SINGLE,
    should_stop: Callable[[], bool],
) -> Run:
    """Train a run from its last checkpoint on. Raises as `Session`."""
    with lock_folder(run.path):
        Session(run, options, processes).train(should_stop)
    return run


def train_as_worker(
    processes: ProcessGroup, options: TrainOptions, *, should_stop: Callable[[], bool]
) -> bool:
    """Take part in the training that the first process leads; return False if it failed.

    Only the first process writes to the run's folder and prints messages; all read the folder.
    Raises Failure if the code of a user's encoding fails in this process.
    """
    try:
        path = processes.broadcast_text()
        if not path:  # there is nothing to train
            return True
        record = Run(Path(path)).record()
        with user_errors(record.name.encoding):
            source = None
            if options.data is not None:
                source = training_data(options.data, record.config, record.seed, record.data)
            trainer = build_trainer(record, options, source, processes)
            trainer.sync_from_first()
            while not trainer.done:
                trainer.advance()
                if trainer.stops(should_stop):
                    trainer.check_steps()
                    processes.any(False)  # waits until the first has saved
                    return True
            trainer.check_weights()
    except (PeerLost, NotFinite):  # the first process reports it
        return False
    return True


def build_trainer(
    record: RunRecord, options: TrainOptions, source: Source | None, processes: ProcessGroup
) -> Trainer:
    """Build the trainer of a run at step 0; without `source`, it makes the problems as needed.

    Raises UsageError if the backend of `options.compute` does not support the encoding.
    """
    config, seed, origin = record.config, record.seed, record.init_from
    decoder = decoder_for(config, record.name, seed)
    return Trainer(
        Runner(decoder, detect(*options.compute)),
        config.bucket(seed),
        config,
        source=source,
        schedule=record.schedule,
        curves=options.curves,
        on_nonfinite=record.on_nonfinite,
        skip=0 if origin is None else origin.problems,
        tell=say if processes.first else lambda line: None,
        processes=processes,
    )


class Session:
    """The training of a run, whose folder is locked, by this process, the first of `processes`.

    Raises UsageError if the run began on another version of the task.
    """

    def __init__(self, run: Run, options: TrainOptions, processes: ProcessGroup) -> None:
        self.run = run
        self.options = options
        self.processes = processes
        self.record = run.record()
        check_can_continue(run.path, self.record)

    def train(self, should_stop: Callable[[], bool]) -> None:
        """Train to the end of the budget, or until `should_stop` is true after a step, and save.

        If it stopped early, `Run.state` is then not trained. After a kill, trackers may get a line
        twice. Raises UsageError if the run began on other data or its weights are missing; Failure
        if loss or gradient is not finite, or memory runs out.
        """
        if self.run.state().weights == "final":
            self.processes.broadcast_text("")
            return
        self._check_weights_are_here()
        self._keep_policy()
        record, processes = self.record, self.processes
        dataset = training_data(self.options.data, record.config, record.seed, record.data)
        options = replace(self.options, compute=self._compute())
        trainer = build_trainer(record, options, dataset, processes)
        record_machine(self.run, machine(trainer.hardware, processes.size))
        checkpoints = Checkpoints(self.run, record, trainer)
        checkpoints.resume()
        processes.broadcast_text(str(self.run.path.absolute()))
        trainer.sync_from_first()
        self.run.truncate_metrics(trainer.step)
        self.run.remove_partial()
        self._say_what_is_trained(trainer, None if dataset is None else dataset.directory)
        try:
            with user_errors(record.name.encoding), self._explained(checkpoints):
                self._take_steps(trainer, checkpoints, should_stop)
        except NotCompilable as error:
            chosen = self.options.compute.compiled is None and trainer.hardware.device == "cpu"
            if not chosen or trainer.step:  # at a later step it would change bits
                raise
            say(f"note: {error}; training continues without compiling")
            plain = self.options.compute._replace(compiled=False)
            self.options = replace(self.options, compute=plain)
            return self.train(should_stop)
        if trainer.done:
            # Written before the final weights, so that no kill leaves a finished run without it.
            self.run.write_timing("train", trainer.seconds)
            if trainer.skipped != record.skipped_steps:
                self.run.update_record(skipped_steps=trainer.skipped)
            checkpoints.finish()

    def _take_steps(
        self, trainer: Trainer, checkpoints: Checkpoints, should_stop: Callable[[], bool]
    ) -> None:
        """Take steps until all are done or `should_stop`; write metrics and checkpoints."""
        run, record, note = self.run, self.record, ""
        title = f"train {record.encoding} seed {record.seed}"
        with (
            tracked(self.options.trackers, run.tracking, record, trainer.step) as track,
            bar(title, record.config.steps, trainer.step) as update,
        ):
            while not trainer.done:
                if trainer.step == trainer.schedule.cooldown_start:
                    checkpoints.keep()
                line = trainer.advance(should_stop)
                if line is not None:
                    check_lock(run.path)
                    run.add_metrics(line)
                    track(line)
                    note = _note(line)
                update(trainer.step, note)
                stops = trainer.stops(should_stop)
                if stops or checkpoints.due():
                    checkpoints.save()
                if stops:
                    # torchrun ends the others when one exits: they wait until this one has saved.
                    self.processes.any(False)
                    return
            trainer.check_weights()
            if trainer.schedule.cooldown_steps == 0:
                checkpoints.keep()

    def _check_weights_are_here(self) -> None:
        """Raise UsageError or Failure if the run has started and its weights are missing."""
        run, origin = self.run, self.record.init_from
        if run.state().lacks_weights:
            raise UsageError(why_no_weights(run))
        if origin is not None and not run.checkpoints():
            raise Failure(
                f"{run.latest} is missing: it holds the weights that the run begins from; put "
                f"it back, or start over with --init-from RUN --fresh, RUN one of {origin.encoding}"
            )

    def _keep_policy(self) -> None:
        """Record the policy for steps that are not finite, if the options have another one."""
        policy = self.options.on_nonfinite
        if policy not in (None, self.record.on_nonfinite):
            self.record = self.run.update_record(on_nonfinite=policy)

    def _compute(self) -> Compute:
        """Return how to compute, with the choice whether a CPU compiles blocks.

        A run that has started continues as it started, so that its bits stay the same; a new run
        does what its preset asks for. A user's encoding is compiled on request only, because torch
        may fail to trace it.
        """
        compute, record = self.options.compute, self.record
        if compute.compiled is not None or detect().device != "cpu" or self.processes.size > 1:
            return compute
        if record.machine is not None:
            compiled = record.machine.compiled and record.machine.device == "cpu"
        else:
            compiled = asks_to_compile(record.preset) and not source_hashes(record.name.encoding)
        if compiled and (reason := why_not_compilable()):
            say(f"note: not compiled: that {reason}")
            compiled = False
        return compute._replace(compiled=compiled)

    def _say_what_is_trained(self, trainer: Trainer, data: Path | None) -> None:
        record, hardware, processes = self.record, trainer.hardware, self.processes.size
        attention = hardware.attention.replace("auto", "its own")
        say(
            f"training {record.encoding}, seed {record.seed}, preset {record.preset}: "
            f"{trainer.decoder.num_parameters():,} parameters, {hardware.dtype_name} on "
            f"{hardware.device}, {attention} attention, "
            + ("" if hardware.compiled else "not ")
            + "compiled"
            + (" (the first step takes a minute or more)" if hardware.compiled else "")
            + trainer.graph
            + (f", {processes} processes" if processes > 1 else "")
            + (f", from step {trainer.step}" if trainer.step else "")
            + (f", on the problems of {data}" if data else "")
        )

    @contextmanager
    def _explained(self, checkpoints: Checkpoints) -> Iterator[None]:
        """Turn values that are not finite, and too little memory, into a Failure with advice."""
        try:
            yield
        except NotFinite as error:
            remedy = "train again with a lower learning_rate"
            if error.may_skip and self.record.on_nonfinite == "stop":
                command = resume_command(self.run, "--on-nonfinite", "skip")
                remedy += f", or leave such steps out: {command}"
            raise Failure(f"{error}; {checkpoints.last_good}: {remedy}") from error
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason, step = " ".join(str(error).split())[:200], checkpoints.trainer.step
            raise Failure(
                f"out of memory after step {step} ({reason}); {checkpoints.last_good}: free some "
                "memory and repeat the command, or train a smaller decoder (num_layers, "
                "hidden_size)"
            ) from error


def _note(line: Line) -> str:
    """Describe a line of metrics in the progress bar."""
    exact = "" if line["exact_match"] is None else f"exact {line['exact_match']:.1%}, "
    return f"loss {line['loss']:.4f}, {exact}{line['tokens_per_second']:,.0f} tokens/s"
