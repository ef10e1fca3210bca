"""Documents that a test changes on purpose: as if they had been written so."""

import json
from pathlib import Path
from typing import Any

from arith.schemas import checksum


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
