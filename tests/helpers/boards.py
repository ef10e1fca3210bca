"""Leaderboards made up for a test of how they are drawn."""

from collections.abc import Sequence

from tape_arith.arith.figures.board import Board, Section
from tape_arith.arith.figures.tables import Comparison, Row
from tape_arith.arith.scoring.grid import REGIONS
from tape_arith.arith.scoring.statistics import Interval, student_t

_SOURCE = (
    "Task addition, trained to 8 digits and tested to 16 (preset mini with num_problems=640,000, "
    "batch_size=512), 100 problems a cell, evaluation set 3f2a91bc, seeds 0, 1, 2."
)


def row(
    name: str, values: Sequence[float], *, inside: float = 0.996, mark: str | None = None
) -> Row:
    """Return an encoding whose seeds have `values` out of distribution."""
    mean = student_t(values) or Interval(
        values[0], values[0] - 0.01, values[0] + 0.01, 0.01, "this run only", 100
    )
    means: dict[str, Interval | None] = dict.fromkeys(REGIONS, mean)
    means["in_distribution"] = Interval(inside, inside, inside, 0.0, "seeds", len(values))
    return Row(
        name,
        tuple(range(len(values))),
        means,  # type: ignore[arg-type]
        mark,
        dict.fromkeys(REGIONS, tuple(values)),
        {0.9: 8, 0.99: 8},
        1 if mark is None else None,
        "rotary",
        dict.fromkeys(("rope", "tape"), Comparison(why_not="nothing to test")),
        train_seconds=[60.0] * len(values),
    )


def board(*sections: Section, left_out: Sequence[tuple[str, str]] = ()) -> Board:
    """Return a leaderboard of `sections`."""
    about = {"trained_digits": 8, "max_digits": 16}
    return Board("mini", about, _SOURCE, _SOURCE, sections, ("rope", "tape"), left_out)
