"""Exact match over length: grids of one axis, and the longer operand of others."""

from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from scipy import stats

from tape_arith.arith.figures.heatmap import compose
from tape_arith.arith.figures.report.content import content
from tape_arith.arith.figures.report.page import page
from tape_arith.arith.grids.axes import Axes, digit_pairs
from tape_arith.arith.grids.panel import Panel, panels_of
from tape_arith.arith.grids.statistics import wilson
from tests.helpers.figures import assert_nothing_is_cut_off, words
from tests.helpers.made_grids import BITS, DEPTHS, LISTS, drawn
from tests.helpers.pages import Page, report

LENGTHS = np.arange(1, 9)


def panels(names: list[str]) -> list[Panel]:
    """Return three seeds of each encoding, but one of the last."""
    *made, last = panels_of(drawn(name, seed, BITS) for name in names for seed in range(3))
    return [*made, last.only(0)]


def expected(panel: Panel) -> tuple[Any, Any, Any]:
    """Return mean and ends of the interval at each length, by scipy from the counts."""
    grids = panel.grids
    shares = np.array([grid.exact / 100 for grid in grids])
    if len(grids) == 1:
        return shares[0], *wilson(grids[0].exact, 100)
    half = stats.t.ppf(0.975, len(grids) - 1) * stats.sem(shares, axis=0)
    mean = shares.mean(axis=0)
    return mean, np.maximum(mean - half, 0), np.minimum(mean + half, 1)


@pytest.mark.parametrize("count", [2, 7])
def test_a_line_is_the_mean_and_its_band_the_interval_over_seeds(count: int) -> None:
    made = panels([f"pe{number}" for number in range(count)])
    figure = compose(made)
    assert len(figure.axes) == 1 + (count > 6)  # at most six lines a panel
    shown: list[tuple[Any, Any]] = []
    for ax in figure.axes:
        *lines, guess = ax.lines
        assert set(np.asarray(guess.get_ydata())) == {0.5}
        shown += zip(lines, ax.collections, strict=True)
    for panel, (line, band) in zip(made, shown, strict=True):
        mean, low, high = expected(panel)
        assert np.array_equal(line.get_xdata(), LENGTHS)
        np.testing.assert_allclose(np.asarray(line.get_ydata()), mean)
        corners = np.concatenate([path.vertices for path in band.get_paths()])
        for length, *ends in zip(LENGTHS, low, high, strict=True):
            heights = corners[corners[:, 0] == length][:, 1]
            assert [heights.min(), heights.max()] == pytest.approx(ends)
    for ax in figure.axes:
        (shade,) = ax.patches
        assert isinstance(shade, Rectangle)
        assert (shade.get_bbox().x0, shade.get_bbox().x1) == (0.5, 4.5)  # 1 to 4 are trained
    text = words(figure)
    assert "in 50 %)" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "4 bits" in text and "digits" not in text and "pe0: out" in text
    assert_nothing_is_cut_off(figure)


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("axes", [digit_pairs(4, 8), LISTS])
def test_over_the_longer_operand(axes: Axes, seeds: int) -> None:
    (panel,) = panels_of(drawn("rope", seed, axes) for seed in range(seeds))
    figure = compose([panel], by_length=True)
    (line,), (band,) = figure.axes[0].lines, figure.axes[0].collections
    corners = np.concatenate([path.vertices for path in band.get_paths()])
    for length, mean in zip(*map(np.asarray, line.get_data()), strict=True):
        n = int(length)
        cells = [  # of two numbers as long as the longer one; of lists no longer than trained
            [*g.exact[:n, n - 1], *g.exact[n - 1, : n - 1]] if axes != LISTS else g.exact[:2, n - 1]
            for g in panel.grids
        ]
        means = np.mean(cells, axis=1) / 100
        assert mean == pytest.approx(means.mean())
        ends = wilson(np.sum(cells), 100 * np.size(cells))
        if seeds > 1:
            half = stats.t.ppf(0.975, seeds - 1) * stats.sem(means)
            ends = np.clip([means.mean() - half, means.mean() + half], 0, 1)
        heights = corners[corners[:, 0] == length][:, 1]
        assert [heights.min(), heights.max()] == pytest.approx([float(end) for end in ends])
    along = "digits of the longer operand" if axes != LISTS else "digits"
    assert figure.axes[0].get_xlabel() == along
    assert_nothing_is_cut_off(figure)


def test_of_a_place_the_mean_is_drawn_and_no_region_is_of_two_lengths() -> None:
    (panel,) = panels_of([drawn("rope", 0, DEPTHS)])
    (ax,) = compose([panel], by_length=True).axes
    shares = np.asarray(ax.lines[0].get_ydata())
    np.testing.assert_allclose(shares, panel.exact.mean(axis=0) / 100)
    assert ax.get_xlabel() == "digits of haystack"
    made = report([*panel.grids])
    numbers = content(made)
    assert numbers["shape"] == [5, 8] and numbers["cell"] == "{1} digits at depth {0}"
    assert numbers["regions"]["words"] == ["in distribution", "out of distribution"]
    assert numbers["regions"]["cells"] == 5 * "00001111"
    text = " ".join(" ".join(Page(page(made)).texts).split())
    assert "trained lengths; out of distribution: longer ones" in text
    assert "scores 50 % over all cells" in text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("task", "chance"),
    [
        ("copy", 0),
        ("modular-sum:modulus=7", 1 / 7),
        ("modular-sum:modulus=97", 0),
        ("gone.py:G", 0),
    ],
)
def test_only_tasks_with_a_chance_have_a_line_for_guesses(task: str, chance: float) -> None:
    figure = compose(panels_of([drawn("rope", 0, BITS, evaluation={"task": task})]))
    (ax,) = figure.axes
    assert (" file" in words(figure)) == task.startswith("gone")
    assert [np.asarray(line.get_ydata())[0] for line in ax.lines[1:]] == [chance][: bool(chance)]


def test_the_page_of_one_axis() -> None:
    made = report(grid for panel in panels(["fire", "rope"]) for grid in panel.grids)
    numbers = content(made)
    assert numbers["lines"] and numbers["shape"] == [1, 8]
    for encoding, panel in zip(numbers["encodings"], made.panels, strict=True):
        shown = encoding["choices"]["mean"]
        mean, low, high = expected(panel)
        np.testing.assert_allclose(np.divide(shown["exact"], shown["total"]), mean)
        np.testing.assert_allclose([shown["low"], shown["high"]], [low, high], atol=1e-4)
    assert numbers["regions"]["cells"] == "00001111"
    head = Page(page(made)).rows[0]
    assert not [cell for cell in head if cell.startswith("one longer")]
    assert "in 50 %." in page(made).replace("\N{NO-BREAK SPACE}", " ")
    text = " ".join(Page(page(made).partition("<main")[2].partition("<footer")[0]).texts)
    assert not [word for word in ("sums", "digits", "operand", "cell ") if word in text]
