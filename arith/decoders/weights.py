"""Save weights and load them into the decoder of a run.

A checkpoint is one safetensors file, never a pickle. Its header holds facts as JSON, with a schema
number and the SHA-256 of the other facts and of the tensors. Equal checkpoints are equal files.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tape_arith.arith.decoders.build import blueprint, decoder_for
from tape_arith.arith.documents import SCHEMA, check_schema
from tape_arith.arith.errors import Corrupt, Failure, UsageError
from tape_arith.arith.files import atomic, parse_json
from tape_arith.arith.registry.names import Name
from tape_arith.arith.runs.command_lines import how_to_restore_weights, why_no_weights
from tape_arith.arith.runs.record import RunRecord, check_can_continue
from tape_arith.arith.runs.run import Run
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import detect

# The header has one key, because safetensors would write several keys in any order.
_FACTS = "tape-arith"


def save(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], keep: Path | None = None
) -> None:
    """Write `tensors` and `facts` (JSON) to `path`, whole or not at all.

    If `keep` is given, an older checkpoint at `path` is moved there first.
    """
    facts = {"schema": SCHEMA, **facts}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    used = set[int]()
    for name, tensor in plain.items():  # the format refuses weights that share memory, as tied ones
        memory = tensor.untyped_storage().data_ptr()
        plain[name] = tensor.clone() if memory in used else tensor
        used.add(memory)
    text = json.dumps({**facts, "sha256": _sha256(facts, plain)}, allow_nan=False)
    with atomic(path) as temporary:
        try:
            save_file(plain, temporary, metadata={_FACTS: text})
        except SafetensorError as error:  # as for a full disk
            raise Failure(f"cannot write {path}: {error}") from error
        if keep is not None and path.exists():
            with open(temporary, "rb") as file:  # must be on disk before the old one moves
                os.fsync(file.fileno())
            os.replace(path, keep)


def load(path: Path, device: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and facts of a checkpoint.

    Raises Corrupt for a damaged or foreign file, where an older checkpoint may help; Failure if the
    file cannot be read or another version wrote it.
    """
    if path.exists() and not path.is_file():  # opening a named pipe would wait for ever
        raise Corrupt(f"{path} is not a file")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if _FACTS not in header:
            raise Corrupt(f"{path} is not a checkpoint of tape-arith")
        facts = dict(parse_json(header[_FACTS]))
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, TypeError, ValueError, RuntimeError) as error:
        raise Corrupt(f"{path} is corrupt: {' '.join(str(error).split())}") from error
    # The hash is checked before the schema, so that a flipped bit is not taken for a new version.
    if facts.pop("sha256", None) != _sha256(facts, tensors):
        raise Corrupt(f"{path} is corrupt: its SHA-256 does not match its content")
    check_schema(path, facts.pop("schema", None))
    return {name: tensor.to(device) for name, tensor in tensors.items()}, facts


def _sha256(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the facts and of each tensor's name, type, shape and bytes (on CPU)."""
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def identity(record: RunRecord) -> dict[str, Any]:
    """Return the facts that tie a checkpoint to its run."""
    return {
        "encoding": record.encoding,
        "seed": record.seed,
        "task_version": record.task_version,
        "config_sha256": record.config.sha256,
    }


def load_state(
    path: Path, record: RunRecord, device: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load a checkpoint of the run of `record`. Raises Failure if it belongs to another run."""
    tensors, facts = load(path, device)
    for key, value in identity(record).items():
        if facts.get(key) != value:
            raise Failure(f"{path} belongs to another run: {key} is {facts.get(key)}, not {value}")
    return tensors, facts


def final_weights(run: Run, record: RunRecord, device: str) -> dict[str, Tensor]:
    """Load the final weights of a run, by their names in its decoder.

    Raises Failure, with advice, if they are corrupt, do not fit or belong to another budget.
    """
    path = run.final
    try:
        tensors, facts = load_state(path, record, device)
    except Corrupt as error:
        raise Corrupt(error.fault, how_to_restore_weights(run)) from error
    if facts.get("step") != record.config.steps:
        raise Failure(
            f"{path} has step {facts.get('step')}, and the run is trained for "
            f"{record.config.steps}: {how_to_restore_weights(run)}"
        )
    weights = {name.removeprefix("model/"): tensor for name, tensor in tensors.items()}
    # Shapes are compared before the real decoder is built: a record may ask for too much memory.
    expected = shapes(blueprint(record.config, record.name).state_dict())
    actual = shapes(weights)
    for name in sorted(expected.keys() | actual.keys()):
        if actual.get(name) != expected.get(name):
            raise Failure(
                f"{path} does not fit this run's decoder: {name} is {actual.get(name, 'missing')} "
                f"in the file and {expected.get(name, 'missing')} in the decoder: "
                f"{how_to_restore_weights(run)}"
            )
        if not weights[name].isfinite().all():
            raise Failure(
                f"{path} holds weights that are not finite ({name}): {how_to_restore_weights(run)}"
            )
    return weights


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Describe type and shape of each tensor.

    >>> shapes({"head.weight": torch.zeros(2, 3)})
    {'head.weight': 'float32 [2, 3]'}
    """
    return {
        name: f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
        for name, tensor in tensors.items()
    }


def trained_record(run: Run) -> RunRecord:
    """Return the record of a run that can be scored.

    Raises UsageError if it is not trained to its end or began on another version of the task.
    """
    record = run.record()
    check_can_continue(run.path, record)
    if run.state().weights != "final":
        raise UsageError(why_no_weights(run))
    return record


def trained_decoder(run: Run, name: Name, record: RunRecord) -> Decoder:
    """Build the decoder of a trained run with its final weights, ready to evaluate here.

    `name` is the run's encoding, with an extrapolation or without.
    """
    device = detect().device
    weights = final_weights(run, record, device)
    decoder = decoder_for(record.config, name, record.seed)
    decoder.load_state_dict(weights)
    return decoder.to(device).eval()
