"""Leaderboards made up for a test of how they are drawn."""

from collections.abc import Sequence

from tape_arith.arith.figures.leaderboard_data import Board, Comparison, Section, Standing
from tape_arith.arith.figures.tables import Row
from tape_arith.arith.scoring.regions import REGIONS
from tape_arith.arith.scoring.statistics import Interval, student_t


def standing(
    name: str,
    values: Sequence[float],
    *,
    rank: int | None = 1,
    inside: float = 0.996,
    mark: str | None = None,
) -> Standing:
    """An encoding whose seeds have `values` out of distribution, and 0..1 of nothing else."""
    mean = student_t(values) or Interval(
        values[0], values[0] - 0.01, values[0] + 0.01, 0.01, "this run only", 100
    )
    means: dict[str, Interval | None] = dict.fromkeys(REGIONS, mean)
    means["in_distribution"] = Interval(inside, inside, inside, 0.0, "seeds", len(values))
    row = Row(
        name,
        tuple(range(len(values))),
        means,  # type: ignore[arg-type]
        mark,
        dict.fromkeys(REGIONS, tuple(values)),
    )
    none = Comparison(None, None, "nothing to test")
    return Standing(
        row,
        rank if mark is None else None,
        "rotary",
        {0.9: 8, 0.99: 8},
        {"rope": none, "tape": none},
        [None] * len(values),
        [60.0] * len(values),
    )


def board(*sections: Section, left_out: Sequence[tuple[str, str]] = ()) -> Board:
    source = (
        "Task addition, trained to 8 digits and tested to 16 (preset mini with "
        "num_problems=640,000, batch_size=512), 100 problems a cell, evaluation set 3f2a91bc, "
        "seeds 0, 1, 2."
    )
    about = {"trained_digits": 8, "max_digits": 16}
    references = ("rope", "tape")
    return Board("mini", about, source, source, sections, references, left_out, costs=False)
