"""The figures and tables of attention: what they draw, say and outline."""

import colorsys
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tape_arith.arith.errors import UsageError
from tape_arith.arith.studies.attention_figure.distance import by_distance
from tape_arith.arith.studies.attention_figure.draw import draw
from tape_arith.arith.studies.attention_figure.maps import maps
from tape_arith.arith.studies.attention_figure.page import colours
from tape_arith.arith.studies.attention_figure.places import places
from tape_arith.arith.studies.attention_figure.study import Example, StudiedAttention, Study, chosen
from tape_arith.arith.studies.attention_patterns import Patterns
from tape_arith.arith.studies.attention_table import to_json, to_markdown

LAYERS, HEADS = 3, 2
EXAMPLE = Example("48+5", ("8", "4", "+", "5", "=", "3", "5", "[EOS]"), 5, ((4, 0), (4, 3), (5, 1)))
RED = "#e0452f"


def patterns(place: float, best: tuple[int, int], longest: int) -> Patterns:
    scores = np.full((LAYERS, HEADS), 0.05)
    scores[best] = place
    distances = np.tile(0.5 ** np.arange(1, longest + 1), (LAYERS, 1))
    return Patterns(
        by_distance=distances,
        diagonal=np.full((LAYERS, HEADS), 0.25),
        place=scores,
        uniform=np.full(longest, 0.1),
        chance=0.11,
        problems=20,
        positions=60,
    )


def studied(encoding: str, seed: int = 0, inside: float = 0.9, outside: float = 0.3) -> Any:
    generator = np.random.default_rng(seed)
    weights = np.tril(generator.random((LAYERS, HEADS, 7, 7)))
    regions = {
        "in distribution": patterns(inside, (2, seed % 2), 8),
        # Out of distribution another head is better; it is not the one to report.
        "out of distribution": patterns(0.99, (0, 0), 12),
    }
    regions["out of distribution"].place[2, seed % 2] = outside
    return StudiedAttention(f"runs/{encoding}/seed-{seed}", encoding, seed, 0, regions, weights)


def study(*runs: StudiedAttention, example: Example | None = EXAMPLE) -> Study:
    evaluation = {"task": "addition", "version": 1, "seed": 0, "max_digits": 16}
    return Study(runs, "mini", 8, evaluation, example)


def table(text: str, number: int) -> list[dict[str, str]]:
    block = text.split("\n\n")[number]
    lines = [[cell.strip() for cell in line[1:-2].split(" | ")] for line in block.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_markdown() -> None:
    made = study(studied("rope"), studied("rope", 1, 0.8, 0.2), studied("fire"))
    text = to_markdown(made)
    rows = table(text, 0)
    assert [row["seed"] for row in rows] == ["0", "1", "all 2", "0"]
    assert rows[1]["best head"] == "layer 3, head 2"
    assert rows[1]["place, in distribution"] == "0.800"
    assert rows[1]["place, out of distribution"] == "0.200"  # not 0.99, another head's
    # Student t of two seeds: 12.706 x 0.05.
    assert rows[2]["place, in distribution"] == "0.850 ± 0.635"
    diagonal = table(text, 1)
    assert len(diagonal) == 6 and diagonal[0]["layer 3"] == "0.250 ± 0.000"
    assert (
        diagonal[2]["encoding"] == "(all that is seen alike)" and diagonal[2]["layer 1"] == "0.100"
    )
    assert "20 in distribution and 20 out of distribution" in text and "trained to 8 digits" in text


def test_one_region_alone() -> None:
    """Where nothing longer than the trained lengths is tested."""
    run = studied("rope")
    del run.regions["out of distribution"]
    made = study(run)
    assert "out of distribution" not in to_markdown(made).replace(" out of it", "")
    assert len(by_distance(made).axes) == LAYERS
    assert len(places(made).axes) == 3  # the best head, its heat map, a colour bar


def test_json() -> None:
    content = json.loads(to_json(study(studied("rope")), [2], [0, 1]))
    assert (content["schema"], content["kind"], content["trained_digits"]) == (1, "attention", 8)
    (run,) = content["runs"]
    assert run["best"] == {"layer": 3, "head": 1}
    outside = run["regions"]["out of distribution"]
    assert outside["best_head"] == 0.3 and outside["place"][0][0] == 0.99
    assert len(outside["by_distance"]) == LAYERS and len(outside["uniform"]) == 12
    maps = content["maps"]
    assert (maps["layers"], maps["heads"], maps["problem"]) == ([3], [1, 2], "48+5")
    assert maps["tokens"] == ["8", "4", "+", "5", "=", "3", "5"]
    weights = np.array(maps["weights"]["runs/rope/seed-0"])
    np.testing.assert_allclose(weights, studied("rope").maps[2:3])
    assert json.loads(to_json(study(studied("rope"), example=None), [], []))["maps"] is None


def squares(ax: Any) -> list[tuple[float, float]]:
    return [
        patch.get_xy()
        for patch in ax.patches
        if isinstance(patch, Rectangle) and to_hex(patch.get_edgecolor()) == RED
    ]


def test_maps() -> None:
    figure = maps(study(studied("rope"), studied("tape")), [0, 2], [1])
    panels = figure.axes[:4]
    first = panels[0]
    drawn = np.ma.masked_invalid(np.asarray(first.images[0].get_array(), dtype=float))
    np.testing.assert_allclose(drawn.filled(0), studied("rope").maps[0, 1])
    hidden = np.ma.getmaskarray(drawn)
    assert hidden.sum() == 21  # future keys
    assert squares(first) == [(-0.5, 3.5), (2.5, 3.5), (0.5, 4.5)]
    queries = [label.get_text() for label in first.get_yticklabels()]
    arrow = "\N{RIGHTWARDS ARROW}"
    assert queries == ["8", "4", "+", "5", f"={arrow}3", f"3{arrow}5", f"5{arrow}[EOS]"]
    keys = [label.get_text() for label in panels[3].get_xticklabels()]
    assert keys == ["8", "4", "+", "5", "=", "3", "5"] and "key" in [
        text.get_text() for text in figure.texts
    ]
    assert {label.get_text() for label in first.get_xticklabels()} == {""}
    words = [text.get_text() for text in figure.texts]
    assert "tape, seed 0, layer 3" in words
    told = words[0].replace("\n", " ")
    assert "48+5 stands in the sequence as 84+5=35" in told and "least significant digit" in told


def test_by_distance() -> None:
    figure = by_distance(study(studied("rope"), studied("fire")))
    assert len(figure.axes) == 2 * LAYERS
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles[:2] == ["in distribution, layer 1", "layer 2"]
    assert titles[LAYERS] == "out of distribution, layer 1"
    rope, fire, uniform = figure.axes[LAYERS].get_lines()
    np.testing.assert_allclose(np.asarray(rope.get_ydata()), 0.5 ** np.arange(1, 13))
    assert uniform.get_color() == "#999999" and set(np.asarray(uniform.get_ydata())) == {0.1}
    assert rope.get_color() != fire.get_color()
    # Also for those who see no colours.
    assert (rope.get_linestyle(), fire.get_linestyle()) == ("-", "--")
    assert "A line a run, these runs only." in " ".join(figure.texts[0].get_text().split())


def test_runs_of_an_encoding_are_thin_and_their_mean_is_thick() -> None:
    runs = [studied("rope", seed) for seed in range(3)] + [studied("fire")]
    for factor, one in zip((0.5, 1.0, 3.0), runs, strict=False):
        one.regions["in distribution"].by_distance[:, 2:] *= factor
        one.regions["in distribution"].by_distance[:, 5] = 0  # nothing to draw there
    figure = by_distance(study(*runs))
    *thin, mean, fire, uniform = figure.axes[0].get_lines()
    assert len(thin) == 3
    assert {line.get_color() for line in (*thin, mean)} == {mean.get_color()}
    assert max(line.get_linewidth() for line in thin) < mean.get_linewidth() / 2
    assert fire.get_linewidth() == mean.get_linewidth() > uniform.get_linewidth()
    usual = 0.5 ** np.arange(1, 9)
    expected = np.where(np.arange(8) < 2, usual, 1.5 * usual)
    expected[5] = np.nan
    np.testing.assert_allclose(np.asarray(mean.get_ydata(), float), expected)
    told = " ".join(figure.texts[0].get_text().split())
    assert "Thin: a run; thick: the mean of an encoding's runs, these runs only." in told


def test_encodings_have_styles_and_hues_of_their_own() -> None:
    names = ["rope", "tape", "tape-heads", "fire", "nope"]
    found = colours(names)
    assert list(found) == names and len(set(found.values())) == 5
    hues = sorted(colorsys.rgb_to_hsv(*colour)[0] for colour in list(found.values())[:4])
    assert min(b - a for a, b in pairwise([*hues, hues[0] + 1])) > 0.04
    handles = by_distance(study(*map(studied, names))).legends[0].get_lines()
    dashes = [str(line._unscaled_dash_pattern) for line in handles]  # type: ignore[attr-defined]
    assert len(set(dashes[:4])) == 4
    above = places(study(*map(studied, names))).axes[0]
    assert {to_hex(line.get_color()) for line in above.get_lines()} >= set(
        map(to_hex, found.values())
    )


def test_markers_at_the_ends_have_room() -> None:
    above = places(study(studied("rope", 0, 1.0, 0.0))).axes[0]
    dots = [line for line in above.get_lines() if line.get_marker() not in ("None", "")]
    radius = max(float(dot.get_markersize()) for dot in dots) / 2 * above.figure.dpi / 72
    bottom, top = (above.transData.transform((0, y))[1] for y in (0, 1))
    frame = above.get_window_extent()
    assert bottom - radius > frame.y0 and top + radius < frame.y1
    assert [label.get_text() for label in above.get_yticklabels()][-1] == "1.0"


def test_places() -> None:
    figure = places(study(studied("rope"), studied("rope", 1), studied("fire", 0, 0.7)))
    above, *maps = figure.axes
    dots = [line for line in above.get_lines() if line.get_marker() not in ("None", "")]
    scores = [float(np.asarray(dot.get_ydata())[0]) for dot in dots]
    assert scores == [0.9, 0.3, 0.9, 0.3, 0.7, 0.3]
    faces = [dot.get_markerfacecolor() == "white" for dot in dots]
    assert faces == [False, True] * 3  # hollow out of distribution
    assert [label.get_text() for label in above.get_xticklabels()] == ["rope", "fire"]
    heat = maps[:6]
    assert [squares(ax) for ax in heat[:4]] == [
        [(-0.5, 1.5)],
        [(-0.5, 1.5)],
        [(0.5, 1.5)],
        [(0.5, 1.5)],
    ]
    np.testing.assert_allclose(
        np.asarray(heat[1].images[0].get_array()),
        studied("rope").regions["out of distribution"].place,
    )
    told = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
    assert "chosen and shown on the same problems" in told and "a last carry" in told


def assert_nothing_cut_off(figure: Figure) -> None:
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    texts = [*figure.texts]
    for ax in figure.axes:
        low, high = ax.get_xlim()
        inside = [label for label in ax.get_xticklabels() if low <= label.get_position()[0] <= high]
        texts += [ax.xaxis.label, ax.yaxis.label, *inside, *ax.get_yticklabels()]
        texts += [getattr(ax, name) for name in ("title", "_left_title")]
    for text in texts:
        if not text.get_text():
            continue
        box = text.get_window_extent(renderer)
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, text.get_text()
        assert box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1, text.get_text()
    note = figure.texts[0].get_window_extent(renderer)
    for ax in figure.axes:
        assert ax.get_window_extent(renderer).y0 >= note.y1


@pytest.mark.parametrize("count", [5])
def test_nothing_is_cut_off(count: int) -> None:
    names = ["rope", "tape", "fire:width=64", "tape-heads", "nope"]
    made = study(*(studied(name, seed) for name in names[:count] for seed in (0, 1)))
    for figure in (
        by_distance(made),
        places(made),
        maps(made, [2], [0, 1]),
    ):
        assert_nothing_cut_off(figure)


def test_which_layers_and_heads() -> None:
    assert chosen(3, 2, None, None) == ([2], [0, 1])  # the last layer, as in the paper
    assert chosen(3, 2, None, [2], every=True) == ([0, 1, 2], [1])
    assert chosen(3, 2, [1, 3], None) == ([0, 2], [0, 1])
    for layers, heads, told in (([4], None, "no layer 4"), (None, [0], "no head 0")):
        with pytest.raises(UsageError, match=told):
            chosen(3, 2, layers, heads)


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("svg", "pdf")]


@pytest.mark.parametrize("kind", ["png", *SLOW])
def test_files(tmp_path: Path, kind: str) -> None:
    made = study(studied("rope"))
    one = draw(made, tmp_path / f"one.{kind}", [2], [0])
    two = draw(made, tmp_path / f"two.{kind}", [2], [0])
    assert [path.name for path in one] == [
        f"one-{n}.{kind}" for n in ("distance", "places", "maps")
    ]
    assert [a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True)] == [True] * 3
    without = draw(study(studied("rope"), example=None), tmp_path / f"three.{kind}", [2], [0])
    assert len(without) == 2


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        draw(study(studied("rope")), tmp_path / "x.gif", [0], [0])
    monkeypatch.setattr("tape_arith.arith.studies.attention_figure.maps.MOST_MAPS", 1)
    with pytest.raises(UsageError, match="2 maps are too many"):
        draw(study(studied("rope")), tmp_path / "x.png", [0], [0, 1])
    assert list(tmp_path.iterdir()) == []
