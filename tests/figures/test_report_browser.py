"""The report's page in a browser: what the script tells and draws, by mouse and by keyboard."""

import http.server
import json
import threading
from collections.abc import Iterator
from math import erfc
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from tape_arith.arith.figures.captions import signed
from tape_arith.arith.figures.heatmap import cells, significant
from tape_arith.arith.figures.report.page import write
from tape_arith.arith.scoring.comparisons import false_discovery, two_proportion
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.scoring.statistics import wilson
from tests.helpers.browser import NAMES, Browser, browser, executable
from tests.helpers.pages import HOSTILE, grid, report, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not executable(), reason=f"none of {', '.join(NAMES)} is on the PATH"),
]
DIGITS = 6


def made() -> list[list[Grid]]:
    """fire with three seeds, rope with two, of which the second misses a cell, and a third."""
    panels = [[grid("fire", s) for s in range(3)], [grid("rope", s) for s in range(2)]]
    panels.append([grid(HOSTILE, 0)])
    panels[1][1].exact[4, 5] = panels[1][1].total[4, 5] = 0
    return panels


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def page(shared: Browser, tmp_path: Path) -> Iterator[Browser]:
    """The page of `made`, opened; after the test nothing has gone wrong and nothing was fetched."""
    path = tmp_path / "report.html"
    runs = [run(panel[0].name, one.seed) for panel in made() for one in panel]
    write(report(made(), runs=runs), path)
    shared.dark(False)
    shared.open(path)
    yield shared
    shared.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert shared.problems == []
    assert shared.requests == [path.as_uri()]


def places(page: Browser) -> dict[str, int]:
    """The number of each encoding in the page."""
    script = "[...document.querySelectorAll('.map[data-place] h4')].map((head) => head.textContent)"
    return {name: place for place, name in enumerate(page.evaluate(script))}


def choose(page: Browser, select: str, value: object) -> None:
    """Set a control as a hand would: its value, then the event."""
    kind = "input" if select == "seed" else "change"
    page.evaluate(
        f"{{ const it = document.getElementById('{select}'); it.value = '{value}'; "
        f"it.dispatchEvent(new Event('{kind}')); }}"
    )


def told(page: Browser) -> list[str]:
    script = "[...document.querySelectorAll('#readout p')].map((line) => line.textContent)"
    lines: list[str] = page.evaluate(script)
    return lines


def point_at(page: Browser, plot: str, i: int, j: int) -> None:
    """The mouse over cell (i, j)."""
    page.show(plot)
    box = page.box(f"{plot} canvas")
    side = box["width"] / DIGITS
    page.point(box["x"] + (j - 0.5) * side, box["y"] + box["height"] - (i - 0.5) * side)


def rows(page: Browser, table: str) -> list[list[str]]:
    script = (
        f"[...document.querySelectorAll({json.dumps(table + ' tbody tr')})]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    found: list[list[str]] = page.evaluate(script)
    return found


def test_pointing_at_a_cell_tells_its_count(page: Browser) -> None:
    fire, place = made()[0], places(page)["fire"]
    i, j = 5, 2
    point_at(page, f"#map-{place}", i, j)
    exact = [int(one.exact[i - 1, j - 1]) for one in fire]
    low, high = wilson(sum(exact), 300)
    assert told(page) == [
        "fire: 5 + 2 digits",
        f"{sum(exact)} of 300 exact: {sum(exact) / 3:.1f} %",
        f"95 % interval {100 * low:.1f} % to {100 * high:.1f} % (Wilson, these runs only)",
        f"seeds 0, 1, 2: {', '.join(f'{count}/100' for count in exact)}",
        "one operand longer",
    ]
    # The same cell is marked in every map, and the box is beside it, in sight.
    rings = "document.querySelectorAll('.ring:not([hidden])').length"
    assert page.evaluate(rings) == 4
    readout, ring = page.box("#readout"), page.box(f"#map-{place} .ring")
    assert 0 <= readout["x"] <= 1200 - readout["width"]
    assert readout["x"] >= ring["right"] or readout["right"] <= ring["x"]
    page.point(1, 1)
    assert page.evaluate("document.getElementById('readout').hidden") and page.evaluate(rings) == 0


def test_the_keyboard_moves_over_cells(page: Browser) -> None:
    place = places(page)["fire"]
    page.evaluate(f"document.querySelector('#map-{place} .plot').focus()")
    page.press("ArrowUp")
    assert told(page)[0] == "fire: 2 + 1 digits"
    page.press("End", "PageUp")
    assert told(page)[0] == "fire: 6 + 6 digits"
    page.press("Home", "ArrowDown", "ArrowRight")
    assert told(page)[0] == "fire: 5 + 2 digits"
    page.press("Escape")
    assert page.evaluate("document.getElementById('readout').hidden")
    # On the next map it goes on at the same cell.
    page.press("Tab", "Tab")
    assert page.evaluate("document.activeElement.className") == "plot"
    assert told(page)[0].endswith(": 5 + 2 digits") and not told(page)[0].startswith("fire")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("Heatmap of ") and "out of distribution" in label
    assert page.evaluate("document.getElementById('readout').getAttribute('aria-live')") == "polite"


def pixel(page: Browser, plot: str, i: int, j: int, dx: float = 0.5, dy: float = 0.5) -> str:
    """The colour of a place in cell (i, j)."""
    script = f"""(() => {{
      const canvas = document.querySelector({json.dumps(plot + " canvas")});
      const side = canvas.width / {DIGITS};
      const x = Math.floor(({j} - 1 + {dx}) * side);
      const y = Math.floor(({DIGITS} - {i} + {dy}) * side);
      const copy = new OffscreenCanvas(1, 1).getContext("2d");
      copy.drawImage(canvas, x, y, 1, 1, 0, 0, 1, 1);
      return [...copy.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    }})()"""
    return "#" + bytes(page.evaluate(script)).hex()


def test_cells_have_the_figures_colours(page: Browser) -> None:
    panels, viridis = made(), mpl.colormaps["viridis"]
    at = places(page)
    for name, panel in (("fire", panels[0]), ("rope", panels[1])):
        shares = cells(panel)
        for i, j in ((1, 1), (6, 1), (1, 6), (4, 5), (6, 6)):
            colour = mpl.colors.to_hex(viridis(shares[i - 1, j - 1]))
            assert pixel(page, f"#map-{at[name]}", i, j) == colour
    # A missing cell is hatched: two greys, and no colour of the scale.
    spots = [pixel(page, f"#map-{at['rope']}", 5, 6, dx / 20, 0.5) for dx in range(1, 20)]
    assert "#f4f4f4" in spots and len(set(spots)) > 1
    assert all(spot[1:3] == spot[3:5] == spot[5:7] for spot in spots)
    point_at(page, f"#map-{at['rope']}", 5, 6)
    assert told(page)[1] == "both operands longer; not scored: seed 1"


def test_the_slider_shows_one_seed(page: Browser) -> None:
    panels, at = made(), places(page)
    choose(page, "seed", 3)
    assert page.evaluate("document.querySelector('output').textContent") == "seed 2"
    assert (
        page.evaluate("document.getElementById('seed').getAttribute('aria-valuetext')") == "seed 2"
    )
    assert "seed 2." in page.evaluate("document.getElementById('footnote').textContent")
    share = panels[0][2].accuracy[5, 0]
    colour = mpl.colors.to_hex(mpl.colormaps["viridis"](share))
    assert pixel(page, f"#map-{at['fire']}", 6, 1) == colour
    point_at(page, f"#map-{at['fire']}", 6, 1)
    assert told(page)[1] == f"{panels[0][2].exact[5, 0]} of 100 exact: {100 * share:.1f} %"
    said = f"document.querySelector('#map-{at['rope']} .said').textContent"
    assert page.evaluate(said) == "no seed 2"
    # By keyboard, back to the mean.
    page.evaluate("document.getElementById('seed').focus()")
    page.press("Home")
    assert page.evaluate("document.querySelector('output').textContent") == "mean of seeds"
    assert "2 seeds" in page.evaluate(said)


def test_the_difference_is_that_of_the_figure(page: Browser) -> None:
    panels, at = made(), places(page)
    fire, rope = panels[0], panels[1]
    choose(page, "one", at["fire"])
    choose(page, "other", at["rope"])
    page.evaluate("document.querySelector('#difference-map details').open = true")
    page.wait("document.querySelector('#difference-map table')")
    points, marked = 100 * (cells(fire) - cells(rope)), significant(fire, rope)
    assert 0 < marked.sum() < marked.size
    for i, row in enumerate(rows(page, "#difference-map")):
        assert row[0] == str(i + 1)
        for j, text in enumerate(row[1:]):
            if np.isnan(points[i, j]):
                assert text == "not scored"
            else:
                assert text == signed(points[i, j], 1) + (" *" if marked[i, j] else "")
    said = page.evaluate("document.getElementById('difference-said').textContent")
    scored = ~np.isnan(points)
    assert f"{(scored & marked).sum()} of {scored.sum()} cells differ" in said
    assert "these runs only" in said
    i, j = np.argwhere(~marked & ~np.isnan(points))[0] + 1
    assert pixel(page, "#difference-map", i, j) == "#cfcfcf"
    point_at(page, "#difference-map", i, j)
    assert told(page)[0] == f"fire \N{MINUS SIGN} rope: {i} + {j} digits"
    assert told(page)[3].startswith("not significant") and "these runs only" in told(page)[3]
    choose(page, "seed", 3)  # rope has no seed 2
    assert "not both have seed 2" in page.evaluate(
        "document.getElementById('difference-said').textContent"
    )


def test_the_script_s_statistics_are_ours(page: Browser) -> None:
    draw = np.random.default_rng(5)
    total = draw.integers(1, 500, (2, 300))
    exact = np.floor(total * draw.choice([0, 0.02, 0.5, 0.52, 1], (2, 300))).astype(np.int64)
    numbers = json.dumps([exact.tolist(), total.tolist()])
    script = f"""(() => {{
      const [exact, total] = {numbers};
      const test = (k) => twoProportion(exact[0][k], total[0][k], exact[1][k], total[1][k]);
      const p = exact[0].map((_, k) => test(k));
      return {{
        intervals: exact[0].map((right, k) => wilson(right, total[0][k])),
        p,
        found: falseDiscovery(p, 0.05),
        tails: [0, 1e-9, 0.3, 1, 2.4, 2.6, 5, 9].map(erfc),
        // At the second of these two the rank decides: 0.05 is 2 of 2 times the rate, not 1.
        ranks: [falseDiscovery([0.05, 0.01], 0.05), falseDiscovery([0.05, 0.06], 0.05)],
        regions: [[3, 3], [4, 3], [3, 4], [4, 4]].map(
          ([i, j]) => regionOf({{ trained_digits: 3 }}, i, j)),
        missing: String(twoProportion(1, 2, 0, 0)),
        none: falseDiscovery([NaN, 0.9], 0.05),
      }};
    }})()"""
    theirs: dict[str, Any] = page.evaluate(script)
    low, high = wilson(exact[0], total[0])
    np.testing.assert_allclose(theirs["intervals"], np.stack([low, high], axis=1), atol=1e-13)
    p = two_proportion(exact[0], total[0], exact[1], total[1])
    np.testing.assert_allclose(theirs["p"], p, rtol=1e-10, atol=1e-300)
    assert theirs["found"] == false_discovery(p, 0.05).tolist()
    exact_tails = [erfc(x) for x in (0, 1e-9, 0.3, 1, 2.4, 2.6, 5, 9)]
    np.testing.assert_allclose(theirs["tails"], exact_tails, rtol=1e-11)
    assert theirs["ranks"] == [[True, True], [False, False]]
    one, both = "one operand longer", "both operands longer"
    assert theirs["regions"] == ["in distribution", one, one, both]
    assert theirs["missing"] == "NaN" and theirs["none"] == [False, False]


def test_the_leaderboard_sorts_by_what_its_heads_say(page: Browser) -> None:
    def order() -> list[str]:
        return [row[0] for row in rows(page, "#board")[1:]]

    def head(text: str) -> str:
        script = (
            "[...document.querySelectorAll('#board thead th')].findIndex((head) => "
            f"head.textContent.startsWith({json.dumps(text)})) + 1"
        )
        return f"#board thead th:nth-child({page.evaluate(script)})"

    panels = made()
    means = {p[0].name: np.mean([g.mean("all_cells").value or np.nan for g in p]) for p in panels}
    column = head("all cells")
    page.click(f"{column} button")
    assert page.evaluate(f"document.querySelector('{column}').ariaSort") == "descending"
    known = sorted((n for n in means if n != "rope"), key=lambda n: -means[n])
    names = [next(n for n in means if n in text) for text in order()]
    assert names == [*known, "rope"]  # rope misses a cell: last, either way
    page.evaluate(f"document.querySelector('{column} button').focus()")
    page.press("Enter")
    names = [next(n for n in means if n in text) for text in order()]
    assert names == [*reversed(known), "rope"]
    first = head("encoding")
    page.click(f"{first} button")
    assert page.evaluate(f"document.querySelector('{first}').ariaSort") == "ascending"
    assert page.evaluate(f"document.querySelector('{column}').ariaSort") is None
    assert "rope" in order()[-1]


def test_light_and_dark(page: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    pressed = "document.getElementById('theme').ariaPressed"
    assert page.evaluate(ground) == "rgb(255, 255, 255)" and page.evaluate(pressed) == "false"
    page.click("#theme")
    dark = page.evaluate(ground)
    assert dark != "rgb(255, 255, 255)" and page.evaluate(pressed) == "true"
    page.evaluate("document.getElementById('theme').focus()")
    page.press(" ")
    assert page.evaluate(ground) == "rgb(255, 255, 255)" and page.evaluate(pressed) == "false"
    page.dark(True)  # what was chosen by hand stays
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.evaluate("delete document.documentElement.dataset.theme")
    assert page.evaluate(ground) == dark
    page.dark(False)
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_curves_tell_what_was_logged(page: Browser) -> None:
    script = "[...document.querySelectorAll('#shown input:checked')].length"
    assert page.evaluate(script) == 3
    paths = "document.querySelectorAll('[data-of=loss] path.seed').length"
    assert page.evaluate(paths) == 6
    page.evaluate("document.querySelector('[data-of=loss] svg').focus()")
    page.press("Home", "ArrowRight")
    lines = told(page)
    # 100 / step + seed, mean over the seeds 0, 1, 2.
    assert lines[0] == "step 200" and "fire: 1.50" in lines
    page.click("#shown label:last-child input")
    assert page.evaluate(script) == 2 and page.evaluate(paths) < 6
    page.evaluate("document.querySelector('[data-of=loss] details').open = true")
    page.wait("document.querySelector('[data-of=loss] table')")
    assert [row[0] for row in rows(page, "[data-of=loss]")] == ["100", "200", "300", "400", "500"]
    assert page.evaluate("document.getElementById('outside').hidden")  # nobody logged it


def test_lengths_are_learnt_in_turn(page: Browser) -> None:
    viridis = mpl.colormaps["viridis"]
    colours = page.evaluate(
        "[...document.querySelectorAll('#learning rect')].map((cell) => cell.getAttribute('fill'))"
    )
    steps, lengths = (100, 200, 300, 400, 500), range(1, 7)
    expected = [float(step >= 100 * length) for length in lengths for step in steps]
    assert colours == [mpl.colors.to_hex(viridis(value)) for value in expected]
    page.evaluate("document.querySelector('#learning svg').focus()")
    page.press("End", "ArrowLeft", "ArrowLeft")
    assert told(page)[1:] == [f"{n} digits: {'100.0' if n <= 3 else '0.0'} %" for n in lengths]
    page.evaluate("document.querySelector('#learning details').open = true")
    page.wait("document.querySelector('#learning table')")
    assert rows(page, "#learning")[2][:5] == ["300", "100.0 %", "100.0 %", "100.0 %", "0.0 %"]


def test_a_map_has_its_cells_in_a_table(page: Browser) -> None:
    rope = made()[1]
    place = places(page)["rope"]
    page.evaluate(f"document.querySelector('#map-{place} details').open = true")
    page.wait(f"document.querySelector('#map-{place} table')")
    shares = cells(rope)
    for i, row in enumerate(rows(page, f"#map-{place}")):
        for j, text in enumerate(row[1:]):
            known = not np.isnan(shares[i, j])
            assert text == (f"{100 * shares[i, j]:.1f}" if known else "not scored")
    choose(page, "seed", 1)
    assert rows(page, f"#map-{place}")[5][1] == f"{100 * rope[0].accuracy[5, 0]:.1f}"


def test_a_hostile_name_is_a_name(page: Browser) -> None:
    place = places(page)[HOSTILE]
    point_at(page, f"#map-{place}", 1, 1)
    assert told(page)[0] == f"{HOSTILE}: 1 + 1 digits"
    choose(page, "one", place)
    for details in ("#difference-map", f"#map-{place}", "[data-of=loss]", "#learning"):
        page.evaluate(f"document.querySelector({json.dumps(details)} + ' details').open = true")
        page.wait(f"document.querySelector({json.dumps(details)} + ' table')")
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 2


def test_a_page_as_wide_as_a_phone(page: Browser) -> None:
    size = {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": False}
    page.command("Emulation.setDeviceMetricsOverride", **size)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    point_at(page, f"#map-{places(page)['fire']}", 3, 3)
    readout = page.box("#readout")
    assert readout["x"] >= 0 and readout["right"] <= 360 and readout["y"] >= 0


def test_on_paper_it_is_light_and_has_no_controls(page: Browser, tmp_path: Path) -> None:
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    page.command("Emulation.setEmulatedMedia", media="print", features=[dark])
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    seen = "getComputedStyle(document.querySelector('{}')).display"
    assert page.evaluate(seen.format("nav")) == page.evaluate(seen.format("#seed")) == "none"
    page.command("Emulation.setEmulatedMedia", media="", features=[])
    page.print(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_on_paper_stands_how_to_make_a_run_again(page: Browser) -> None:
    seen = "document.querySelector('{}').checkVisibility()"
    shown = ("details.again pre", "details.again h4", "details.again p code")
    hidden = (".map details", "#difference-map details")
    assert not any(page.evaluate(seen.format(place)) for place in shown)
    page.command("Emulation.setEmulatedMedia", media="print", features=[])
    assert all(page.evaluate(seen.format(place)) for place in shown)
    assert not any(page.evaluate(seen.format(place)) for place in hidden)
    page.command("Emulation.setEmulatedMedia", media="", features=[])


@pytest.mark.parametrize(("media", "width"), [("print", 420), ("screen", 1280), ("screen", 400)])
def test_names_are_not_broken_within_words(
    shared: Browser, tmp_path: Path, media: str, width: int
) -> None:
    names = ["tape+yarn", "fox:b_f=5", "rand-sinusoidal", "tape:context=no-attention:width=96"]
    path = tmp_path / "report.html"
    write(report([[grid(name)] for name in names]), path)
    shared.open(path)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    shared.command("Emulation.setDeviceMetricsOverride", **size)
    shared.command("Emulation.setEmulatedMedia", media=media, features=[])
    script = """[...document.querySelectorAll("#board tbody th a")].map((name) =>
        [name.textContent, name.getBoundingClientRect().height,
         [...name.querySelectorAll("span")].every((part) => part.getClientRects().length === 1)])"""
    found = {name: (height, whole) for name, height, whole in shared.evaluate(script)}
    shared.command("Emulation.clearDeviceMetricsOverride")
    shared.command("Emulation.setEmulatedMedia", media="", features=[])
    assert found.keys() == set(names) and all(whole for _, whole in found.values())
    heights = [found[name][0] for name in names[:3]]
    assert max(heights) < 1.5 * min(heights)  # on one line
    assert max(heights) < 25


def test_the_policy_lets_nothing_out(shared: Browser, tmp_path: Path) -> None:
    asked: list[str] = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    path = tmp_path / "report.html"
    write(report([[grid("fire")]]), path)
    shared.open(path)
    server = http.server.HTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        script = f"""(async () => {{
          const image = new Image();
          image.src = "{address}/image";
          const tag = document.createElement("script");
          tag.textContent = "window.hacked = 1";
          document.body.append(image, tag);
          const asked = fetch("{address}/fetch", {{ mode: "no-cors" }});
          const failed = await asked.then(() => false, () => true);
          await new Promise((done) => setTimeout(done, 200));
          return failed;
        }})()"""
        assert shared.evaluate(script) is True
        assert shared.evaluate("typeof window.hacked") == "undefined"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert asked == []
    assert any("Content Security Policy" in problem for problem in shared.problems)
