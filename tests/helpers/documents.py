"""Content of a run's documents, and changes that keep their checksums right."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from tape_arith.arith.documents import checksum

# A machine of run.json, and a line of metrics.jsonl.
MACHINE: dict[str, Any] = {
    "tape_arith": "0.8.0",
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


def untimed_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return the content of run.json without where, and how fast, the run was trained."""
    return {k: v for k, v in record.items() if k not in ("machines", "seconds", "checksum")}


def edit(file: Path, **changes: Any) -> None:
    """Change fields of a document and give it the checksum of its new content."""
    content = json.loads(file.read_text()) | changes
    if content.pop("checksum", None):
        file.write_text(json.dumps({**content, "checksum": checksum(content)}))


def edit_machine(run_json: Path, **changes: Any) -> None:
    """Change where a run was last trained."""
    machines = json.loads(run_json.read_text())["machines"] or [MACHINE]
    edit(run_json, machines=[*machines[:-1], machines[-1] | changes])


def edit_text(file: Path, old: str, new: str, count: int = -1) -> None:
    """Replace text in a file, which must hold it; a document gets its checksum."""
    text = file.read_text()
    assert old in text, (file, old)
    file.write_text(text.replace(old, new, count))
    with suppress(ValueError):  # other files have no checksum
        edit(file)
