"""The heatmaps in the page: room for what its script draws, and what can be read without it."""

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.figures.panel import ticks
from tape_arith.arith.figures.report.board import grouped
from tape_arith.arith.figures.report.content import MEAN, Report
from tape_arith.arith.figures.report.markup import Markup, element, hidden, joined, named

LEFT, BOTTOM, SIDE = 15.0, 15.0, 84.0
"""Where the cells of a map lie in its square of 100 x 100; style.css says the same of canvas."""


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
        element(
            "figcaption", element("h4", named(first.name)), element("p", *said, last, class_="said")
        ),
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


def footnote(notes: dict[str, str]) -> Markup:
    """What stands under the maps; the script changes it with the seed."""
    return element("p", notes[MEAN], id="footnote", class_="note")
