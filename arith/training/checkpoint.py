"""Checkpoints: one safetensors file each, with what it is in the header. Never a pickle.

The header holds the facts, as JSON, and among them the SHA-256 of the other facts and of the
tensors. Schema 1 had no such digest; it is read too. Equal checkpoints are equal files.
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

from arith.checking import Wrong
from arith.errors import Corrupt, Failure
from arith.files import atomic
from arith.reading import parse_json
from arith.schemas import NEWEST, readable

SCHEMA = NEWEST["checkpoint"]
# In the header one key alone: safetensors writes several in any order.
FACTS, DIGEST = "tape-arith", "sha256"
MOST_FACTS = 2**20
"""Characters of what a header tells."""
MOST_HEADER = 2**25
"""Bytes of a whole header, generously: a line of some 120 for each tensor."""


def save(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], keep: Path | None = None
) -> None:
    """Write `tensors` and `facts` (JSON) to `path`, whole or not at all; what stood there before is
    moved to `keep`, if that is given."""
    told = {"schema": SCHEMA, **facts} | {"schema": SCHEMA}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({**told, DIGEST: digest(told, plain)}, allow_nan=False)
    with atomic(path) as temporary:
        try:
            save_file(plain, temporary, metadata={FACTS: text})
        except SafetensorError as error:  # how it reports a full disk
            raise Failure(f"cannot write {path}: {error}") from error
        if keep is not None and path.exists():
            with open(temporary, "rb") as file:  # the old one leaves its place only for a whole one
                os.fsync(file.fileno())
            os.replace(path, keep)


def load(
    path: Path, device: str, most: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint of at most `most` bytes, as they were written.

    Errors: Corrupt for a damaged or foreign file, where an older one may still be good; Failure for
    one that cannot be read or that a newer version wrote.
    """
    if path.exists() and not path.is_file():  # one would wait for ever for a named pipe
        raise Corrupt(f"{path} is not a file")
    try:
        size = path.stat().st_size
        # Before its SHA-256 is taken: holes make terabytes of nothing that take hours to read.
        if most is not None and size > most:
            raise Corrupt(f"{path} is corrupt: {size:,} bytes, where {most:,} would do")
        with safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise Corrupt(f"{path} is corrupt: {' '.join(str(error).split())}") from error
    if FACTS not in header:
        raise Corrupt(f"{path} is not a checkpoint of tape-arith")
    facts = _facts(header[FACTS], tensors, path)
    return {name: tensor.to(device) for name, tensor in tensors.items()}, facts


def digest(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Hex SHA-256 of the facts and of every tensor: name, type, shape and bytes (on a CPU)."""
    whole = hashlib.sha256(json.dumps(facts).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        whole.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        whole.update(tensor.flatten().view(torch.uint8).numpy().data)
    return whole.hexdigest()


def _facts(text: str, tensors: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """What the header tells, its digest left out."""
    if len(text) > MOST_FACTS:
        raise Corrupt(f"{path} is corrupt: its header is larger than any that is written")
    try:
        facts = parse_json(text)
    except ValueError as error:
        raise Corrupt(f"{path} is corrupt: {error}") from error
    if not isinstance(facts, dict):
        raise Corrupt(f"{path} is corrupt: its header holds no object")
    found = facts.pop(DIGEST, None)
    # Before anything of it is believed, its schema included.
    if found is not None and found != digest(facts, tensors):
        raise Corrupt(f"{path} is corrupt: it is not what its SHA-256 says")
    try:
        schema = readable(facts.get("schema"), "checkpoint")
    except Wrong as error:
        raise Failure(f"{path} {error}") from error
    if schema > 1 and found is None:
        raise Corrupt(f"{path} is corrupt: its SHA-256 is missing")
    return facts
