"""Results in a folder, read without the project's own readers."""

import json
from pathlib import Path

import numpy as np
from matplotlib.image import imread
from safetensors.numpy import load_file

GRID_KEYS = ("exact", "total", "right_share", "first_wrong", "budget")
METRICS_KEYS = ("step", "loss", "exact_match", "tokens")


def results(folder: Path) -> dict[str, object]:
    """Return the files below `folder` with all that an interruption must not change.

    Tensors, counts, losses, data and tables, bit for bit; no times, no state of a sweep, and not
    which command wrote a table.
    """
    content: dict[str, object] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        if "/sweeps/" in name and file.suffix in (".json", ".jsonl", ".log"):
            continue
        if name.endswith("final.safetensors"):
            content[name] = {key: array.tobytes() for key, array in load_file(file).items()}
        elif name.endswith("metrics.jsonl"):
            lines = map(json.loads, file.read_text().splitlines())
            content[name] = [[line[key] for key in METRICS_KEYS] for line in lines]
        elif file.name.startswith("grid") and file.suffix == ".json":
            grid = json.loads(file.read_text())
            content[name] = [grid[key] for key in GRID_KEYS]
        elif file.suffix == ".md":  # without the command that made it
            content[name] = file.read_text().partition("\n<!--")[0]
        elif file.suffix in (".npy", ".txt", ".parquet") or file.name == "manifest.json":
            content[name] = file.read_bytes()
        else:
            content[name] = "is there"
    return content


def assert_whole(folder: Path) -> None:
    """Fail if a file under its final name is half written."""
    for file in (path for path in folder.rglob("*") if path.is_file()):
        if file.name.startswith("."):  # temporary, or a lock
            continue
        try:
            if file.suffix == ".json":
                json.loads(file.read_text())
            elif file.suffix == ".jsonl":
                for line in file.read_text().splitlines():
                    json.loads(line)
            elif file.suffix == ".safetensors":
                load_file(file)
            elif file.suffix == ".npy":
                np.load(file)
            elif file.suffix == ".png":
                imread(file)
            elif file.suffix in (".html", ".svg"):
                assert file.read_text().rstrip().endswith(f"</{file.suffix[1:]}>")
            elif file.suffix == ".md":
                assert file.read_text().endswith("\n")
        except Exception as error:
            if not file.exists():  # what outlives a killed process tidies up
                continue
            raise AssertionError(f"{file} is half written") from error
