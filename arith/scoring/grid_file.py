"""The file of a grid: JSON, and a reader that believes nothing it has not checked."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from arith.checking import Wrong, digest, known_keys, mapping, number, text, whole
from arith.errors import Corrupt
from arith.files import read_json, write_text
from arith.schemas import sealed
from arith.scoring.grid import SHARE_UNIT, Floats, Grid, Ints
from arith.scoring.sizes import MOST_PER_CELL

_CELLS = ("exact", "total", "right_share", "first_wrong")
_KEYS = {
    *("schema", "kind", "encoding", "extrapolation", "preset", "seed", "trained_digits"),
    *("budget", "evaluation", "scoring", "blocks_done", *_CELLS),
}
_PRESET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@-]*")
_SETTINGS, _PART = "settings", "part"
"""There only where the preset was changed, and where it is not the whole of a grid."""
REMEDY = "put back a copy that is whole, or score the run again with --fresh"


def save(grid: Grid, path: Path) -> None:
    """Write `grid`, a row of cells a line. Errors: Failure where the disk refuses."""
    entries = []
    for key, value in sealed(grid.content(), "grid").items():
        entry = json.dumps(value, allow_nan=False)
        if key in _CELLS:
            entry = "[\n  " + ",\n  ".join(json.dumps(row) for row in value) + "\n ]"
        entries.append(f'"{key}": {entry}')
    write_text(path, "{\n " + ",\n ".join(entries) + "\n}\n")


def load(path: Path) -> Grid:
    """Read what `save` wrote. Errors: Failure, naming the file and what is wrong in it; Corrupt,
    with what to do, where it is damaged."""
    try:
        return _checked(read_json(path, "grid"))
    except Corrupt as error:
        raise Corrupt(f"{error}; {REMEDY}") from error
    except Wrong as error:
        raise Corrupt(f"{path} is corrupt: {error}; {REMEDY}") from error


def _checked(content: dict[str, Any]) -> Grid:
    known_keys(content, _KEYS, frozenset({_SETTINGS, _PART}))
    encoding, preset = text(content["encoding"], "encoding"), text(content["preset"], "preset")
    if not _PRESET.fullmatch(preset):  # it names a folder
        raise Wrong(f"'preset' must be the name of a preset, not {preset[:40]!r}")
    seed, blocks_done = whole(content["seed"], "seed"), whole(content["blocks_done"], "blocks_done")
    extrapolation = content["extrapolation"]
    if extrapolation is not None:
        extrapolation = text(extrapolation, "extrapolation")
    budget, evaluation, scoring = (
        mapping(content[key], key) for key in ("budget", "evaluation", "scoring")
    )
    text(evaluation.get("task"), "evaluation.task")
    digest(evaluation.get("sha256"), "evaluation.sha256")
    if "split" in evaluation:
        text(evaluation["split"], "evaluation.split")
    for key in ("version", "seed"):
        whole(evaluation.get(key), f"evaluation.{key}", 0)
    size = whole(evaluation.get("max_digits"), "evaluation.max_digits", 1)
    per_cell = whole(
        evaluation.get("problems_per_cell"), "evaluation.problems_per_cell", 1, MOST_PER_CELL
    )
    trained = whole(content["trained_digits"], "trained_digits", 1, size)
    if "config_sha256" in budget:
        digest(budget["config_sha256"], "budget.config_sha256")
    for key, value in scoring.items():
        if key == "threshold":
            number(value, "scoring.threshold", 0)
        else:
            text(value, f"scoring.{key}")

    settings = mapping(content.get(_SETTINGS, {}), _SETTINGS)
    for key, value in settings.items():
        text(key, _SETTINGS)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise Wrong(f"'{_SETTINGS}.{key}' must be a number or text")
        if isinstance(value, str):
            text(value, f"{_SETTINGS}.{key}")

    total = np.array(_rows(content["total"], "total", size, per_cell), dtype=np.int64)
    exact = np.array(_rows(content["exact"], "exact", size, per_cell), dtype=np.int64)
    if total.min() < blocks_done:  # a block holds a problem of every cell
        raise Wrong("'total' disagrees with 'blocks_done'")
    if (exact > total).any():
        raise Wrong("more exact answers than problems in a cell")
    share = _means(content["right_share"], "right_share", total, 1.0)
    place = _means(content["first_wrong"], "first_wrong", total - exact, float(MOST_PER_CELL))
    # Sums are multiples of a known unit, so means give them back to the last bit.
    right_sum = np.rint(share * total / SHARE_UNIT) * SHARE_UNIT
    if (right_sum < exact).any() or (right_sum > total).any():
        raise Wrong("'right_share' disagrees with 'exact'")
    return Grid(
        encoding,
        extrapolation,
        preset,
        seed,
        trained,
        budget,
        evaluation,
        exact=exact,
        total=total,
        right_sum=right_sum,
        first_wrong_sum=np.rint(place * (total - exact)).astype(np.int64),
        blocks_done=blocks_done,
        scoring=scoring,
        settings=settings,
        part=text(content[_PART], _PART) if _PART in content else "",
    )


def _square(value: object, name: str, size: int) -> list[list[object]]:
    if (
        not isinstance(value, list)
        or len(value) != size
        or not all(isinstance(row, list) and len(row) == size for row in value)
    ):
        raise Wrong(f"{name!r} must be {size} rows of {size}, as 'evaluation.max_digits' says")
    return value


def _rows(value: object, name: str, size: int, high: int) -> list[list[int]]:
    return [[whole(cell, name, 0, high) for cell in row] for row in _square(value, name, size)]


def _means(value: object, name: str, counts: Ints, high: float) -> Floats:
    """float64[N, N] of the means in a file, 0 where `counts` is 0 and the file says null."""
    result = np.zeros(counts.shape)
    for i, row in enumerate(_square(value, name, len(counts))):
        for j, cell in enumerate(row):
            if counts[i, j] == 0:
                if cell is not None:
                    raise Wrong(f"{name!r} has a mean over nothing")
            elif isinstance(cell, bool) or not isinstance(cell, int | float):
                raise Wrong(f"{name!r} must be numbers where something was counted")
            elif not 0 <= cell <= high:  # nan too
                raise Wrong(f"{name!r} must lie between 0 and {high:g}")
            else:
                result[i, j] = cell
    return result
