"""Load the weights of a run into a decoder, checked against the run's record."""

from pathlib import Path
from typing import Any

from torch import Tensor

from tape_arith.arith.errors import Corrupt, Failure, UsageError
from tape_arith.arith.runs.build import blueprint, decoder_for, resolve_attention
from tape_arith.arith.runs.command_lines import how_to_restore_weights, why_no_weights
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord, check_can_continue
from tape_arith.arith.training import checkpoint
from tape_arith.models.backends import AUTO, AttentionChoice
from tape_arith.models.build import Blueprint, describe
from tape_arith.models.decoder import Decoder
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
    weights = 3 * blueprint(record.config, record.name).num_bytes
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


def check_shapes(expected: Blueprint, tensors: dict[str, Tensor], path: Path) -> None:
    """Raises Failure if a checkpoint has other shapes or types, or numbers that are not finite."""
    right = {f"model/{name}": shape for name, shape in expected.shapes.items()}
    actual = {name: describe(tensor) for name, tensor in tensors.items()}
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
