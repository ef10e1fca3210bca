"""Documents that a test changes on purpose: as if they had been written so."""

import json
from pathlib import Path
from typing import Any

from tape_arith.arith.files import checksum

MACHINE: dict[str, Any] = {
    "tape-arith": "0.8.0",
    "commit": None,
    "command": "tape-arith train",
    "python": "3.11",
    "torch": "2.6",
    "device": "cpu",
    "hardware": "x",
    "dtype": "float32",
    "threads": 1,
    "attention": "eager",
    "compiled": False,
    "system": "Linux",
    "processes": 1,
}
"""What environment.json says."""
LINE: dict[str, Any] = {
    "step": 20,
    "loss": 2.5,
    "learning_rate": 0.001,
    "gradient_norm": 1.0,
    "tokens": 640,
    "tokens_per_second": 100.0,
    "seconds": 6.4,
    "exact_match": 0.5,
    "small_grid": {"in_distribution": 0.5, "out_of_distribution": None, "by_length": {"1": 0.5}},
    "state": {"norm": [1.0, 2.0]},
}
"""A line of metrics.jsonl."""


def resealed(text: bytes) -> bytes:
    """A JSON document with the checksum of what it says now; what is no such document as it is."""
    try:
        content = json.loads(text)
    except ValueError:
        return text
    if not isinstance(content, dict) or "checksum" not in content:
        return text
    told = json.dumps(content["checksum"]).encode()
    return text.replace(told, json.dumps(checksum(without(content))).encode())


def changed(text: bytes, **changes: Any) -> bytes:
    """A JSON document in which something else stands under some keys."""
    return resealed(json.dumps({**json.loads(text), **changes}).encode())


def without(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != "checksum"}


def replaced(file: Path, old: str, new: str, count: int = -1) -> None:
    """Put `new` in the place of `old` in the text of a document, which must hold it."""
    text = file.read_text()
    assert old in text, (file, old)
    file.write_bytes(resealed(text.replace(old, new, count).encode()))
