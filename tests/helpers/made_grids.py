"""Made-up grids: empty, of given counts, flat outside the trained square; problems to count."""

from pathlib import Path
from typing import Any

import numpy as np

from tape_arith.arith.grids.axes import Axes, ScoredAxis, digit_pairs, region_mask, shape
from tape_arith.arith.grids.facts import Budget, Evaluation
from tape_arith.arith.grids.grid import Grid

EVALUATION: dict[str, Any] = {
    "task": "addition",
    "version": 1,
    "seed": 0,
    "max_digits": 4,
    "problems_per_cell": 100,
    "sha256": "3f2a91bc" + "0" * 56,
}

BUDGET: dict[str, Any] = {
    "steps": 1500,
    "first_steps": 1500,
    "batch_size": 256,
    "config_sha256": "c" * 64,
}


def blank(size: int = 4, trained: int = 2, **more: Any) -> Grid:
    evaluation = Evaluation(**EVALUATION | {"max_digits": size} | more.pop("evaluation", {}))
    budget = Budget(**BUDGET | more.pop("budget", {}))
    axes = more.pop("axes", digit_pairs(trained, size))
    given = {"encoding": "tape", "preset": "mini", "seed": 0, **more}
    return Grid.empty(given.pop("encoding"), axes, budget=budget, evaluation=evaluation, **given)


def filled(exact: object, total: int = 100, **more: Any) -> Grid:
    counts = np.array(exact, dtype=np.int64)
    grid = blank(more.pop("size", len(counts)), **more)
    grid.exact[:], grid.total[:], grid.right_sum[:] = counts, total, counts
    grid.blocks_done = total
    return grid


def flat(
    encoding: str, seed: int = 0, *, inside: int = 100, outside: int = 20, **more: Any
) -> Grid:
    """Return a grid with `inside` and `outside` of 100 problems right in each cell."""
    trained = more.pop("trained", 4)
    exact = np.full([more.pop("size", 2 * trained)] * 2, outside)
    exact[:trained, :trained] = inside
    return filled(exact, encoding=encoding, seed=seed, trained=trained, **more)


LISTS = (
    ScoredAxis("numbers", "numbers", "operands", 2, 3, 5),
    ScoredAxis("digits", "digits", "digits", 1, 4, 8),
)
"""Axes of 4 x 8 lengths, the first from 2 on."""
DEPTHS = (
    ScoredAxis("depth of the key from the start", "depth", "places", 1, 5, 5),
    ScoredAxis("digits of haystack", "haystack", "digits", 1, 4, 8),
)
"""Axes of 5 places x 8 lengths."""
BITS = (ScoredAxis("bits", "bits", "digits", 1, 4, 8),)


def drawn(encoding: str, seed: int, axes: Axes, **more: Any) -> Grid:
    """Return a grid over `axes`, all right where trained and drawn at random elsewhere."""
    exact = np.random.default_rng([seed, *encoding.encode()]).integers(0, 101, shape(axes))
    exact[region_mask("in_distribution", axes)] = 100
    task = {LISTS: "sort", DEPTHS: "passkey:depths=5", BITS: "parity"}.get(axes, "addition")
    evaluation = {"task": task, **more.pop("evaluation", {})}
    given = {"size": 8, "axes": axes, "evaluation": evaluation, **more}
    return filled(exact, encoding=encoding, seed=seed, **given)


def interrupt(path: Path) -> None:
    """Leave a saved grid one block, as if its scoring had been interrupted."""
    grid = Grid.load(path)
    grid.blocks_done = grid.total[:] = 1
    for sums in (grid.exact, grid.right_sum):
        np.minimum(sums, 1, out=sums)
    grid.save(path)


def scored(count: int, size: int = 4, seed: int = 0) -> tuple[Any, ...]:
    """Return the four arrays of `add` for `count` problems."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, size + 1, (count, 2))
    tokens = lengths.max(axis=1) + draw.integers(1, 3, count)
    right = draw.integers(0, tokens + 1)
    return lengths, right, tokens, np.where(right == tokens, -1, draw.integers(0, tokens))
