"""Checkpoints: one safetensors file each, with what it is in the header. Never a pickle."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from arith.errors import Failure
from arith.files import atomic


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write `tensors` and `facts` (JSON) to `path`, whole or not at all."""
    header = {"tape-arith": json.dumps({"schema": 1, **facts})}
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with atomic(path) as temporary:
        try:
            save_file(plain, temporary, metadata=header)
        except SafetensorError as error:  # how it reports a full disk
            raise Failure(f"cannot write {path}: {error}") from error


def load(path: Path, device: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint. Errors: Failure for a corrupt or foreign file."""
    try:
        with safe_open(path, framework="pt", device=device) as file:
            header = (file.metadata() or {}).get("tape-arith")
            if header is None:
                raise Failure(f"{path} is not a checkpoint of tape-arith")
            facts = json.loads(header)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise Failure(f"{path} is corrupt: {error}") from error
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    if not isinstance(facts, dict):
        raise Failure(f"{path} is corrupt: its header holds no object")
    if facts.get("schema") != 1:
        raise Failure(f"{path} has schema {facts.get('schema')!r}; this version reads schema 1")
    return tensors, facts
