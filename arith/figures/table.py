"""The comparison as a table: a row an encoding, in Markdown for people and CSV for programs."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from arith.figures import captions
from arith.figures.captions import Panel
from arith.scoring.grid import Region
from arith.scoring.statistics import Interval, over_seeds

COLUMNS: dict[Region, str] = {
    "trained": "in distribution",
    "out_of_distribution": "out of distribution",
    "one_longer": "one longer",
    "both_longer": "both longer",
    "all": "all cells",
}


@dataclass(frozen=True)
class Row:
    """What a table says of one encoding."""

    encoding: str
    seeds: tuple[int, ...]
    means: dict[Region, Interval | None]
    """None where cells of the region are missing, or none are in it."""
    mark: str | None
    """ "not converged", "not fully scored", or None."""


def rows(panels: Sequence[Panel], seed: int | None = None) -> list[Row]:
    """Best out of distribution first; what did not converge comes last, by name: never ranked.

    Errors: UsageError where the grids must not be compared.
    """
    result = [
        Row(
            grids[0].name,
            tuple(grid.seed for grid in grids),
            {region: over_seeds(grids, region) for region in COLUMNS},
            captions.convergence(grids),
        )
        for grids in captions.chosen(panels, seed)
    ]

    def order(row: Row) -> tuple[bool, float, str]:
        outside = row.means["out_of_distribution"]
        ranked = row.mark is None and outside is not None
        return not ranked, -outside.mean if ranked and outside else 0.0, row.encoding

    return sorted(result, key=order)


def to_markdown(rows: Sequence[Row]) -> str:
    """A pipe table: mean ± half-width of the 95 % interval, in percent."""
    head = ["encoding", "seeds", *(f"{name}, %" for name in COLUMNS.values()), "converged"]
    lines = [head, ["---", *["---:"] * (len(head) - 2), "---"]]
    for row in rows:
        means = [
            captions.percent(mean).removesuffix(" %") if mean else "-"
            for mean in row.means.values()
        ]
        seeds = str(len(row.seeds)) if len(row.seeds) > 1 else "1 (± over problems)"
        lines.append([row.encoding, seeds, *means, row.mark or "yes"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_csv(rows: Sequence[Row]) -> str:
    """The same numbers as fractions in 0..1; `_low` and `_high` are the interval clipped to that.

    `interval` says what the ends cover: "seeds" (Student t) or "this run only" (problems).
    """
    parts = ("", "_half_width", "_low", "_high")
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    head = [name.replace(" ", "_") + part for name in COLUMNS.values() for part in parts]
    out.writerow(["encoding", "seeds", "converged", "interval", *head])
    for row in rows:
        numbers: list[str] = []
        for mean in row.means.values():
            values = (mean.mean, mean.half_width, mean.low, mean.high) if mean else ()
            numbers += [f"{value:.6f}" for value in values] or [""] * len(parts)
        kind = "seeds" if len(row.seeds) > 1 else "this run only"
        seeds = " ".join(map(str, row.seeds))
        out.writerow([row.encoding, seeds, row.mark or "yes", kind, *numbers])
    return text.getvalue()


def to_json(rows: Sequence[Row]) -> str:
    """The same as `to_csv`, for programs: keys are stable, `schema` counts their changes."""
    content = [
        {
            "encoding": row.encoding,
            "seeds": row.seeds,
            "converged": row.mark is None,
            "mark": row.mark,
            "means": {name: asdict(mean) if mean else None for name, mean in row.means.items()},
        }
        for row in rows
    ]
    return json.dumps({"schema": 1, "rows": content}, indent=1) + "\n"


FORMATS = {"markdown": to_markdown, "csv": to_csv, "json": to_json}
