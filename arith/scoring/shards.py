"""A grid in parts: scored apart, by several jobs, and added up. Its counts come out the same as in
one go, since every part is cut where a whole scoring saves. No torch here."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.grid import Grid

# Rows between two savings of a grid.
ROWS_A_CHUNK = 16_384


def blocks_a_chunk(grid: Grid) -> int:
    """Blocks between two savings: one block is a problem of every cell."""
    return max(1, ROWS_A_CHUNK // grid.total.size)


class Shard(NamedTuple):
    """Part `number` (1-based) `of` so many. As text "2/4", in a path "2-of-4"."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the command line. Errors: UsageError.

        >>> Shard.parse("2/4")
        Shard(number=2, of=4)
        """
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"a part reads i/n, as in 1/4 to 4/4, not '{text}'")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def slug(self) -> str:
        return f"{self.number}-of-{self.of}"

    def blocks(self, grid: Grid) -> range:
        """Its share of the blocks of `grid`, which all cost the same. They are cut where the whole
        grid is saved: what is computed together there is computed together here, to the last bit.
        """
        count, unit = grid.evaluation["problems_per_cell"], blocks_a_chunk(grid)
        chunks = -(-count // unit)
        first, last = (part * chunks // self.of * unit for part in (self.number - 1, self.number))
        return range(min(first, count), min(last, count))

    def complete(self, grid: Grid) -> bool:
        """Whether `grid` holds all of this part."""
        return grid.blocks_done == len(self.blocks(grid))


def added(shards: Sequence[Grid]) -> Grid:
    """The grid that all `shards` of one run make together.

    Errors: UsageError where they are of different runs, or are not the whole of it.
    """
    first = shards[0]
    whole = Grid.empty(
        first.encoding,
        extrapolation=first.extrapolation,
        preset=first.preset,
        seed=first.seed,
        trained_digits=first.trained_digits,
        budget=first.budget,
        evaluation=first.evaluation,
        settings=first.settings,
        scoring=first.scoring,
    )
    for shard in shards:
        whole.merge(shard)
    if not whole.complete:
        raise UsageError(
            f"the parts hold {whole.blocks_done} of {whole.evaluation['problems_per_cell']} "
            "problems a cell: score what is missing first"
        )
    scored = [shard.scoring for shard in shards if shard.blocks_done]
    if not all({"dtype", "threshold"} <= scoring.keys() for scoring in scored):
        raise UsageError("a part does not say how it was scored: score it again")
    whole.scoring = all_of(scored)
    return whole


def all_of(scorings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How a grid was scored that was scored in several ways, one after another or apart: the
    largest threshold, and of what else is said every value.

    >>> all_of([{"dtype": "bfloat16", "threshold": 0.1}, {"dtype": "float32", "threshold": 0.0}])
    {'dtype': 'bfloat16, float32', 'threshold': 0.1}
    """
    keys = dict.fromkeys(key for scoring in scorings for key in scoring)
    found: dict[str, Any] = {}
    for key in keys:
        values = [scoring[key] for scoring in scorings if key in scoring]
        if key == "threshold":
            found[key] = max(values)
        else:  # each may be of several already
            said = (value for text in values for value in text.split(", "))
            found[key] = ", ".join(dict.fromkeys(said))
    return found
