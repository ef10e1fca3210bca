"""Train a run, extend it: each call goes on where the last one stopped."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tape_arith.arith.data.dataset import Dataset
from tape_arith.arith.documents import write_document
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.build import build_trainer, check, dataset_of, training_bucket
from tape_arith.arith.runs.checkpoints import States
from tape_arith.arith.runs.command_lines import untrained
from tape_arith.arith.runs.environment import DECIDES_BITS, environment
from tape_arith.arith.runs.folder import RunFolder, run_folder
from tape_arith.arith.runs.init_from import beginning, named, write_first_state
from tape_arith.arith.runs.lock import alone, confirm
from tape_arith.arith.runs.record import Environment, RunRecord, unchanged
from tape_arith.arith.runs.tracking import tracked
from tape_arith.arith.runs.user_encodings import as_user_error
from tape_arith.arith.runs.weights import load_state, trained_record
from tape_arith.arith.terminal import bar, say
from tape_arith.arith.training import checkpoint
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.distributed import SINGLE, PeerLost, ProcessGroup
from tape_arith.arith.training.metrics import Metrics
from tape_arith.arith.training.nonfinite import NotFinite, checked_policy
from tape_arith.arith.version import own_version
from tape_arith.models.hardware import Hardware
from tape_arith.models.names.backends import AUTO, AttentionChoice
from tape_arith.models.names.locate import USER_CODE_ERRORS
from tape_arith.models.names.parse import Name, source_hashes

LOG_EVERY, EVALUATE_EVERY, SAVE_EVERY = 20, 100, 100
"""In steps. Every saved state is evaluated, for the spread over the last ones; where saving takes
long, not every evaluated one is saved."""
MOST_EARLIER = 50
"""Environments of earlier calls that are kept: the last ones."""


def train_run(
    root: Path,
    preset: str,
    config: Config,
    name: Name,
    seed: int,
    *,
    data: Path | None = None,
    source: RunFolder | None = None,
    only_positional: bool = False,
    compute: AttentionChoice = AUTO,
    curves: bool = True,
    on_nonfinite: str | None = None,
    fresh: bool = False,
    track: Sequence[str] = (),
    processes: ProcessGroup = SINGLE,
    should_stop: Callable[[], bool],
) -> RunFolder:
    """Train, or go on training, the run of `name` and `seed`; nothing is done twice. With `source`
    it begins from the final weights of that run, `only_positional` leaving all of them as they are.

    Stops in good order when `should_stop` says so: see RunFolder.finished. Errors: UsageError
    where the folder holds a run of another config, `data` is not what the run trains on, or it
    cannot begin from `source`.
    """
    origin = None if source is None else trained_record(source)
    if origin is not None:
        name = named(name, origin, only_positional)
    folder = run_folder(root, preset, name.encoding, seed)
    check(config, name, compute)
    dataset = None
    if data is not None:
        config = replace(config, num_problems=Dataset(data).manifest.count)
        dataset = dataset_of(data, config, seed)
    init_from = None
    if source is not None and origin is not None:
        init_from = beginning(source, origin, config, name, seed)
    elif name.encoding.origin is not None and (fresh or not folder.exists()):
        begun = f"train --pe {name.encoding.own} --init-from RUN"
        raise UsageError(f"{name.encoding} begins from a finished run: tape-arith {begun}")
    record = RunRecord(
        encoding=str(name.encoding),
        seed=seed,
        preset=preset,
        config=config,
        task_version=training_bucket(config, seed).version,
        first_steps=config.steps,
        data=None if dataset is None else dataset.manifest.sha256,
        version=own_version(),
        sources=source_hashes(name.encoding),
        init_from=init_from,
        on_nonfinite=checked_policy(on_nonfinite or "stop"),
    )
    begin(folder, record, fresh, source)
    there = folder.record()
    if there.config != config and replace(there.config, steps=config.steps) == config:
        extend = f"`tape-arith train {folder.path} --steps {config.steps}` extends it"
        apart = "train into another folder with --out"
        raise UsageError(
            f"{folder.path} has a budget of {there.config.steps} steps, not {config.steps}: "
            f"{extend if config.steps > there.config.steps else apart}, --fresh starts it over"
        )
    if (there.config, there.encoding, there.seed) != (config, record.encoding, seed):
        differs = there.config.differences(config) or f"{there.encoding}, seed {there.seed}"
        raise UsageError(
            f"{folder.path} holds another run ({differs}): train into "
            "another folder with --out, or start this one over with --fresh"
        )
    if source is not None and init_from != there.init_from:
        raise UsageError(
            f"{folder.path} began from other weights than those of {source.path}: train into "
            "another folder with --out, or start this one over with --fresh"
        )
    return continue_run(
        folder,
        data=data,
        compute=compute,
        curves=curves,
        on_nonfinite=on_nonfinite,
        track=track,
        processes=processes,
        should_stop=should_stop,
    )


@alone
def begin(
    folder: RunFolder, record: RunRecord, fresh: bool = False, source: RunFolder | None = None
) -> None:
    """Write down what the run is, where its folder holds none yet, or is to be started over; and
    first the weights of `source`, where it begins from those: from then on it does not need it."""
    if fresh and folder.exists():
        forget(folder)
    if not folder.exists():
        forget(folder)  # what a killed --fresh left
        if source is not None:
            write_first_state(folder, record, source)
        folder.write_record(record)


@alone
def extend_run(folder: RunFolder, steps: int, *, data: Path | None = None) -> None:
    """Raise the budget of a run to `steps`; training goes on from before the cool-down.

    Errors: UsageError where the run is not finished or already went further, and as `continue_run`.
    """
    record = folder.record()
    unchanged(folder.path, record)
    if steps == record.config.steps:
        return
    if not folder.finished() and not _was_finished(folder, record):
        raise UsageError(untrained(folder))
    if steps < record.config.steps:
        raise UsageError(f"{folder.path} was trained for {record.config.steps} steps already")
    extended = replace(record, config=replace(record.config, steps=steps))
    kept = record.schedule.cooldown_start
    if extended.schedule.cooldown_start < kept:
        raise UsageError(f"{steps} steps would cool down before step {kept}, which is kept: more")
    if data is not None:
        dataset_of(data, record.config, record.seed, record.data)
    try:
        tensors, facts = load_state(folder.before_cooldown, record, "cpu")
    except Failure as error:
        raise Failure(
            f"{error}; without it the run cannot be extended: train anew for {steps} steps, into "
            "another folder with --out"
        ) from error
    # The unfinished state comes first: whatever kills us next, the run reads as unfinished.
    checkpoint.save(folder.latest, tensors, facts)
    for grid in folder.path.glob("grid*.json"):
        earlier = folder.path / f"at-{record.config.steps}-steps" / grid.name
        earlier.parent.mkdir(exist_ok=True)
        grid.replace(earlier)
    folder.write_record(extended)


def _was_finished(folder: RunFolder, record: RunRecord) -> bool:
    """The weights are there after all steps of its budget: a kill came while it was extended."""
    if not folder.final.exists():
        return False
    return load_state(folder.final, record, "cpu")[1].get("step") == record.config.steps


@alone
def continue_run(
    folder: RunFolder,
    *,
    data: Path | None = None,
    compute: AttentionChoice = AUTO,
    curves: bool = True,
    on_nonfinite: str | None = None,
    track: Sequence[str] = (),
    processes: ProcessGroup = SINGLE,
    should_stop: Callable[[], bool],
) -> RunFolder:
    """Train the run in `folder` from where it stands to the end of its budget. `curves` (whether
    the small grid is scored on the way) changes no number of it, so it is not recorded; another
    `on_nonfinite` than the record's is, and holds from here on. Each of the trackers
    `track` gets every line of metrics, after it stands in metrics.jsonl; after a kill, lines come
    again that it had. Of several `processes` this is the first one; the others
    call `train_as_worker`.

    Errors: UsageError where it began on another version of the task, or on other data than `data`;
    Failure where the loss or its gradient is not finite.
    """
    record = folder.record()
    unchanged(folder.path, record)
    if folder.finished():
        processes.broadcast_text("")
        return folder
    if on_nonfinite not in (None, record.on_nonfinite):
        record = replace(record, on_nonfinite=checked_policy(on_nonfinite or ""))
        folder.write_record(record)
    if folder.carried():
        raise UsageError(untrained(folder))
    before = record.init_from
    if before is not None and not folder.states():
        raise Failure(f"{folder.latest} is missing: it holds the weights that the run begins from")
    trainer = build_trainer(record, data=data, compute=compute, curves=curves, processes=processes)
    hardware = trainer.hardware
    resume_environment(folder, hardware, processes)
    states = States(folder, record, trainer)
    states.resume()
    processes.broadcast_text(str(folder.path.absolute()))
    trainer.as_first()
    folder.keep_metrics_to(trainer.step)
    folder.remove_partial()
    say(
        f"training {record.encoding}, seed {record.seed}, preset {record.preset}: "
        f"{trainer.decoder.num_parameters():,} parameters, {hardware.dtype_name} on "
        f"{hardware.device}, {hardware.attention} attention"
        + (f", {processes.size} processes" if processes.size > 1 else "")
        + (f", from step {trainer.step}" if trainer.step else "")
    )

    note = ""

    def log(metrics: Metrics) -> None:
        nonlocal note
        confirm(folder.path)
        folder.add_metrics(metrics.content())
        for sink in sinks:
            sink(metrics)
        exact = "" if metrics.exact_match is None else f"exact {metrics.exact_match:.1%}, "
        note = f"loss {metrics.loss:.4f}, {exact}{metrics.tokens_per_second:,.0f} tokens/s"

    steps = record.schedule.steps
    with (
        tracked(track, folder, record, trainer.step) as sinks,
        bar(f"train {record.encoding} seed {record.seed}", steps, trainer.step) as update,
    ):
        try:
            done = trainer.run(
                log_every=LOG_EVERY,
                evaluate_every=EVALUATE_EVERY,
                save_every=SAVE_EVERY,
                log=log,
                tick=lambda step: update(step, note),
                save=states.save,
                keep=states.keep,
                should_stop=should_stop,
            )
        except USER_CODE_ERRORS as error:
            failure = states.failure(error) or as_user_error(error, record.name.encoding)
            if failure is None:
                raise
            raise failure from error
    if done:
        # First all that is told of the run: with the last move it is finished, whatever kills us.
        folder.write_timing("train", trainer.seconds)
        if trainer.skipped != record.skipped_steps:
            folder.write_record(replace(record, skipped_steps=trainer.skipped))
        states.finish()
    return folder


def train_as_worker(
    processes: ProcessGroup,
    *,
    data: Path | None = None,
    compute: AttentionChoice = AUTO,
    should_stop: Callable[[], bool],
) -> bool:
    """Take part in the training that the first process conducts; False if it was cut short.

    The first process alone writes the run's folder and prints messages; all read the folder.
    Raises Failure for what the code of a user's encoding raises in this process.
    """
    record: RunRecord | None = None
    try:
        path = processes.broadcast_text()
        if not path:  # there is nothing to train
            return True
        record = RunFolder(Path(path)).record()
        trainer = build_trainer(record, data=data, compute=compute, processes=processes)
        trainer.as_first()
        trainer.run(
            log_every=LOG_EVERY,
            evaluate_every=EVALUATE_EVERY,
            save_every=SAVE_EVERY,
            log=lambda metrics: None,
            tick=lambda step: None,
            save=lambda: None,
            keep=lambda: None,
            should_stop=should_stop,
        )
    except (PeerLost, NotFinite):  # the first process says so
        return False
    except USER_CODE_ERRORS as error:
        failure = None if record is None else as_user_error(error, record.name.encoding)
        if failure is None:
            raise
        raise Failure(f"process {processes.rank}: {failure}") from error
    return True


def resume_environment(
    folder: RunFolder, hardware: Hardware, processes: ProcessGroup = SINGLE
) -> None:
    """Record what the run runs on, and what it ran on before, where that was another; on resuming,
    say what keeps it from being bit for bit."""
    now = environment(hardware) | {"processes": processes.size}
    earlier: list[dict[str, Any]] = []
    if folder.environment_file.exists():
        recorded = folder.environment().model_dump(by_alias=True)
        earlier = [*recorded["earlier"], {key: recorded[key] for key in now}]
    if earlier and folder.unfinished():
        before = earlier[-1]
        changed = [key for key in DECIDES_BITS if before[key] != now[key]]
        if changed:
            what = ", ".join(f"{key} {before[key]}, now {now[key]}" for key in changed)
            say(f"note: this will not be bit for bit an unbroken run: it began with {what}")
    others = [one for n, one in enumerate(earlier) if one != now and one not in earlier[:n]]
    kept = {"earlier": others[-MOST_EARLIER:]} if others else {}
    write_document(folder.environment_file, {**now, **kept}, Environment.kind)


def forget(folder: RunFolder) -> None:
    """Remove a run's own files, so that it starts over; the record goes first, so that a kill
    leaves no run that reads as one."""
    names = ("run.json", "environment.json", "metrics.jsonl", "timings.json", "grid*.json")
    for pattern in (*names, "weights/*.safetensors", "at-*-steps/grid*.json"):
        for file in folder.path.glob(pattern):
            file.unlink()
    folder.remove_partial()
    shutil.rmtree(folder.tracking, ignore_errors=True)
