"""Free text in every kind of figure: shown as it is, with fonts that have it, in its room."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from tape_arith.arith.compare.board import Section
from tape_arith.arith.compare.curves import Curves, curve_rows
from tape_arith.arith.compare.labels import panel_labels
from tape_arith.arith.compare.leaderboard import board_of
from tape_arith.arith.compare.sweep_tables import families as families_of
from tape_arith.arith.compare.task_table import Line, TaskRuns, TaskTable
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures import (
    ablations,
    across_tasks,
    curves,
    heatmap,
    leaderboard,
    style,
    text,
)
from tape_arith.arith.grids.panel import Panel, panels_of
from tests.helpers.figures import all_words as words
from tests.helpers.figures import assert_nothing_is_cut_off, assert_texts_are_apart
from tests.helpers.made_grids import BITS, drawn, flat

NAMES = ("rope", "tape", "fire:init_l=512")
LONG = "Rotary embeddings of Su et al. in our own reimplementation"


def panels(count: int = 3) -> list[Panel]:
    return panels_of(flat(name, seed) for name in NAMES[:count] for seed in (0, 1))


def draw(kind: str, labels: dict[str, str], width: float | None = None) -> Figure:
    """Draw a figure of a kind with the labels of some encodings."""
    if kind in ("heatmap", "difference"):
        made = panels(2 if kind == "difference" else 3)
        return heatmap.compose(made, labels=labels, width=width)
    if kind == "lines":
        bits = panels_of(drawn(name, seed, BITS) for name in NAMES for seed in (0, 1))
        return heatmap.compose(bits, labels=labels, width=width)
    names = panel_labels(panels(), labels)
    if kind == "leaderboard":
        return leaderboard.compose(board_of(panels(), {}).labelled(labels), width=width)
    if kind == "curves":
        state = {"norm": [1.0, 2.0], "moved": [1.0, 2.0]}
        lines = [{"step": n, "loss": 1 / n, "exact_match": 0.5} for n in (1, 2, 3)]
        with_state = [line | {"state": state} for line in lines]
        rows = curve_rows([("rope", 0, with_state), *((name, 0, lines) for name in NAMES[1:])])
        content = Curves({name: [0] for name in NAMES}, "mini", {}, "addition", 4, 8, rows)
        return curves.compose(content, labels=names, width=width)
    runs = [TaskRuns(task, "mini", "mini", "trained", "source", "") for task in ("copy", "sort")]
    tasks = [
        Line(one.name, {"copy": one, "sort": one}, {"copy": 1.0, "sort": 1.0}, ("copy", "sort"))
        for one in panels()
    ]
    table = TaskTable([Section("Task-agnostic", "", tasks)], runs, labels=names)
    return across_tasks.compose(table, width=width)


KINDS = ("heatmap", "difference", "lines", "leaderboard", "curves", "tasks")


@pytest.mark.parametrize("kind", KINDS)
def test_long_labels_are_plain_text_and_keep_to_their_room(kind: str, tmp_path: Path) -> None:
    plain = r"$5 $\alpha$ a\$b^2"
    with mpl.rc_context({"text.usetex": True, "font.size": 30}):  # a person's own matplotlibrc
        figure = draw(kind, {"rope": f"{LONG} {plain}", "tape": "W" * 90}, 3.3)
        style.save(figure, tmp_path / "a.svg")
    assert_nothing_is_cut_off(figure)
    if kind in ("heatmap", "difference", "leaderboard"):  # others have ticks that are not shown
        assert_texts_are_apart(figure)
    assert plain in words(figure) and figure.get_figwidth() == 3.3
    # As one piece, in one font.
    assert f" {plain}" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_a_room_is_that_of_the_drawn_panels() -> None:
    """The title ends where the next panel begins, wherever the layout has put that."""
    figure = draw("heatmap", {"rope": LONG, "tape": LONG + " again"}, 6.0)
    figure.draw_without_rendering()
    one, other = figure.axes[:2]
    title = one._left_title.get_window_extent()  # type: ignore[attr-defined]
    assert one.bbox.x1 < title.x1 < other.bbox.x0


def test_what_is_measured_is_never_cut() -> None:
    """A mark and means stay whole in the smallest panels; only names lose their beginning."""
    made = panels_of(flat(f"rope{n}", 0, inside=90) for n in range(5))
    figure = heatmap.compose(made, labels={made[0].name: LONG}, width=3.3, columns=3)
    assert_texts_are_apart(figure)
    shown = words(figure)
    assert shown.count("· not converged") == 5 and shown.count("\u2026") == 1
    assert shown.count("out 20.0") == 5


def test_ablations_have_plain_labels() -> None:
    made = panels(2)
    assert "RoPE" in words(ablations.compose(families_of(made), made))


def test_numbers_too_narrow_to_read_are_refused() -> None:
    runs = [TaskRuns(f"task-{n}", "mini", "mini", "trained", "source", "") for n in range(24)]
    cells = {each.task: panels(1)[0] for each in runs}
    table = TaskTable([Section("Task-agnostic", "", [Line("rope", cells, {}, ())])], runs)
    with pytest.raises(UsageError, match="--width"):
        across_tasks.compose(table, width=3.3)
    figure = across_tasks.compose(table, width=7)
    assert_nothing_is_cut_off(figure)
    assert len(figure.axes) == 2 and figure.axes[1].get_xlim() == (0, 1)  # the colour bar


# ---- fonts -------------------------------------------------------------------------------------


@pytest.fixture
def chinese_font(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A font with one letter that appears on this machine; matplotlib has not seen it."""
    build = FontBuilder(1000, isTTF=True)
    build.setupGlyphOrder([".notdef", "middle"])
    build.setupCharacterMap({ord("中"): "middle"})
    pen = TTGlyphPen(None)
    for place, corner in enumerate(((100, 0), (100, 700), (900, 700), (900, 0))):
        (pen.moveTo if place == 0 else pen.lineTo)(corner)
    pen.closePath()
    build.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "middle": pen.glyph()})
    build.setupHorizontalMetrics({".notdef": (1000, 0), "middle": (1000, 100)})
    build.setupHorizontalHeader(ascent=800, descent=-200)
    build.setupNameTable({"familyName": "Made Up", "styleName": "Regular"})
    build.setupOS2()
    build.setupPost()
    build.save(tmp_path / "made.ttf")
    known = list(fontManager.ttflist)
    monkeypatch.setattr(text, "findSystemFonts", lambda: [str(tmp_path / "made.ttf")])
    for cached in (text._others, text._fallbacks, text._width):
        cached.cache_clear()
    yield
    fontManager.ttflist[:] = known
    for cached in (text._others, text._fallbacks, text._width):
        cached.cache_clear()


@pytest.mark.usefixtures("chinese_font")
def test_letters_come_from_a_font_that_has_them_and_others_are_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # U+13000 is a hieroglyph, which few machines have.
    figure = draw("tasks", {"rope": "中 αβ", "tape": "Ταπε \U00013000"})
    for ending in ("svg", "pdf"):
        style.save(figure, tmp_path / f"a.{ending}")
    unknown = text.letters_without_font("中\U00013000")
    note = f"note: no font of this machine has {unknown}: the figure shows boxes;"
    assert capsys.readouterr().err.count(note) == bool(unknown) and "中" not in unknown
    assert "Made Up" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    # As wide as it is drawn: 1000 units of 1000.
    assert text.text_width("中", 10) == pytest.approx(10, abs=0.3)


@pytest.mark.slow
def test_no_warning_of_a_library_reaches_stderr(trained: Path, tmp_path: Path) -> None:
    """As where the home folder cannot be written and its matplotlibrc is another program's."""
    (tmp_path / "matplotlibrc").write_text("no.such: 1\n")
    words = ["heatmap", "--pe", "rope,fire", "--runs", trained / "runs", "--label", "rope=中$"]
    command = [sys.executable, "-m", "tape_arith", *map(str, words)]
    result = subprocess.run(
        [*command, "--figure", str(tmp_path / "a.pdf")],
        env={"PATH": "", "MPLCONFIGDIR": "/proc/none", "PYTHONPATH": ":".join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = result.stderr.splitlines()
    assert all("中" in line for line in lines)
