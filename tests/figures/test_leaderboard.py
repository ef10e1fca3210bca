"""The leaderboard's figure: what stands where, and that all of it can be read."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.leaderboard import COLOUR, NOT_RANKED, compose, draw, placed
from tape_arith.arith.figures.leaderboard_data import Board, Section
from tests.helpers.boards import board, standing

STRUCTURED = "these know where digits stand, a prior that the others do not have"
FAILED = "below 99 % in distribution (not converged), or not fully scored"


@pytest.fixture
def three() -> Board:
    return board(
        Section("Task-agnostic", "", [standing("fire", [0.3, 0.2, 0.25]), standing("rope", [0.1])]),
        Section("Task-structured", STRUCTURED, [standing("abacus", [0.5, 0.4])]),
        Section(
            "Not ranked", FAILED, [standing("fox", [0.0], mark="not converged", inside=0.9895)]
        ),
    )


def words(figure: Figure) -> list[str]:
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [text.get_text() for text in texts if text.get_visible()]


def points(figure: Figure) -> dict[float, list[tuple[float, Any]]]:
    """By row: each mark's place in percent, and its colour."""
    found: dict[float, list[tuple[float, Any]]] = {}
    for artist in figure.axes[0].collections:
        if isinstance(artist, PathCollection):
            for x, y in np.asarray(artist.get_offsets()):
                found.setdefault(float(y), []).append((float(x), artist))
    return found


def test_a_row_an_encoding_in_the_order_given(three: Board) -> None:
    rows = [line for line in placed(three) if line.standing]
    assert [r.standing.row.encoding for r in rows if r.standing] == [
        "fire",
        "rope",
        "abacus",
        "fox",
    ]
    assert [line.y for line in rows] == sorted(line.y for line in rows)
    figure = compose(three)
    low, high = figure.axes[0].get_ylim()
    assert low > rows[-1].y > rows[0].y > high == 0  # the first on top
    drawn = words(figure)
    for name in ("fire", "rope", "abacus", "fox", "Task-agnostic", "Task-structured", STRUCTURED):
        assert drawn.count(name) == 1


def test_seeds_mean_and_interval(three: Board) -> None:
    figure = compose(three)
    places = {line.standing.row.encoding: line.y for line in placed(three) if line.standing}
    found = points(figure)
    fire = sorted(x for x, _ in found[places["fire"]])
    assert fire == pytest.approx([20, 25, 25, 30])  # three seeds and their mean
    bars = [a for a in figure.axes[0].collections if isinstance(a, LineCollection)]
    ends = {float(bar.get_segments()[0][0, 1]): bar.get_segments()[0][:, 0] for bar in bars}
    half = 100 * 4.302653 * 0.05 / 3**0.5
    assert ends[places["fire"]] == pytest.approx([25 - half, 25 + half], abs=1e-4)
    # One seed: an open diamond, no mean of its own and no interval.
    ((x, alone),) = found[places["rope"]]
    assert x == pytest.approx(10) and places["rope"] not in ends
    assert np.allclose(alone.get_facecolor()[0][:3], 1.0)
    assert not np.allclose(found[places["fire"]][0][1].get_facecolor()[0][:3], 1.0)


def test_the_scale_ends_where_seeds_do_not_where_intervals_do() -> None:
    apart = board(Section("Task-agnostic", "", [standing("coupling", [0.19, 0.58, 0.59])]))
    near = board(Section("Task-agnostic", "", [standing("rope", [0.01, 0.012])]))
    for shown, top, cut in ((apart, 60, True), (near, 2, False)):
        figure = compose(shown)
        assert figure.axes[0].get_xlim()[1] == pytest.approx(1.015 * top)
        told = " ".join(words(figure)).replace("\N{NO-BREAK SPACE}", " ")
        assert ("The scale ends at 60 %, and intervals with it." in " ".join(told.split())) == cut


def test_what_is_not_ranked_is_grey(three: Board) -> None:
    from matplotlib.colors import to_rgb

    figure, last = compose(three), list(placed(three))[-1].y
    found = points(figure)
    ((_, mark),) = found[last]
    assert np.allclose(mark.get_edgecolor()[0][:3], to_rgb(NOT_RANKED))
    for y in set(found) - {last}:
        colours = [
            np.concatenate([m.get_facecolor(), m.get_edgecolor()])[:, :3] for _, m in found[y]
        ]
        assert all(any(np.allclose(one, to_rgb(COLOUR)) for one in of) for of in colours)
    name = next(text for text in figure.findobj(Text) if text.get_text() == "fox")
    assert isinstance(name, Text) and name.get_color() == NOT_RANKED


def test_the_numbers_beside_the_points(three: Board) -> None:
    drawn = words(compose(three))
    assert "25.0" in drawn and drawn.count("99.6") == 3
    assert "98.95" in drawn and "99.0" not in drawn  # not converged, and not rounded up to it
    assert drawn.count("3") == 1 and drawn.count("1") == 2


def test_the_legend_names_the_signs_that_are_there(three: Board) -> None:
    def told(shown: Board) -> set[str]:
        (legend,) = compose(shown).legends
        return {text.get_text().replace("\N{NO-BREAK SPACE}", " ") for text in legend.get_texts()}

    seeds = {"a seed (training run)", "their mean", "95 % interval over seeds (Student t)"}
    alone, grey = "one seed: this run only", "not ranked"
    assert told(three) == seeds | {alone, grey}
    assert told(board(Section("Task-agnostic", "", [standing("rope", [0.1, 0.2])]))) == seeds
    assert told(board(Section("Task-agnostic", "", [standing("rope", [0.1])]))) == {alone}


def test_what_was_left_out_is_said() -> None:
    only = Section("Task-agnostic", "", [standing("rope", [0.1])])
    told = " ".join(words(compose(board(only, left_out=[("fire seed 3", "steps 5, not 9")]))))
    assert "Left out: fire seed 3: steps 5, not 9." in " ".join(told.split())


@pytest.mark.parametrize("count", [45])
def test_no_text_leaves_the_page_or_meets_another(count: int) -> None:
    names = ["rope", "rand-sinusoidal", "fire:init_l=512:width=64", "a/long/path.py:Mine:option=3"]
    made = [
        standing(f"{names[k % 4]}{k}", [0.9 - k / 60, 0.92 - k / 60][: 1 + k % 2])
        for k in range(count)
    ]
    third = max(1, count // 3)
    parts = [
        Section("Task-agnostic", "", made[:third]),
        Section("Task-structured", STRUCTURED, made[third : 2 * third]),
        Section("Not ranked", FAILED, made[2 * third :]),
    ]
    shown = board(*[part for part in parts if part.standings], left_out=[("rope seed 3", "why")])
    figure = compose(shown)
    assert figure.get_figwidth() <= 3.5
    assert figure.get_figheight() <= 9.0  # a page, 45 encodings with a foot of some lines
    figure.canvas.draw()
    page, boxes = figure.bbox, []
    for text in figure.findobj(Text):
        if not isinstance(text, Text) or not text.get_text().strip() or not text.get_visible():
            continue
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1
        assert inside, text.get_text()
        assert float(text.get_fontsize()) >= 4.2
        boxes.append((box.x0 + 1, box.x1 - 1, box.y0 + 3, box.y1 - 3, text.get_text()))
    for k, (x0, x1, y0, y1, one) in enumerate(boxes):
        for u0, u1, v0, v1, other in boxes[k + 1 :]:
            assert x1 <= u0 or u1 <= x0 or y1 <= v0 or v1 <= y0, (one, other)


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.pdf", b"%PDF")])
def test_files(three: Board, tmp_path: Path, name: str, start: bytes) -> None:
    draw(three, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(start)
    draw(three, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


def test_svg_and_other_endings(three: Board, tmp_path: Path) -> None:
    draw(three, tmp_path / "a.svg")
    ElementTree.parse(tmp_path / "a.svg")
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        draw(three, tmp_path / "a.jpg")
    assert [file.name for file in tmp_path.iterdir()] == ["a.svg"]
