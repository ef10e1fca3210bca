"""Content of a run's documents, and changes that keep their checksums right."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from tape_arith.arith.documents import checksum

# Content of environment.json, and a line of metrics.jsonl.
ENVIRONMENT: dict[str, Any] = {
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
METRICS: dict[str, Any] = {
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


def edit(file: Path, **changes: Any) -> None:
    """Change fields of a document and give it the checksum of its new content."""
    content = json.loads(file.read_text()) | changes
    if content.pop("checksum", None):
        file.write_text(json.dumps({**content, "checksum": checksum(content)}))


def edit_text(file: Path, old: str, new: str, count: int = -1) -> None:
    """Replace text in a file, which must hold it; a document gets its checksum."""
    text = file.read_text()
    assert old in text, (file, old)
    file.write_text(text.replace(old, new, count))
    with suppress(ValueError):  # other files have no checksum
        edit(file)
