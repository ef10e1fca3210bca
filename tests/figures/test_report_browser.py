"""One pass over the report's page in a browser, by mouse and keyboard."""

import json
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from tape_arith.arith.compare.captions import signed
from tape_arith.arith.figures.heatmap import difference_colours, difference_limit
from tape_arith.arith.figures.report.page import page as page_of
from tape_arith.arith.figures.style import PALE
from tape_arith.arith.grids.panel import Panel, panels_of, significant_cells
from tape_arith.arith.grids.statistics import wilson
from tests.helpers.browser import NAMES, Browser, browser, executable
from tests.helpers.made_grids import BITS, drawn
from tests.helpers.pages import HOSTILE, grid, logs, report, run, with_costs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not executable(), reason=f"none of {', '.join(NAMES)} is on the PATH"),
]
DIGITS = 6
LONG = "tape:context=no-attention:width=96"


def choose(page: Browser, control: str, value: object) -> None:
    """Set a control as a hand would: its value, then the event."""
    kind = "input" if control == "seed" else "change"
    page.evaluate(
        f"{{ const it = document.getElementById('{control}'); it.value = '{value}'; "
        f"it.dispatchEvent(new Event('{kind}')); }}"
    )


def texts(page: Browser, selector: str) -> list[str]:
    script = f"[...document.querySelectorAll({json.dumps(selector)})].map((it) => it.textContent)"
    contents: list[str] = page.evaluate(script)
    return contents


def readout(page: Browser) -> list[str]:
    return texts(page, "#readout:not([hidden]) p")


def point_at(page: Browser, plot: str, i: int, j: int) -> None:
    """The mouse over cell (i, j)."""
    page.show(plot)
    box = page.box(f"{plot} canvas")
    side = box["width"] / DIGITS
    y = box["y"] + box["height"] - (i - 0.5) * side
    page.mouse("mouseMoved", box["x"] + (j - 0.5) * side, y)


def pixel(page: Browser, plot: str, i: int, j: int) -> str:
    """The colour in the middle of cell (i, j)."""
    script = f"""(() => {{
      const canvas = document.querySelector({json.dumps(plot + " canvas")});
      const side = canvas.width / {DIGITS};
      const copy = new OffscreenCanvas(1, 1).getContext("2d");
      const at = [({j} - 0.5) * side, ({DIGITS} - {i} + 0.5) * side].map(Math.floor);
      copy.drawImage(canvas, ...at, 1, 1, 0, 0, 1, 1);
      return [...copy.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    }})()"""
    return "#" + bytes(page.evaluate(script)).hex()


def check_widths(page: Browser) -> None:
    """Nothing scrolls sideways until all columns are asked for; the leaderboard then shows it."""
    board = "document.querySelector('.scrolled')"
    heads = "document.querySelectorAll('#board thead th:not([hidden])').length"
    counts = []
    for width in (1280, 400):
        page.resize(width)
        page.wait(f"{board}.scrollWidth === {board}.clientWidth")
        counts.append(page.evaluate(heads))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not page.evaluate("document.querySelector('.hint').checkVisibility()")
        page.click("#all-columns")
        page.wait(f"{board}.classList.contains('more')")
        assert page.evaluate(heads) > counts[-1]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.querySelector('.hint').checkVisibility()")
        assert page.evaluate(f"getComputedStyle({board}).maskImage").startswith("linear-gradient")
        page.evaluate(f"{board}.scrollLeft = 9999")
        page.wait(f"!{board}.classList.contains('more')")
        assert not page.evaluate("document.querySelector('.hint').checkVisibility()")
        page.evaluate(f"{board}.scrollLeft = 0")
        page.click("#all-columns")
    assert counts[0] > counts[1] >= 2
    point_at(page, "#map-0", 3, 3)
    box = page.box("#readout")
    assert box["x"] >= 0 and box["right"] <= 400 and box["y"] >= 0


def check_cells(page: Browser, panels: dict[str, Panel], places: dict[str, int]) -> None:
    """A cell under the pointer and by keyboard; colours; one seed."""
    fire, viridis, plot = panels["fire"], mpl.colormaps["viridis"], f"#map-{places['fire']}"
    exact = [int(one.exact[4, 1]) for one in fire.grids]
    low, high = wilson(sum(exact), 300)
    point_at(page, plot, 5, 2)
    name, share, interval, seeds, region = readout(page)
    assert name.split()[:4] == ["fire:", "5", "and", "2"] and region == "one longer"
    assert share.split()[::4] == [str(sum(exact)), f"{sum(exact) / 3:.1f}"]
    assert re.findall(r"\d+\.\d", interval) == [f"{100 * low:.1f}", f"{100 * high:.1f}"]
    assert seeds.split(": ")[1].split(", ") == [f"{count}/100" for count in exact]
    rings = "document.querySelectorAll('.ring:not([hidden])').length"
    assert page.evaluate(rings) == 1 + len(panels)
    box, ring = page.box("#readout"), page.box(f"{plot} .ring")
    assert box["x"] >= ring["right"] or box["right"] <= ring["x"]
    page.mouse("mouseMoved", 1, 1)
    assert readout(page) == [] and page.evaluate(rings) == 0
    page.evaluate(f"document.querySelector('{plot} .plot').focus()")
    page.press("End", "PageUp", "ArrowDown", "ArrowLeft")
    assert re.findall(r"\d", readout(page)[0]) == ["5", "5"]
    page.press("Escape")
    assert readout(page) == []
    for name in ("fire", "rope"):
        shares = panels[name].cell_means
        for i, j in ((1, 1), (6, 1), (1, 6), (6, 6)):
            colour = mpl.colors.to_hex(viridis(shares[i - 1, j - 1]))
            assert pixel(page, f"#map-{places[name]}", i, j) == colour
    choose(page, "seed", 3)
    assert texts(page, "output[for=seed]") == ["seed 2"]
    assert "seed 2." in texts(page, "#footnote")[0]
    assert pixel(page, plot, 6, 1) == mpl.colors.to_hex(viridis(fire.grids[2].accuracy[5, 0]))
    assert texts(page, f"#map-{places['rope']} .words") == ["no seed 2"]


def check_difference(page: Browser, panels: dict[str, Panel], places: dict[str, int]) -> None:
    for first, second in (("fire", "rope"), ("rope", "fire")):
        choose(page, "seed", 0)
        choose(page, "one", places[first])
        choose(page, "other", places[second])
        one, other = panels[first], panels[second]
        points, marked = 100 * (one.cell_means - other.cell_means), significant_cells(one, other)
        for cells in (marked, ~marked):
            i, j = np.argwhere(cells)[-1] + 1
            colour = pixel(page, "#difference-map", i, j)
            assert (colour == PALE) == (not marked[i - 1, j - 1])
            if marked[i - 1, j - 1]:  # as in the figure, even if it is small
                at = 0.5 + points[i - 1, j - 1] / (2 * difference_limit(points))
                assert colour == mpl.colors.to_hex(difference_colours()(float(at)))
            point_at(page, "#difference-map", i, j)
            name, gap, _, test, _ = readout(page)
            pair, lengths = name.split(": ")
            assert pair.split(" \N{MINUS SIGN} ") == [first, second]
            assert re.findall(r"\d+", lengths) == [str(i), str(j)]
            assert gap == f"{signed(points[i - 1, j - 1], 1)} points"
            assert test.startswith("significant" if marked[i - 1, j - 1] else "not significant")
        assert any(" 0.0 points" in text for text in texts(page, "#difference-words span"))
    choose(page, "seed", 3)
    assert texts(page, "#difference-words")[0].endswith("seed 2")


def check_sorting(page: Browser, panels: dict[str, Panel]) -> None:
    means = {name: list(p.seed_means("all_cells")) for name, p in panels.items()}
    best = sorted(means, key=lambda name: -np.mean(means[name]))
    heads = texts(page, "#board thead th")
    column = f"#board thead th:nth-child({1 + [h[:9] for h in heads].index('all cells')})"
    page.click("#all-columns")  # that of all cells is the first to go
    for direction, names in (("descending", best), ("ascending", best[::-1])):
        page.click(f"{column} button")
        assert page.evaluate(f"document.querySelector('{column}').ariaSort") == direction
        assert texts(page, "#board tbody th a") == names
    page.click("#all-columns")


def check_filter(page: Browser, panels: dict[str, Panel]) -> None:
    shown = "#board tbody:not([hidden]) tr[data-kind]:not([hidden]) a"
    script = "{ const it = document.getElementById('search'); it.value = '%s'; "
    script += "it.dispatchEvent(new Event('input')); }"
    for words, names in (("FIR", ["fire"]), ("no-attention tape", [LONG]), ("nothing", [])):
        page.evaluate(script % words)
        assert texts(page, shown) == names
        assert texts(page, "#found") == [f"{len(names)} of 4 encodings; ranks are among all"]
    page.evaluate(script % "")
    assert set(texts(page, shown)) == panels.keys() and texts(page, "#found") == [""]


def check_curves_and_themes(page: Browser) -> None:
    paths = "document.querySelectorAll('[data-of=loss] path.seed').length"
    ticked = "#shown label:has(input:checked)"
    assert texts(page, ticked) == ["rope"]  # the reference
    for label in range(1, 5):
        if not page.evaluate(f"document.querySelectorAll('#shown input')[{label - 1}].checked"):
            page.click(f"#shown label:nth-child({label}) input")
    assert page.evaluate(paths) == 7
    page.evaluate("document.querySelector('[data-of=loss] svg').focus()")
    page.press("Home", "ArrowRight")
    # 100 / step + seed, mean over the seeds 0, 1, 2.
    assert readout(page)[0] == "step 200" and "fire: 1.50" in readout(page)
    by_length = "document.querySelectorAll('[data-of=by_length] path.seed').length"
    assert page.evaluate(by_length) == 7
    page.evaluate("document.querySelector('[data-of=by_length] svg').focus()")
    page.press("Home", "ArrowRight")
    assert readout(page)[0] == "2 digits of the longer operand"
    assert "fire: 100.0 %" in readout(page)
    page.click("#shown label:first-child input")
    assert page.evaluate(paths) < 7 > page.evaluate(by_length)
    cells = "[...document.querySelectorAll('#learning rect')].map((it) => it.getAttribute('fill'))"
    shares = [float(step >= 100 * n) for n in range(1, 7) for step in range(100, 600, 100)]
    viridis = mpl.colormaps["viridis"]
    assert page.evaluate(cells) == [mpl.colors.to_hex(viridis(share)) for share in shares]
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.click("#theme")
    assert page.evaluate(ground) == "rgb(20, 23, 27)"
    page.click("#theme")
    page.dark(True)  # a choice by hand stays
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.evaluate("delete document.documentElement.dataset.theme")
    assert page.evaluate(ground) == "rgb(20, 23, 27)"


def test_one_pass_over_the_page(tmp_path: Path) -> None:
    seeds = {"fire": 3, HOSTILE: 1, "rope": 2, LONG: 1}
    grids = [grid(name, seed) for name, count in seeds.items() for seed in range(count)]
    panels = {panel.name: panel for panel in panels_of(grids)}
    runs = [run(one.name, one.seed) for one in grids]
    path = tmp_path / "report.html"
    logged = [line for name, count in seeds.items() for line in logs(name, count)]
    path.write_text(page_of(with_costs(report(grids, runs=runs, logs=logged))), "utf-8")
    with browser(tmp_path) as page:
        page.dark(False)
        page.open(path, width=1280)
        places = {name: place for place, name in enumerate(texts(page, ".map[data-place] h4"))}
        assert places.keys() == panels.keys()
        check_sorting(page, panels)
        check_filter(page, panels)
        check_cells(page, panels, places)
        check_difference(page, panels, places)
        check_curves_and_themes(page)
        check_widths(page)
        assert page.evaluate("typeof window.hacked") == "undefined"
        assert page.problems == [] and page.requests == [path.as_uri()]
        # The policy of the page refuses what is not its own.
        refused = "fetch('http://127.0.0.1:9/').then(() => false, () => true)"
        assert page.evaluate(refused)
        assert any("Security Policy" in problem for problem in page.problems)


def test_lines_over_one_axis(tmp_path: Path) -> None:
    """A line is where its means are, and a length tells its counts."""
    path = tmp_path / "report.html"
    made = report(drawn(name, seed, BITS) for name in ("fire", "rope") for seed in range(3))
    path.write_text(page_of(made), "utf-8")
    with browser(tmp_path) as page:
        page.dark(False)
        page.open(path, width=1280)
        panel = made.panels[0]
        counts = panel.exact
        page.show("#map-0")
        box = page.box("#map-0 canvas")
        page.mouse("mouseMoved", box["x"] + box["width"] * 5.5 / 8, box["y"] + box["height"] / 3)
        name, count, *_, region = readout(page)
        assert (name, region[:3]) == (f"{panel.name}: 6 bits", "out")
        assert count.startswith(f"{counts[5]} of")
        for length, total in enumerate(counts):
            script = f"""(() => {{
              const canvas = document.querySelector("#map-0 canvas"), size = canvas.width;
              const copy = new OffscreenCanvas(1, 1).getContext("2d");
              const y = (1 - {total / 300}) * (size - 6) + 3, x = {(length + 0.5) / 8} * size;
              copy.drawImage(canvas, Math.floor(x), Math.floor(y), 1, 1, 0, 0, 1, 1);
              return [...copy.getImageData(0, 0, 1, 1).data];
            }})()"""
            *colour, opacity = page.evaluate(script)
            assert colour == pytest.approx([0, 0x72, 0xB2], abs=2)
            assert opacity > 120  # more than a band has; half of a pixel where the line begins
        page.evaluate("document.querySelector('#map-0 .plot').focus()")
        page.press("PageUp", "ArrowLeft", "ArrowDown")
        assert readout(page)[0] == f"{panel.name}: 6 bits"
        choose(page, "one", 1)
        choose(page, "other", 0)
        assert "significantly" in " ".join(texts(page, "#difference-words span"))
        assert page.problems == []
