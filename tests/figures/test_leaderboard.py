"""The leaderboard's figure: what stands where, and that all of it can be read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.markers import CARETLEFT, CARETRIGHT
from matplotlib.text import Text
from scipy import stats

from tape_arith.arith.compare.board import Board, Row, Section
from tape_arith.arith.compare.effects import Effect
from tape_arith.arith.compare.labels import display_names
from tape_arith.arith.compare.leaderboard import SECTIONS
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures import forest
from tape_arith.arith.figures.leaderboard import COLOUR, NOT_RANKED, compose, heights
from tape_arith.arith.grids.panel import Panel
from tests.helpers.figures import assert_texts_are_apart
from tests.helpers.made_grids import filled
from tests.helpers.tiny_runs import refused

STRUCTURED = "these know where digits stand, a prior that the others do not have"
FAILED = SECTIONS["Not ranked"]


def row(name: str, values: Sequence[float], *, inside: float = 0.996) -> Row:
    """Return an encoding whose seeds have `values` out of distribution."""
    name, _, change = name.partition("+")
    counts = [np.full((16, 16), round(10_000 * value)) for value in values]
    for exact in counts:
        exact[:8, :8] = round(10_000 * inside)
    panel = Panel.of(
        filled(exact, 10_000, encoding=name, extrapolation=change or None, seed=seed, trained=8)
        for seed, exact in enumerate(counts)
    )
    effects = dict.fromkeys(("rope", "tape"), Effect(why_not="nothing to test"))
    return Row(panel, rank=1 if panel.ranked else None, kind="rotary", effects=effects)


def board(*sections: Section[Row], left_out: Sequence[tuple[str, str]] = ()) -> Board:
    """Return a leaderboard of `sections`."""
    labels = display_names(row.panel.name for section in sections for row in section.rows)
    return Board(sections, ("rope", "tape"), left_out=left_out, labels=labels)


@pytest.fixture(scope="module")
def three() -> Board:
    return board(
        Section("Task-agnostic", "", [row("fire", [0.3, 0.2, 0.25]), row("rope", [0.1])]),
        Section("Task-structured", STRUCTURED, [row("abacus", [0.5, 0.4])]),
        Section("Not ranked", FAILED, [row("fox", [0.0], inside=0.9895)]),
    )


@pytest.fixture(scope="module")
def figure(three: Board) -> Figure:
    return compose(three)


def words(figure: Figure) -> list[str]:
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    shown = [text.get_text() for text in texts if text.get_visible()]
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in shown]


def marks(figure: Figure) -> dict[float, list[tuple[float, Any]]]:
    """Return each mark's place in percent and its line, by row."""
    places: dict[float, list[tuple[float, Any]]] = {}
    for line in figure.axes[0].lines:
        if line.get_linestyle() == "None":
            for x, y in np.asarray(line.get_xydata()):
                places.setdefault(float(y), []).append((float(x), line))
    return places


def test_a_row_an_encoding_in_the_order_given(three: Board, figure: Figure) -> None:
    titles, rows = heights(three)
    assert [one.panel.name for one in rows.values()] == ["fire", "rope", "abacus", "fox"]
    assert list(rows) == sorted(rows) and min(titles) < min(rows)
    low, high = figure.axes[0].get_ylim()
    assert low > max(rows) > min(rows) > high == 0  # the first on top
    drawn = words(figure)
    for name in ("FIRE", "RoPE", "Abacus", "FoX", "Task-agnostic", "Task-structured", STRUCTURED):
        assert drawn.count(name) == 1
    assert "25.0" in drawn and drawn.count("99.6") == 3
    assert "98.95" in drawn and "99.0" not in drawn  # not converged, and not rounded up to it
    assert drawn.count("3") == 1 and drawn.count("1") == 2


def test_seeds_mean_and_interval(three: Board, figure: Figure) -> None:
    places = {one.panel.name: y for y, one in heights(three)[1].items()}
    drawn = marks(figure)
    assert sorted(x for x, _ in drawn[places["fire"]]) == pytest.approx([20, 25, 25, 30])
    bars: Any = [line for line in figure.axes[0].lines if line.get_alpha()]
    ends = {bar.get_ydata()[0]: bar.get_xdata() for bar in bars}
    half = 100 * 4.302653 * 0.05 / 3**0.5
    assert ends[places["fire"]] == pytest.approx([25 - half, 25 + half], abs=1e-4)
    # One seed: an open diamond, no mean of its own and no interval.
    ((x, alone),) = drawn[places["rope"]]
    assert x == pytest.approx(10) and places["rope"] not in ends
    assert (alone.get_markerfacecolor(), alone.get_color()) == ("w", COLOUR)
    # What is not ranked is grey.
    ((_, mark),) = drawn[places["fox"]]
    assert mark.get_color() == NOT_RANKED


def test_the_scale_ends_where_seeds_do_not_where_intervals_do() -> None:
    apart = board(Section("Task-agnostic", "", [row("coupling", [0.19, 0.58, 0.59])]))
    near = board(
        Section("Task-agnostic", "", [row("rope", [0.01, 0.012])]), left_out=[("fire", "why")]
    )
    for shown, top in ((apart, 60), (near, 2)):
        figure = compose(shown)
        assert_texts_are_apart(figure)  # a single row, too
        assert figure.axes[0].get_xlim()[1] == pytest.approx(1.015 * top)
        text = " ".join(" ".join(words(figure)).split())
        assert ("at 60 %," in text) == (shown is apart)
        assert ("fire: why." in text) == (shown is near)


def test_the_legend_names_the_signs_that_are_there(figure: Figure) -> None:
    def signs(figure: Figure) -> set[str]:
        (legend,) = figure.legends
        return {text.get_text().replace("\N{NO-BREAK SPACE}", " ") for text in legend.get_texts()}

    alone = "one seed: over problems"
    several = {"a seed (training run)", "their mean", "95 % interval over seeds (Student t)"}
    assert signs(figure) == several | {alone, "not ranked"}
    assert signs(compose(board(Section("Task-agnostic", "", [row("rope", [0.1])])))) == {alone}


def test_a_given_width_and_labels(three: Board) -> None:
    labels = {row.panel.name: f"Ours, {row.panel.name} with all its options" for row in three.rows}
    figure = compose(replace(three, labels=labels), width=5.5, caption=False)
    assert_texts_are_apart(figure)
    text = words(figure)
    assert figure.get_figwidth() == 5.5 and labels["fire"] in text
    assert "Rows by" not in " ".join(" ".join(text).split())


def test_no_text_leaves_the_page_or_meets_another(three: Board) -> None:
    names = ["rope", "rand-sinusoidal", "fire:init_l=512:width=64", "a/long/path.py:Mine:option=3"]
    made = [
        row(f"{names[k % 4]}{k}", [0.9 - k / 60, 0.92 - k / 60][: 1 + k % 2]) for k in range(45)
    ]
    parts = [
        Section("Task-agnostic", "", made[:15]),
        Section("Task-structured", STRUCTURED, made[15:30]),
        Section("Not ranked", FAILED, made[30:]),
    ]
    figure = compose(board(*parts, left_out=[("rope seed 3", "why")]))
    assert figure.get_figwidth() <= 3.5
    assert figure.get_figheight() <= 9.0  # a page, 45 encodings with a foot of some lines
    assert_texts_are_apart(figure)
    for shown, at_top in ((compose(three), False), (figure, True)):
        tick = shown.axes[0].xaxis.get_major_ticks()[0]
        assert (tick.label1.get_visible(), tick.label2.get_visible()) == (True, at_top)


def test_a_forest_of_differences() -> None:
    seeds = {"rope": [0.1, 0.12, 0.14], "fire": [0.3, 0.2, 0.25], "nope": [0.05, 0.1]}
    changed = {"rope+yarn": [0.15, 0.2], "tape+yarn": [0.35, 0.3]}  # at test time
    rows = [row(name, values) for name, values in (seeds | changed | {"t5": [0.2]}).items()]
    shown = board(
        Section("Task-agnostic", "", rows),
        Section("Not ranked", FAILED, [row("fox", [0, 0.1], inside=0.9)]),
    )
    figure = forest.compose(shown, "rope")
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["FIRE", "NoPE"]
    cuts = set[object]()
    for y, name in zip(ax.get_yticks(), ("fire", "nope"), strict=True):
        one, other = seeds[name], seeds["rope"]
        lines = [
            line
            for line in ax.lines
            if y in np.asarray(line.get_ydata()) and line.get_color() == COLOUR
        ]
        arrows = {line.get_marker() for line in lines} & {CARETLEFT, CARETRIGHT}
        lines = [line for line in lines if line.get_marker() not in arrows]
        welch, middle, pairs = (np.asarray(line.get_xdata()) / 100 for line in lines)
        oracle = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
        assert welch == pytest.approx([oracle.low, oracle.high])
        low, high = ax.get_xlim()
        cut = {CARETLEFT: 100 * oracle.low < low, CARETRIGHT: 100 * oracle.high > high}
        assert arrows == {marker for marker, beyond in cut.items() if beyond}
        cuts |= arrows
        assert middle == pytest.approx(np.mean(one) - np.mean(other))
        oracle = stats.ttest_rel(one, other[: len(one)]).confidence_interval()
        assert pairs == pytest.approx([oracle.low, oracle.high])
    assert "+13.0 \N{PLUS-MINUS SIGN}" in " ".join(words(figure))
    assert_texts_are_apart(figure)
    assert cuts, "no interval is cut, so no arrow was looked for"
    (ax,) = forest.compose(shown, "rope+yarn").axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["TAPE + YaRN"]
    for wrong, message in (("t5", "one seed"), ("fox", "not ranked"), ("tape", "unknown ranked")):
        with pytest.raises(UsageError, match=message):
            forest.compose(shown, wrong)
    assert "add --figure" in refused("leaderboard", "--against", "rope")
