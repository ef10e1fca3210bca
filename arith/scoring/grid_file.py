"""The file of a grid: JSON, and a reader that believes nothing it has not checked."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from arith.errors import Failure
from arith.files import read_json, write_text
from arith.scoring.grid import MOST_PER_CELL, SHARE_UNIT, Floats, Grid, Ints

_CELLS = ("exact", "total", "right_share", "first_wrong")
_KEYS = {
    *("schema", "kind", "encoding", "extrapolation", "preset", "seed", "trained_digits"),
    *("budget", "evaluation", "scoring", "blocks_done", *_CELLS),
}
_SETTINGS = "settings"
"""There only where the preset was changed."""


def save(grid: Grid, path: Path) -> None:
    """Write `grid`, a row of cells a line. Errors: Failure where the disk refuses."""
    entries = []
    for key, value in grid.content().items():
        text = json.dumps(value, allow_nan=False)
        if key in _CELLS:
            text = "[\n  " + ",\n  ".join(json.dumps(row) for row in value) + "\n ]"
        entries.append(f'"{key}": {text}')
    write_text(path, "{\n " + ",\n ".join(entries) + "\n}\n")


def load(path: Path) -> Grid:
    """Read what `save` wrote. Errors: Failure, naming the file and what is wrong in it."""
    try:
        return _checked(read_json(path, "grid"))
    except _Corrupt as error:
        raise Failure(f"{path} is corrupt: {error}; score the run again") from error


class _Corrupt(Exception):
    """What is wrong in a file; `load` adds the file's name."""


def _checked(content: dict[str, Any]) -> Grid:
    odd = sorted((content.keys() - {_SETTINGS}) ^ _KEYS)
    if odd:
        raise _Corrupt(f"{odd[0]!r} is {'unknown' if odd[0] in content else 'missing'}")
    text, whole = {}, {}
    for key in ("encoding", "preset"):
        text[key] = _text(content[key], key)
    for key in ("seed", "blocks_done"):
        whole[key] = _integer(content[key], key, 0)
    extrapolation = content["extrapolation"]
    if extrapolation is not None:
        extrapolation = _text(extrapolation, "extrapolation")
    budget, evaluation, scoring = (
        _object(content[key], key) for key in ("budget", "evaluation", "scoring")
    )
    for key in ("task", "sha256"):
        _text(evaluation.get(key), f"evaluation.{key}")
    if "split" in evaluation:
        _text(evaluation["split"], "evaluation.split")
    for key in ("version", "seed"):
        _integer(evaluation.get(key), f"evaluation.{key}", 0)
    size = _integer(evaluation.get("max_digits"), "evaluation.max_digits", 1)
    per_cell = _integer(
        evaluation.get("problems_per_cell"), "evaluation.problems_per_cell", 1, MOST_PER_CELL
    )
    trained = _integer(content["trained_digits"], "trained_digits", 1, size)

    settings = _object(content.get(_SETTINGS, {}), _SETTINGS)
    for key, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise _Corrupt(f"'{_SETTINGS}.{key}' must be a number or text")

    total = np.array(_rows(content["total"], "total", size, per_cell), dtype=np.int64)
    exact = np.array(_rows(content["exact"], "exact", size, per_cell), dtype=np.int64)
    if total.min() < whole["blocks_done"]:  # a block holds a problem of every cell
        raise _Corrupt("'total' disagrees with 'blocks_done'")
    if (exact > total).any():
        raise _Corrupt("more exact answers than problems in a cell")
    share = _means(content["right_share"], "right_share", total, 1.0)
    place = _means(content["first_wrong"], "first_wrong", total - exact, float(MOST_PER_CELL))
    # Sums are multiples of a known unit, so means give them back to the last bit.
    right_sum = np.rint(share * total / SHARE_UNIT) * SHARE_UNIT
    if (right_sum < exact).any() or (right_sum > total).any():
        raise _Corrupt("'right_share' disagrees with 'exact'")
    return Grid(
        text["encoding"],
        extrapolation,
        text["preset"],
        whole["seed"],
        trained,
        budget,
        evaluation,
        exact=exact,
        total=total,
        right_sum=right_sum,
        first_wrong_sum=np.rint(place * (total - exact)).astype(np.int64),
        blocks_done=whole["blocks_done"],
        scoring=scoring,
        settings=settings,
    )


def _integer(value: object, name: str, low: int, high: int = 2**63 - 1) -> int:
    # type() and not isinstance(): true is no number of problems.
    if type(value) is not int or not low <= value <= high:
        raise _Corrupt(f"{name!r} must be an integer from {low} to {high}")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise _Corrupt(f"{name!r} must be text")
    return value


def _object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Corrupt(f"{name!r} must be an object")
    try:
        json.dumps(value, allow_nan=False)  # Python's parser lets NaN and Infinity pass
    except ValueError as error:
        raise _Corrupt(f"{name!r} holds a number that is not finite") from error
    return value


def _square(value: object, name: str, size: int) -> list[list[object]]:
    if (
        not isinstance(value, list)
        or len(value) != size
        or not all(isinstance(row, list) and len(row) == size for row in value)
    ):
        raise _Corrupt(f"{name!r} must be {size} rows of {size}, as 'evaluation.max_digits' says")
    return value


def _rows(value: object, name: str, size: int, high: int) -> list[list[int]]:
    return [[_integer(cell, name, 0, high) for cell in row] for row in _square(value, name, size)]


def _means(value: object, name: str, counts: Ints, high: float) -> Floats:
    """float64[N, N] of the means in a file, 0 where `counts` is 0 and the file says null."""
    result = np.zeros(counts.shape)
    for i, row in enumerate(_square(value, name, len(counts))):
        for j, cell in enumerate(row):
            if counts[i, j] == 0:
                if cell is not None:
                    raise _Corrupt(f"{name!r} has a mean over nothing")
            elif isinstance(cell, bool) or not isinstance(cell, int | float):
                raise _Corrupt(f"{name!r} must be numbers where something was counted")
            elif not 0 <= cell <= high:  # nan too
                raise _Corrupt(f"{name!r} must lie between 0 and {high:g}")
            else:
                result[i, j] = cell
    return result
