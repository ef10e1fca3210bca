"""The figures and tables of attention, from made-up patterns."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from tape_arith.arith.errors import UsageError
from tape_arith.arith.studies import attention_figure
from tape_arith.arith.studies.attention_data import (
    AttentionStudy,
    Example,
    Patterns,
    RunAttention,
    select_maps,
    to_json,
    to_markdown,
)
from tape_arith.arith.studies.attention_figure import by_distance, draw, maps, places
from tests.helpers.figures import assert_nothing_is_cut_off, words

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


def run(encoding: str, seed: int = 0, inside: float = 0.9, outside: float = 0.3) -> RunAttention:
    weights = np.tril(np.random.default_rng(seed).random((LAYERS, HEADS, 7, 7)))
    regions = {
        "in distribution": patterns(inside, (2, seed % 2), 8),
        # Out of distribution another head is better; it is not the one to report.
        "out of distribution": patterns(0.99, (0, 0), 12),
    }
    regions["out of distribution"].place[2, seed % 2] = outside
    return RunAttention(f"runs/{encoding}/seed-{seed}", encoding, seed, 0, regions, weights)


def study(*runs: RunAttention, example: Example | None = EXAMPLE) -> AttentionStudy:
    evaluation = {"task": "addition", "version": 1, "seed": 0, "max_digits": 16}
    return AttentionStudy(runs, "mini", 8, evaluation, example)


def squares(ax: Any) -> list[tuple[float, float]]:
    return [
        patch.get_xy()
        for patch in ax.patches
        if isinstance(patch, Rectangle) and to_hex(patch.get_edgecolor()) == RED
    ]


def test_markdown() -> None:
    text = to_markdown(study(run("rope"), run("rope", 1, 0.8, 0.2), run("fire")))
    tables = []
    for block in text.split("\n\n")[:2]:
        lines = [line[2:-2].split(" | ") for line in block.splitlines()]
        tables.append([dict(zip(lines[0], line, strict=True)) for line in lines[2:]])
    rows, diagonal = tables
    assert [row["seed"] for row in rows] == ["0", "1", "all 2", "0"]
    assert rows[1]["best head"] == "layer 3, head 2"
    assert rows[1]["place, in distribution"] == "0.800"
    assert rows[1]["place, out of distribution"] == "0.200"  # not 0.99, another head's
    # Student t of two seeds: 12.706 x 0.05.
    assert rows[2]["place, in distribution"] == "0.850 ± 0.635"
    assert len(diagonal) == 6 and diagonal[0]["layer 3"] == "0.250 ± 0.000"
    assert diagonal[2]["encoding"] == "(all that is seen alike)"
    assert diagonal[2]["layer 1"] == "0.100"
    assert "20 in distribution and 20 out of distribution" in text and "trained to 8 digits" in text


def test_one_region_alone() -> None:
    """Nothing longer than the trained lengths is tested."""
    short = run("rope")
    del short.regions["out of distribution"]
    assert "out of distribution" not in to_markdown(study(short))
    assert len(by_distance(study(short)).axes) == LAYERS
    assert len(places(study(short)).axes) == 3  # the best head, its heat map, a colour bar


def test_json() -> None:
    content = json.loads(to_json(study(run("rope")), [2], [0, 1]))
    assert (content["schema"], content["kind"], content["trained_digits"]) == (1, "attention", 8)
    (one,) = content["runs"]
    assert one["best"] == {"layer": 3, "head": 1}
    outside = one["regions"]["out of distribution"]
    assert outside["best_head"] == 0.3 and outside["place"][0][0] == 0.99
    assert len(outside["by_distance"]) == LAYERS and len(outside["uniform"]) == 12
    shown = content["maps"]
    assert (shown["layers"], shown["heads"], shown["problem"]) == ([3], [1, 2], "48+5")
    assert shown["tokens"] == ["8", "4", "+", "5", "=", "3", "5"]
    expected = run("rope").maps
    assert expected is not None
    np.testing.assert_allclose(shown["weights"]["runs/rope/seed-0"], expected[2:3])
    assert json.loads(to_json(study(run("rope"), example=None), [], []))["maps"] is None


def test_maps() -> None:
    figure = maps(study(run("rope"), run("tape")), EXAMPLE, [0, 2], [1])
    first, last = figure.axes[0], figure.axes[3]
    drawn = np.ma.masked_invalid(np.asarray(first.images[0].get_array(), dtype=float))
    expected = run("rope").maps
    assert expected is not None
    np.testing.assert_allclose(drawn.filled(0), expected[0, 1])
    assert np.ma.getmaskarray(drawn).sum() == 21  # future keys
    assert squares(first) == [(-0.5, 3.5), (2.5, 3.5), (0.5, 4.5)]
    queries = [label.get_text() for label in first.get_yticklabels()]
    arrow = "\N{RIGHTWARDS ARROW}"
    assert queries == ["8", "4", "+", "5", f"={arrow}3", f"3{arrow}5", f"5{arrow}[EOS]"]
    keys = [label.get_text() for label in last.get_xticklabels()]
    assert keys == ["8", "4", "+", "5", "=", "3", "5"] and last.get_xlabel() == "key"
    assert {label.get_text() for label in first.get_xticklabels()} == {""}
    assert "tape, seed 0, layer 3" in words(figure)
    assert "48+5 stands in the sequence as 84+5=35" in words(figure)


def test_by_distance() -> None:
    figure = by_distance(study(run("rope"), run("fire")))
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == [
        *("in distribution, layer 1", "layer 2", "layer 3"),
        *("out of distribution, layer 1", "layer 2", "layer 3"),
    ]
    rope, fire, uniform = figure.axes[LAYERS].get_lines()
    np.testing.assert_allclose(np.asarray(rope.get_ydata()), 0.5 ** np.arange(1, 13))
    assert set(np.asarray(uniform.get_ydata())) == {0.1}
    # Also for those who see no colours.
    assert rope.get_color() != fire.get_color() and rope.get_linestyle() != fire.get_linestyle()


def test_runs_of_an_encoding_are_thin_and_their_mean_is_thick() -> None:
    runs = [run("rope", seed) for seed in range(3)] + [run("fire")]
    for factor, one in zip((0.5, 1.0, 3.0), runs, strict=False):
        one.regions["in distribution"].by_distance[:, 2:] *= factor
        one.regions["in distribution"].by_distance[:, 5] = 0  # nothing to draw there
    *thin, mean, fire, uniform = by_distance(study(*runs)).axes[0].get_lines()
    assert len(thin) == 3
    assert {line.get_color() for line in (*thin, mean)} == {mean.get_color()}
    assert max(line.get_linewidth() for line in thin) < mean.get_linewidth() / 2
    assert fire.get_linewidth() == mean.get_linewidth() > uniform.get_linewidth()
    expected = 0.5 ** np.arange(1, 9) * np.where(np.arange(8) < 2, 1, 1.5)
    expected[5] = np.nan
    np.testing.assert_allclose(np.asarray(mean.get_ydata(), float), expected)


def test_places() -> None:
    figure = places(study(run("rope"), run("rope", 1), run("fire", 0, 0.7)))
    above, *heat = figure.axes
    dots = [line for line in above.get_lines() if line.get_marker() not in ("None", "")]
    scores = [float(np.asarray(dot.get_ydata())[0]) for dot in dots]
    assert scores == [0.9, 0.3, 0.9, 0.3, 0.7, 0.3]
    faces = [dot.get_markerfacecolor() == "white" for dot in dots]
    assert faces == [False, True] * 3  # hollow out of distribution
    assert [label.get_text() for label in above.get_xticklabels()] == ["rope", "fire"]
    assert [squares(ax) for ax in heat[:4]] == [[(-0.5, 1.5)]] * 2 + [[(0.5, 1.5)]] * 2
    np.testing.assert_allclose(
        np.asarray(heat[1].images[0].get_array()), run("rope").regions["out of distribution"].place
    )


def test_nothing_is_cut_off() -> None:
    names = ["rope", "tape", "fire:width=64", "tape-heads", "nope"]
    many = study(*(run(name, seed, 1.0, 0.0) for name in names for seed in (0, 1)))
    for figure in (by_distance(many), places(many), maps(many, EXAMPLE, [2], [0, 1])):
        assert_nothing_is_cut_off(figure)


def test_which_layers_and_heads() -> None:
    assert select_maps(3, 2, None, None) == ([2], [0, 1])  # the last layer, as in the paper
    assert select_maps(3, 2, None, [2], all_layers=True) == ([0, 1, 2], [1])
    assert select_maps(3, 2, [1, 3], None) == ([0, 2], [0, 1])
    for layers, heads, message in (([4], None, "no layer 4"), (None, [0], "no head 0")):
        with pytest.raises(UsageError, match=message):
            select_maps(3, 2, layers, heads)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = draw(study(run("rope")), tmp_path / "one.svg", [2], [0])
    two = draw(study(run("rope")), tmp_path / "two.svg", [2], [0])
    assert [path.name for path in one] == [f"one-{n}.svg" for n in ("distance", "places", "maps")]
    assert [a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True)] == [True] * 3
    assert len(draw(study(run("rope"), example=None), tmp_path / "three.png", [], [])) == 2
    monkeypatch.setattr(attention_figure, "MOST_MAPS", 1)
    with pytest.raises(UsageError, match="2 maps are too many"):
        draw(study(run("rope")), tmp_path / "x.png", [0], [0, 1])
    assert not list(tmp_path.glob("x*"))
