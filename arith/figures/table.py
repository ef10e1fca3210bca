"""The comparison as a table: a row an encoding, for people, papers and programs."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.figures.tabular import booktabs, pipe_table
from tape_arith.arith.scoring.regions import REGION_WORDS, REGIONS, Region
from tape_arith.arith.scoring.statistics import Interval, over_seeds

HEAD = ["encoding", "seeds", *(f"{name}, %" for name in REGION_WORDS.values()), "converged"]
ALIGN = f"l{'r' * (len(HEAD) - 2)}l"
OVER_PROBLEMS = "(± over problems)"


@dataclass(frozen=True)
class Row:
    """What a table says of one encoding."""

    encoding: str
    seeds: tuple[int, ...]
    means: dict[Region, Interval | None]
    """None where cells of the region are missing, or none are in it."""
    mark: str | None
    """ "not converged", "not fully scored", or None."""
    values: dict[Region, tuple[float | None, ...]]
    """The mean of each seed, in the order of `seeds`."""

    @property
    def ranked(self) -> bool:
        """Whether it takes part in the order by its mean out of distribution."""
        return self.mark is None and self.means["out_of_distribution"] is not None


def rows(panels: Sequence[Panel], seed: int | None = None) -> list[Row]:
    """Best out of distribution first; what did not converge comes last, by name: never ranked.

    Errors: UsageError where the grids must not be compared.
    """
    return ranked(
        Row(
            grids[0].name,
            tuple(grid.seed for grid in grids),
            {region: over_seeds(grids, region) for region in REGIONS},
            captions.convergence(grids),
            {region: tuple(grid.mean(region).value for grid in grids) for region in REGIONS},
        )
        for grids in captions.chosen(panels, seed)
    )


def ranked(rows: Iterable[Row]) -> list[Row]:
    """Best out of distribution first, then by name what is not ranked."""

    def order(row: Row) -> tuple[bool, float, str]:
        outside = row.means["out_of_distribution"]
        return not row.ranked, -outside.mean if row.ranked and outside else 0.0, row.encoding

    return sorted(rows, key=order)


def percent(mean: Interval | None) -> str:
    """ "18.2 ± 3.1": mean ± half-width of the 95 % interval, in percent; "-" for neither."""
    return captions.percent(mean).removesuffix(" %") if mean else "-"


def seeds(row: Row) -> str:
    """How many, and what the ± of a single one covers."""
    return str(len(row.seeds)) if len(row.seeds) > 1 else f"1 {OVER_PROBLEMS}"


def to_markdown(rows: Sequence[Row]) -> str:
    """A pipe table: mean ± half-width of the 95 % interval, in percent."""
    return pipe_table(HEAD, ALIGN, [_cells(row) for row in rows])


def to_latex(rows: Sequence[Row]) -> str:
    """The same as `to_markdown`, for LaTeX with the package booktabs."""
    return booktabs(HEAD, ALIGN, [("", [_cells(row) for row in rows])])


def _cells(row: Row) -> list[str]:
    return [row.encoding, seeds(row), *map(percent, row.means.values()), row.mark or "yes"]


def to_csv(rows: Sequence[Row]) -> str:
    """The same numbers as fractions in 0..1; `_low` and `_high` are the interval clipped to that.

    `interval` says what the ends cover: "seeds" (Student t) or "this run only" (problems).
    """
    return csv_text([flat(row) for row in rows])


def flat(row: Row) -> dict[str, str]:
    """A row's facts by the names of CSV's columns."""
    facts = {
        "encoding": row.encoding,
        "seeds": " ".join(map(str, row.seeds)),
        "converged": row.mark or "yes",
        "interval": "seeds" if len(row.seeds) > 1 else "this run only",
    }
    for region, mean in row.means.items():
        for part in ("mean", "half_width", "low", "high"):
            column = region if part == "mean" else f"{region}_{part}"
            facts[column] = f"{getattr(mean, part):.6f}" if mean else ""
    return facts


def csv_text(lines: Sequence[Mapping[str, str]]) -> str:
    """CSV with the names of the first line's columns as its head."""
    text = io.StringIO()
    out = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    out.writeheader()
    out.writerows(lines)
    return text.getvalue()


def to_json(rows: Sequence[Row]) -> str:
    """The same as `to_csv`, for programs: keys are stable, `schema` counts their changes."""
    return json.dumps({"schema": 2, "rows": [content(row) for row in rows]}, indent=1) + "\n"


def content(row: Row) -> dict[str, Any]:
    """A row as plain Python, with stable keys."""
    return {
        "encoding": row.encoding,
        "seeds": row.seeds,
        "converged": row.mark is None,
        "mark": row.mark,
        "means": {name: asdict(mean) if mean else None for name, mean in row.means.items()},
        "values": row.values,
    }


FORMATS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex, "json": to_json}
