"""The power law, against scipy and data whose exponent is known; the figure's words and files."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.figures.figure_file import figure_format
from tape_arith.arith.figures.scaling import Panel, Series, compose, draw, power_law

SIZES = (4.0, 8.0, 16.0, 32.0, 64.0)


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 1.5, 3.0])
def test_the_exponent_of_exact_data_is_found(exponent: float) -> None:
    fit = power_law(SIZES, [0.02 * size**exponent for size in SIZES])
    assert fit is not None and fit.half_width is not None
    assert fit.exponent == pytest.approx(exponent, abs=1e-12)
    assert fit.factor == pytest.approx(0.02) and fit.half_width == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_of_noisy_data_is_scipy_s(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.2, len(SIZES))
    y = [3 * size**2.2 * np.exp(e) for size, e in zip(SIZES, noise, strict=True)]
    fit = power_law(SIZES, y)
    line = stats.linregress(np.log(SIZES), np.log(y))
    t = stats.t.ppf(0.975, len(SIZES) - 2)
    assert fit is not None
    assert fit.exponent == pytest.approx(line.slope)
    assert np.log(fit.factor) == pytest.approx(line.intercept)
    assert fit.half_width == pytest.approx(t * line.stderr)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng, hits, tries = np.random.default_rng(0), 0, 1000
    for _ in range(tries):
        y = [size**1.5 * np.exp(rng.normal(0, 0.1)) for size in SIZES]
        fit = power_law(SIZES, y)
        assert fit is not None and fit.half_width is not None
        hits += abs(fit.exponent - 1.5) <= fit.half_width
    assert 0.93 <= hits / tries <= 0.97


def test_too_few_points() -> None:
    assert power_law([], []) is None
    assert power_law([4], [1]) is None
    assert power_law([4, 4], [1, 2]) is None
    two = power_law([4, 8], [1, 2])
    assert two is not None and two.half_width is None and two.exponent == pytest.approx(1.0)
    assert two.text() == "1.00"


def panels(*names: str) -> list[Panel]:
    series = tuple(
        Series(name, SIZES, tuple(10.0 * (i + 1) / size for size in SIZES), (0.01,) * 5)
        for i, name in enumerate(names)
    )
    return [
        Panel("Layers", "layers", "tokens/s", series),
        Panel("Length", "digits", "tokens/s", series),
        Panel("Grid", "side", "s", series),
    ]


def words(figure: Figure) -> list[str]:
    axes = figure.axes
    legends = [t.get_text() for ax in axes for t in ax.get_legend().get_texts()]  # type: ignore[union-attr]
    titles = [ax.get_title(loc="left") for ax in axes]
    return [*titles, *legends, *[t.get_text() for t in figure.texts]]


def test_what_the_figure_says() -> None:
    figure = compose(panels("rope", "tape"), "On this machine.")
    assert len(figure.axes) == 3
    told = words(figure)
    for text in ("Layers", "Length", "Grid", "On this machine."):
        assert text in told
    minus = "\N{MINUS SIGN}"
    assert f"rope  (exponent {minus}1.00 ± 0.00)" in told
    for ax in figure.axes:
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        assert [t.get_text() for t in ax.get_xticklabels()] == ["4", "8", "16", "32", "64"]
        lines = [line for line in ax.get_lines() if line.get_linestyle() == "--"]
        assert len(lines) == 2  # the fitted law of each encoding, through exact points
        xs, ys = np.asarray(lines[0].get_xdata()), np.asarray(lines[0].get_ydata())
        assert xs.tolist() == [4.0, 64.0] and ys == pytest.approx(10.0 / xs)


def test_nothing_is_cut_off() -> None:
    """Every text within the page, every point within its axes, no legend over a point."""
    note = "A long note of what was measured where, and what the bars and dashes are. " * 5
    figure = compose(panels("rope", "tape", "fire:width=128"), note)
    figure.canvas.draw()  # places the words of the axes
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    page = figure.bbox
    texts = [*figure.texts]
    for ax in figure.axes:
        texts += [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
        legend = ax.get_legend()
        assert legend is not None
        box = legend.get_window_extent(renderer)
        assert box.x0 >= ax.bbox.x0 - 1 and box.x1 <= ax.bbox.x1 + 1
        for name in ("rope", "tape", "fire:width=128"):
            i = ("rope", "tape", "fire:width=128").index(name)
            points = np.array([(size, 10.0 * (i + 1) / size) for size in SIZES])
            for x, y in ax.transData.transform(points):
                assert ax.bbox.x0 <= x <= ax.bbox.x1 and ax.bbox.y0 <= y <= ax.bbox.y1
                assert not box.contains(x, y)
    for text in texts:
        extent = text.get_window_extent(renderer)
        assert extent.x0 >= page.x0 and extent.x1 <= page.x1, text.get_text()
        assert extent.y0 >= page.y0 and extent.y1 <= page.y1, text.get_text()


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_files(tmp_path: Path, kind: str) -> None:
    one, two = tmp_path / f"one.{kind}", tmp_path / f"two.{kind}"
    draw(panels("rope"), one, "note")
    draw(panels("rope"), two, "note")
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_size > 5_000


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        figure_format(Path("x.gif"))
    with pytest.raises(UsageError, match="nothing to draw"):
        draw([], tmp_path / "x.png", "")
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="cannot write"):
        draw(panels("rope"), tmp_path / "file" / "x.png", "")
