"""Which grids may stand in one figure, and which are of one run: what differs, in words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tape_arith.arith.errors import UsageError

if TYPE_CHECKING:  # a grid asks here whether another is of its run
    from tape_arith.arith.scoring.grid import Grid

_FIGURE = ("preset", "trained_digits", "split", "evaluation", "budget")
RUN = ("encoding", "extrapolation", "seed", *_FIGURE)
"""In what grids of one run are equal."""


def check_comparable(grids: Sequence["Grid"]) -> None:
    """Raise UsageError, saying what differs, if `grids` must not stand in one figure."""
    for grid in grids[1:]:
        differs = difference(grids[0], grid, _FIGURE)
        if differs:
            raise UsageError(
                f"one figure needs one preset, budget and evaluation set: {differs}; "
                "draw them apart, or train and score them alike"
            )


def difference(one: "Grid", other: "Grid", fields: Sequence[str]) -> str | None:
    """The first difference between two grids in words, or None."""
    for key in fields:
        mine, yours = getattr(one, key), getattr(other, key)
        if mine == yours:
            continue
        if isinstance(mine, dict) and isinstance(yours, dict):
            inner = _first_that_differs(mine, yours)
            if inner == "config_sha256" and one.settings != other.settings:  # a hash tells nobody
                key, mine, yours = "setting", one.settings, other.settings
                inner = _first_that_differs(mine, yours)
            key = f"{key} {inner}"
            mine, yours = (of.get(inner, _usual(inner, key)) for of in (mine, yours))
        return (
            f"{key} is {mine} for {one.name} (seed {one.seed}) "
            f"but {yours} for {other.name} (seed {other.seed})"
        )
    return None


def _first_that_differs(one: dict[str, Any], other: dict[str, Any]) -> str:
    return next(
        key
        for key in [*one, *other]
        if key not in one or key not in other or one[key] != other[key]
    )


def _usual(inner: str, key: str) -> str:
    """What stands where nothing is said."""
    return "the preset's" if key == f"setting {inner}" else "nothing"
