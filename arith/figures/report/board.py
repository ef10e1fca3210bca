"""The leaderboard's section of the page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from tape_arith.arith.figures.leaderboard_data import Board, Standing
from tape_arith.arith.figures.leaderboard_table import columns
from tape_arith.arith.figures.report.content import Report
from tape_arith.arith.figures.report.markup import Markup, element, escaped, joined, named, scrolled
from tape_arith.arith.figures.table import Row
from tape_arith.arith.scoring.grid import SOLVED
from tape_arith.arith.scoring.regions import REGION_WORDS, Region

STRIP = 96.0
"""Width of the strip that shows seeds as points."""


def grouped(report: Report) -> Iterator[tuple[Markup, list[tuple[int, Standing]]]]:
    """Each section's title, and its standings with their encodings' numbers in the page."""
    place = 0
    for section in report.sections:
        why = element("small", f": {section.why}") if section.why else None
        yield joined([escaped(section.title), why]), list(enumerate(section.standings, place))
        place += len(section.standings)


def leaderboard(report: Report) -> Markup:
    """The leaderboard, each row led by its encoding; its head has buttons that sort, within each
    section, once the script runs. What the other forms of it say in words is said in the same."""
    bound, values = reach(report), sort_values(report.board)
    every = columns(report.board)
    assert values.keys() <= {column.head for column in every}
    wanted = values.keys() - set(unknown_columns(report))
    shown = [column for column in every if column.head in wanted]
    outside = f"{REGION_WORDS['out_of_distribution']}, %"
    head = [_head("encoding", "text"), _head("seeds", "number")]
    for column in shown:
        head.append(_head(column.head, "number"))
        if column.head == outside:
            head.append(element("th", f"0 to {100 * bound:.0f} %", scope="col"))

    def line(standing: Standing, place: int) -> Markup:
        row = standing.row
        alone = element("sup", "†") if len(row.seeds) == 1 else None
        cells = [
            _name(standing, place),
            element("td", len(row.seeds), alone, class_="number", data_value=len(row.seeds)),
        ]
        for column in shown:
            value = values[column.head](standing)
            text, known = column.cell(standing), "" if value is None else repr(value)
            cells.append(element("td", text, class_="number", data_value=known))
            if column.head == outside:
                cells.append(element("td", strip(row, bound)))
        return element("tr", *cells)

    bodies = []
    for title, members in grouped(report):
        above = element("tr", element("th", title, scope="rowgroup", colspan=len(head)))
        lines = (line(standing, place) for place, standing in members)
        bodies.append(element("tbody", above, *lines))
    caption = element(
        "caption",
        "Exact match in percent: mean over the cells of a region, which weigh the same, ± its 95 % "
        "interval.",
    )
    table = element("table", caption, element("thead", element("tr", *head)), *bodies, id="board")
    return scrolled(table, "Leaderboard")


def _head(name: str, kind: str) -> Markup:
    number = "number" if kind == "number" else None
    return element("th", name, scope="col", class_=number, data_sort=kind)


def _name(standing: Standing, place: int) -> Markup:
    row = standing.row
    rank = element("span", f"{standing.rank}.", class_="rank") if standing.rank else None
    mark = element("small", f" {row.mark}", class_="mark") if row.mark else None
    name = element("a", named(row.encoding), href=f"#map-{place}")
    return element("th", rank, name, mark, scope="row", data_value=row.encoding)


def sort_values(board: Board) -> dict[str, Callable[[Standing], float | None]]:
    """By the head of each column of numbers: what it is sorted by, None where there is nothing."""
    found: dict[str, Callable[[Standing], float | None]] = {}
    for region, name in REGION_WORDS.items():
        found[f"{name}, %"] = partial(_mean, region)
    for share in SOLVED:
        found[f"solved to, {share * 100:g} %"] = partial(_solved, share)
    for reference in board.references:
        found[f"vs {reference}"] = partial(_test, reference)
    found["last states"] = lambda standing: standing.range
    found["training"] = _seconds
    if board.costs:
        found["parameters"] = lambda standing: standing.parameters
        found["FLOPs a token"] = lambda standing: standing.flops_a_token
        found["loss"] = partial(_of_trainings, "loss")
        found["tokens/s"] = partial(_of_trainings, "tokens_per_second")
        found["MFU, %"] = partial(_of_trainings, "mfu")
    return found


def unknown_columns(report: Report) -> list[str]:
    """The heads of columns in which no encoding that is shown has anything."""
    standings = [standing for section in report.sections for standing in section.standings]
    values = sort_values(report.board)
    return [head for head, value in values.items() if all(value(s) is None for s in standings)]


def _mean(region: Region, standing: Standing) -> float | None:
    interval = standing.row.means[region]
    return interval.mean if interval else None


def _solved(share: float, standing: Standing) -> float | None:
    return standing.solved[share]


def _test(reference: str, standing: Standing) -> float | None:
    return standing.tests[reference].holm


def _seconds(standing: Standing) -> float | None:
    return _median(standing.train_seconds)


def _of_trainings(name: str, standing: Standing) -> float | None:
    return _median([getattr(training, name) for training in standing.trainings])


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def reach(report: Report) -> float:
    """Up to where the leaderboard's strips go: all points and intervals are within."""
    rows = [standing.row for section in report.sections for standing in section.standings]
    ends = [value or 0.0 for row in rows for value in row.values["out_of_distribution"]]
    ends += [mean.high for row in rows if (mean := row.means["out_of_distribution"])]
    return next(bound for bound in (0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if max(ends) <= bound)


def notes(report: Report) -> Markup:
    """What a reader of the leaderboard must know: its own notes, but for what stands elsewhere."""
    told = replace(report.board, left_out=()).notes[1:]
    shown, of = len(report.panels), len(report.board.standings)
    if shown < of:
        told.append(f"{shown} of the {of} encodings are shown; ranks and tests are of all {of}.")
    unknown = unknown_columns(report)
    if unknown:
        told.append(f"Not known of any run here, so without a column: {', '.join(unknown)}.")
    return joined(element("p", note) for note in told)


def strip(row: Row, bound: float) -> Markup:
    """Out of distribution from 0 to `bound`: a point a seed, a line for the interval."""
    interval = row.means["out_of_distribution"]
    values = row.values["out_of_distribution"]
    said = ", ".join(
        f"seed {seed}: {'missing' if value is None else f'{100 * value:.1f} %'}"
        for seed, value in zip(row.seeds, values, strict=True)
    )

    def x(share: float) -> str:
        return f"{3 + STRIP * share / bound:.2f}"

    shapes = [element("line", x1=x(0), x2=x(bound), y1=8, y2=8, class_="ground")]
    if interval:
        ends = {"x1": x(interval.low), "x2": x(interval.high)}
        shapes.append(element("line", **ends, y1=8, y2=8, class_="interval"))
    shapes += [element("circle", cx=x(value), cy=8, r=2.6) for value in values if value is not None]
    size = {"viewBox": f"0 0 {STRIP + 6:.0f} 16", "width": f"{STRIP + 6:.0f}", "height": 16}
    return element("svg", *shapes, class_="strip", role="img", aria_label=said, **size)
