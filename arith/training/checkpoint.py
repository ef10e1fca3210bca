"""Checkpoints: one safetensors file each. Never a pickle.

The header holds facts as JSON, with a schema number and the SHA-256 of the other facts and of the
tensors. Equal checkpoints are equal files.
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

from tape_arith.arith.errors import Corrupt, Failure
from tape_arith.arith.files import SCHEMA, atomic, check_schema, parse_json

# One key in the header: safetensors writes several in any order.
_FACTS = "tape-arith"
MOST_HEADER = 2**25
"""Limit of a whole header in bytes, generously: about 120 for each tensor."""


def save(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], keep: Path | None = None
) -> None:
    """Write `tensors` and `facts` (JSON) to `path`, whole or not at all.

    Moves an older checkpoint to `keep` first, if that is given.
    """
    facts = {"schema": SCHEMA, **facts}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({**facts, "sha256": _sha256(facts, plain)}, allow_nan=False)
    with atomic(path) as temporary:
        try:
            save_file(plain, temporary, metadata={_FACTS: text})
        except SafetensorError as error:  # how it reports a full disk
            raise Failure(f"cannot write {path}: {error}") from error
        if keep is not None and path.exists():
            with open(temporary, "rb") as file:  # the old one makes way for a whole one only
                os.fsync(file.fileno())
            os.replace(path, keep)


def load(
    path: Path, device: str, max_bytes: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and facts of a checkpoint of at most `max_bytes`.

    Raises Corrupt for a damaged or foreign file, where an older one may still be good; Failure for
    one that cannot be read or that another version wrote.
    """
    if path.exists() and not path.is_file():  # opening a named pipe would wait for ever
        raise Corrupt(f"{path} is not a file")
    try:
        size = path.stat().st_size
        # Before its SHA-256 is taken: terabytes of holes take no space, and hours to read.
        if max_bytes is not None and size > max_bytes:
            raise Corrupt(f"{path} is corrupt: {size:,} bytes, where {max_bytes:,} would do")
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
    # Before its schema is believed: a flipped bit must not read as another version.
    if facts.pop("sha256", None) != _sha256(facts, tensors):
        raise Corrupt(f"{path} is corrupt: its SHA-256 does not match its content")
    check_schema(path, facts.pop("schema", None))
    return {name: tensor.to(device) for name, tensor in tensors.items()}, facts


def _sha256(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the facts and of each tensor: name, type, shape, bytes on a CPU."""
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
