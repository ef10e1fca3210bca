"""The page's sections in HTML: all that can be read without its script, and room for the rest."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from arith.figures import captions
from arith.figures.captions import Panel
from arith.figures.panel import ticks
from arith.figures.report.content import MEAN, Report, Run
from arith.figures.report.markup import Markup, element, escaped, joined
from arith.figures.standings import Board, Standing
from arith.figures.standings_text import columns
from arith.figures.table import COLUMNS, Row
from arith.scoring.grid import Region
from arith.scoring.reach import SOLVED

LEFT, BOTTOM, SIDE = 15.0, 15.0, 84.0
"""Where the cells of a map lie in its square of 100 x 100; style.css says the same of canvas."""
STRIP = 96.0
"""Width of the strip that shows seeds as points."""
HASH = 12
"""So much of a hash tells two runs apart; the whole of it is in the list of facts."""


def grouped(report: Report) -> Iterator[tuple[Markup, list[tuple[int, Standing]]]]:
    """Each section's title, and its standings with their encodings' numbers in the page."""
    place = 0
    for section in report.sections:
        why = element("small", f": {section.why}") if section.why else None
        yield joined([escaped(section.title), why]), list(enumerate(section.standings, place))
        place += len(section.standings)


def summary(report: Report) -> Markup:
    """What is compared, in a list of terms."""
    first = report.ordered[0][0]
    evaluation = first.evaluation
    seeds = {len(panel) for panel in report.panels}
    many = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"{max(seeds)}"
    parameters = {
        "Preset": first.preset,
        "Task": f"{evaluation['task']}, version {evaluation['version']}",
        "Trained to": f"{first.trained_digits} digits",
        "Tested to": f"{first.max_digits} digits",
        "Encodings": len(report.panels),
        "Seeds an encoding": many,
        "Problems a cell": f"{evaluation['problems_per_cell']:,}",
        "Evaluation set": element("code", evaluation["sha256"][:HASH]),
    }
    terms = (
        element("div", element("dt", term), element("dd", value))
        for term, value in parameters.items()
    )
    return element("dl", *terms, class_="facts")


def leaderboard(report: Report) -> Markup:
    """The leaderboard, each row led by its encoding; its head has buttons that sort, within each
    section, once the script runs. What the other forms of it say in words is said in the same."""
    bound, values = reach(report), sort_values(report.board)
    every = columns(report.board)
    assert values.keys() <= {column.head for column in every}
    wanted = values.keys() - set(unknown_columns(report))
    shown = [column for column in every if column.head in wanted]
    outside = f"{COLUMNS['out_of_distribution']}, %"
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
    name = element("a", row.encoding, href=f"#map-{place}")
    return element("th", rank, name, mark, scope="row", data_value=row.encoding)


def sort_values(board: Board) -> dict[str, Callable[[Standing], float | None]]:
    """By the head of each column of numbers: what it is sorted by, None where there is nothing."""
    found: dict[str, Callable[[Standing], float | None]] = {}
    for region, name in COLUMNS.items():
        found[f"{name}, %"] = partial(_mean, region)
    for share in SOLVED:
        found[f"solved to, {share * 100:g} %"] = partial(_solved, share)
    for reference in board.references:
        found[f"vs {reference}"] = partial(_test, reference)
    found["last states"] = lambda standing: standing.range
    found["training"] = _seconds
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
    known = [seconds for seconds in standing.train_seconds if seconds is not None]
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


def maps(report: Report) -> Markup:
    """A square for each encoding, in the leaderboard's order and groups."""
    ordered = report.ordered
    parts: list[Markup] = []
    for title, members in grouped(report):
        parts.append(element("h3", title))
        figures = (_map(ordered[place], place) for place, _ in members)
        parts.append(element("div", *figures, class_="maps"))
    return joined(parts)


def _map(panel: Panel, place: int) -> Markup:
    first = panel[0]
    lines = [captions.mean_line(panel, region) for region in captions.MEANS]
    mark = captions.convergence(panel)
    said = [element("span", line) for line in lines]
    last = element(
        "span",
        captions.seeds_line(panel),
        " · " if mark else None,
        element("b", mark) if mark else None,
    )
    return element(
        "figure",
        element("figcaption", element("h4", first.name), element("p", *said, last, class_="said")),
        plot(first.max_digits, first.trained_digits),
        element("details", element("summary", "table", hidden(f" of the cells of {first.name}"))),
        id=f"map-{place}",
        class_="map",
        data_place=place,
    )


def plot(max_digits: int, trained_digits: int) -> Markup:
    """Canvas for the cells; over it the axes, the outline of the trained lengths and the mark of
    the chosen cell. It takes the keyboard, and says itself what it shows once the script runs."""
    cell = SIDE / max_digits
    top, trained = 100 - BOTTOM - SIDE, trained_digits * cell
    shapes = []
    for digits in ticks(max_digits):
        middle = (digits - 0.5) * cell
        x, y = f"{LEFT + middle:.2f}", f"{top + SIDE - middle:.2f}"
        shapes += [
            element("text", digits, x=x, y=100 - BOTTOM + 5.6, text_anchor="middle"),
            element("text", digits, x=LEFT - 1.6, y=y, dy="0.35em", text_anchor="end"),
        ]
    centre = f"{LEFT + SIDE / 2:.2f}"
    upright = f"rotate(-90 4.6 {top + SIDE / 2:.2f})"
    shapes += [
        element("text", "second operand, digits", x=centre, y=98.6, text_anchor="middle"),
        element(
            "text",
            "first operand, digits",
            x=4.6,
            y=f"{top + SIDE / 2:.2f}",
            text_anchor="middle",
            transform=upright,
        ),
        element("rect", x=LEFT, y=top, width=SIDE, height=SIDE, class_="edge"),
    ]
    square = {
        "x": LEFT,
        "y": f"{100 - BOTTOM - trained:.2f}",
        "width": f"{trained:.2f}",
        "height": f"{trained:.2f}",
    }
    shapes += [element("rect", class_=name, **square) for name in ("outline under", "outline")]
    ring = {"width": f"{cell:.3f}", "height": f"{cell:.3f}", "class_": "ring", "hidden": True}
    shapes.append(element("rect", **ring))
    overlay = element("svg", *shapes, viewBox="0 0 100 100", aria_hidden="true")
    return element(
        "div",
        element("canvas", aria_hidden="true"),
        overlay,
        class_="plot",
        tabindex=0,
        role="application",
        aria_roledescription="heatmap",
    )


def choices(report: Report) -> Markup:
    """The slider over seeds: its first place is the mean of seeds."""
    seeds = report.seeds
    slider = element(
        "input",
        type="range",
        id="seed",
        min=0,
        max=len(seeds),
        step=1,
        value=0,
        list="seed-places",
        aria_valuetext="mean of seeds",
    )
    words = ["mean", *seeds]
    places = element(
        "datalist",
        *(element("option", value=place, label=word) for place, word in enumerate(words)),
        id="seed-places",
    )
    label = element("label", "Seeds", for_="seed")
    return joined([label, slider, places, element("output", "mean of seeds", for_="seed")])


def options(report: Report, chosen: int) -> Markup:
    """The encodings to choose one from."""
    return joined(
        element("option", panel[0].name, value=place, selected=place == chosen)
        for place, panel in enumerate(report.ordered)
    )


def provenance(runs: Sequence[Run]) -> Markup:
    """What each run is and what it ran on: once where it is the same for all, else a column."""
    if not runs:
        return element("p", "No run's record lies beside these grids.")
    names = list(runs[0].facts)
    same = [name for name in names if len({run.facts.get(name, "") for run in runs}) == 1]
    terms = (
        element("div", element("dt", name), element("dd", _fact(runs[0].facts[name])))
        for name in same
    )
    parts = [
        element("h3", f"The same for all {len(runs)} runs"),
        element("dl", *terms, class_="facts"),
    ]
    other = [name for name in names if name not in same]
    if other:
        head = element("tr", *(element("th", name, scope="col") for name in ["run", *other]))
        lines = (
            element(
                "tr",
                element("th", f"{run.encoding}, seed {run.seed}", scope="row"),
                *(element("td", _fact(run.facts.get(name, ""))) for name in other),
            )
            for run in runs
        )
        caption = element("caption", f"What differs; of a hash, its first {HASH} characters")
        table = element("table", caption, element("thead", head), element("tbody", *lines))
        parts.append(scrolled(table, "Runs"))
    return joined(parts)


def _fact(value: str) -> Markup:
    if _is_hash(value):
        return element("code", value[:HASH])
    return escaped(value) if value else element("span", "not recorded", class_="unknown")


def _is_hash(value: str) -> bool:
    return len(value) == 64 and set(value) <= set("0123456789abcdef")


def configuration(runs: Sequence[Run]) -> Markup:
    """The settings, once for the runs that agree: all that are compared, but for older versions."""
    of: dict[tuple[tuple[str, object], ...], list[str]] = {}
    for run in runs:
        of.setdefault(tuple(run.config.items()), []).append(f"{run.encoding}, seed {run.seed}")
    parts = []
    for settings, having in of.items():
        terms = [
            element("div", element("dt", key), element("dd", value)) for key, value in settings
        ]
        who = "The same for all runs" if len(of) == 1 else "; ".join(having)
        told = element("dl", *terms, class_="facts") if terms else element("p", "not recorded")
        parts += [element("p", who, class_="note"), told]
    return joined(parts)


def reproduction(runs: Sequence[Run]) -> Markup:
    """How to make each run again, an encoding at a time, and the hashes in full."""
    parts = []
    for encoding in dict.fromkeys(run.encoding for run in runs):
        entries = []
        for run in (run for run in runs if run.encoding == encoding):
            hashes = [(name, value) for name, value in run.facts.items() if _is_hash(value)]
            entries.append(element("h4", f"seed {run.seed}, ", element("code", run.folder)))
            entries.append(element("pre", element("code", "\n".join(run.commands))))
            if run.recorded:
                entries.append(element("p", "Recorded: ", element("code", run.recorded)))
            entries += [element("p", f"{key}: ", element("code", value)) for key, value in hashes]
        parts.append(element("details", element("summary", encoding), *entries, class_="again"))
    return joined(parts)


def left_out(entries: Iterable[tuple[str, str]]) -> Markup:
    """What is not compared, and why."""
    lines = [element("li", element("code", what), f": {why}") for what, why in entries]
    if not lines:
        return element("p", "Nothing: every run that was found is in this report.")
    return element("ul", *lines, class_="left-out")


def footnote(notes: dict[str, str]) -> Markup:
    """What stands under the maps; the script changes it with the seed."""
    return element("p", notes[MEAN], id="footnote", class_="note")


def hidden(text: str) -> Markup:
    """For screen readers alone."""
    return element("span", text, class_="unseen")


def scrolled(table: Markup, label: str) -> Markup:
    """A wide table scrolls by itself, by keyboard too, and not the page."""
    return element("div", table, class_="scrolled", tabindex=0, role="region", aria_label=label)
