"""Weights of a run: loaded into a decoder, saved and resumed while it is trained."""

from pathlib import Path
from typing import Any

from torch import Tensor

from tape_arith.arith.errors import Corrupt, Failure, UsageError
from tape_arith.arith.files import remove
from tape_arith.arith.runs.build import blueprint, decoder_for, resolve_attention
from tape_arith.arith.runs.command_lines import how_to_restore_weights, why_no_weights
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.lock import check_lock
from tape_arith.arith.runs.record import RunRecord, check_can_continue
from tape_arith.arith.terminal import say
from tape_arith.arith.training import checkpoint
from tape_arith.arith.training.step import is_out_of_memory
from tape_arith.arith.training.trainer import NotFinite, Trainer
from tape_arith.models.backends import AUTO, AttentionChoice
from tape_arith.models.decoder import Decoder, shapes
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import Name


def identity(record: RunRecord) -> dict[str, Any]:
    """Return the facts by which a checkpoint belongs to a run."""
    return {
        "encoding": record.encoding,
        "seed": record.seed,
        "task_version": record.task_version,
        "config_sha256": record.config.sha256,
    }


def load_state(
    path: Path, record: RunRecord, device: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load a checkpoint of this run. Raises Failure if it belongs to another."""
    # Adam keeps two numbers for each weight.
    weights = 3 * blueprint(record.config, record.name).num_bytes()
    tensors, facts = checkpoint.load(path, device, weights + checkpoint.MOST_HEADER)
    for key, value in identity(record).items():
        if facts.get(key) != value:
            raise Failure(f"{path} belongs to another run: {key} is {facts.get(key)}, not {value}")
    return tensors, facts


def final_weights(folder: RunFolder, record: RunRecord, device: str) -> dict[str, Tensor]:
    """Load the final weights of a run. Raises Failure, which says how to restore corrupt ones."""
    try:
        tensors, facts = load_state(folder.final, record, device)
    except Corrupt as error:
        raise Corrupt(f"{error}: {how_to_restore_weights(folder)}") from error
    if facts.get("step") != record.config.steps:
        raise Failure(
            f"{folder.final} is of step {facts.get('step')}, and the run is trained for "
            f"{record.config.steps}: {how_to_restore_weights(folder)}"
        )
    return tensors


def check_shapes(expected: Decoder, tensors: dict[str, Tensor], path: Path) -> None:
    """Raises Failure if a checkpoint has other shapes or types, or numbers that are not finite."""
    right = {f"model/{name}": shape for name, shape in shapes(expected.state_dict()).items()}
    actual = shapes(tensors)
    for name in sorted(right.keys() | actual.keys()):
        if right.get(name) != actual.get(name):
            raise Failure(
                f"{path} does not fit the run's decoder: {name} is {actual.get(name, 'missing')}, "
                f"not {right.get(name, 'of it')}"
            )
        if not tensors[name].isfinite().all():
            raise Failure(f"{path} holds weights that are not finite: {name}")


def load_weights(decoder: Decoder, tensors: dict[str, Tensor], path: Path) -> None:
    """Load a checkpoint into `decoder`. Raises Failure if it does not fit."""
    weights = {name.removeprefix("model/"): tensor for name, tensor in tensors.items()}
    try:
        decoder.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise Failure(f"{path} does not fit the run's decoder: {reason}") from error


def trained_record(folder: RunFolder) -> RunRecord:
    """Return the record of a run that can be scored.

    Raises UsageError if it is not trained to its end or began on another version of the task.
    """
    record = folder.record()
    check_can_continue(folder.path, record)
    if not folder.finished():
        raise UsageError(why_no_weights(folder))
    return record


def trained_decoder(
    folder: RunFolder, name: Name, record: RunRecord, compute: AttentionChoice = AUTO
) -> tuple[Decoder, Hardware]:
    """Build the decoder of a trained run with its final weights, on the device that computes.

    `name` is the run's encoding, with an extrapolation or without.
    """
    hardware = detect(*compute)
    tensors = final_weights(folder, record, hardware.device)
    # A record may ask for more memory than there is; the weights are no larger than their file.
    check_shapes(blueprint(record.config, name), tensors, folder.final)
    decoder = decoder_for(record.config, name, record.seed)
    hardware = resolve_attention(hardware, decoder.needs)
    load_weights(decoder, tensors, folder.final)
    return decoder.to(hardware.device), hardware


class TrainingCheckpoints:
    """Saves and resumes the checkpoints of a run that is being trained.

    `last_good` is the last checkpoint from which training can go on, with its step.
    """

    def __init__(self, folder: RunFolder, record: RunRecord, trainer: Trainer) -> None:
        self.folder = folder
        self.record = record
        self.trainer = trainer
        self.last_good: tuple[Path, int] | None = None
        self.corrupt: list[Path] = []

    def resume(self) -> None:
        """Put the newest good checkpoint into the trainer, if there is any.

        A corrupt one is named and passed over. It is removed by the next save only: until then it
        is what marks the run as unfinished. Raises Failure if all are corrupt, or one belongs to
        another run or version.
        """
        corrupt: dict[Path, Corrupt] = {}
        for path in self.folder.checkpoints():
            try:
                tensors, facts = load_state(path, self.record, self.trainer.hardware.device)
            except Corrupt as error:
                corrupt[path] = error
                continue
            self.trainer.restore(tensors, facts, path)
            self.last_good = path, self.trainer.step
            break
        else:
            if corrupt:
                first = next(iter(corrupt.values()))
                raise Failure(
                    f"{first}; no older checkpoint is good: start the run over with --fresh"
                ) from first
        if corrupt:
            reasons = "; ".join(map(str, corrupt.values()))
            say(f"note: {reasons}: training goes on from {path.name}, step {self.trainer.step}")
        self.corrupt = list(corrupt)

    def save(self) -> None:
        """Save the checkpoint that training resumes from; the one before is kept beside it."""
        self._save(self.folder.latest, keep=self.folder.previous)

    def keep(self) -> None:
        """Save the checkpoint that a longer budget goes on from."""
        self._save(self.folder.before_cooldown)

    def _save(self, target: Path, keep: Path | None = None) -> None:
        tensors, facts = self.trainer.state()
        check_lock(self.folder.path)
        if target in self.corrupt:  # never kept in place of a good one
            keep = None
            if target.is_dir():
                remove(target)
        checkpoint.save(target, tensors, facts | identity(self.record), keep)
        self.last_good = target, self.trainer.step
        for path in self.corrupt:
            if path != target:
                remove(path)
        self.corrupt = []

    def finish(self) -> None:
        """Save the final weights and remove the checkpoints; with the last of them gone, the run
        counts as finished."""
        decoder = self.trainer.decoder
        weights = {f"model/{name}": value for name, value in decoder.state_dict().items()}
        check_lock(self.folder.path)
        facts = {"step": self.trainer.step, "skipped": self.trainer.skipped}
        checkpoint.save(self.folder.final, weights, facts | identity(self.record))
        remove(self.folder.previous)
        remove(self.folder.latest)

    def explain(self, error: BaseException) -> Failure | None:
        """A Failure with its remedy for the error that ended training; None for an unknown one."""
        if isinstance(error, NotFinite):
            resumable = "there is no checkpoint yet"
            if self.last_good is not None:
                path, step = self.last_good
                resumable = f"the last good checkpoint is {path}, step {step}"
            remedy = "train anew with a lower learning_rate"
            if error.may_skip and self.record.on_nonfinite == "stop":
                command = f"tape-arith train {self.folder.path} --on-nonfinite skip"
                remedy += f", or leave such steps out: {command}"
            return Failure(f"{error}; {resumable}: {remedy}")
        if is_out_of_memory(error):
            reason = " ".join(str(error).split())[:200]
            return Failure(f"out of memory at step {self.trainer.step + 1}: {reason}")
        return None
