"""The heatmap's artists: what is drawn where, and what a reader is told."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from tape_arith.arith.compare.captions import footnote
from tape_arith.arith.compare.lengths import ticks
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.figures.heatmap import compose
from tape_arith.arith.figures.layout import Looks, layout
from tape_arith.arith.figures.style import page, save
from tape_arith.arith.grids.panel import Panel, panels_of, significant_cells
from tests.helpers.figures import all_words as words
from tests.helpers.figures import assert_texts_are_apart
from tests.helpers.made_grids import DEPTHS, LISTS, drawn, flat


def panel(encoding: str, seeds: Sequence[int] = (0, 1, 2), **more: Any) -> Panel:
    return Panel.of(flat(encoding, seed, **more) for seed in seeds)


def mesh(ax: Axes) -> QuadMesh:
    first = ax.collections[0]
    assert isinstance(first, QuadMesh)
    return first


def values(ax: Axes, layer: int = 0) -> Any:
    array: Any = np.ma.asarray(ax.collections[layer].get_array())
    return array.reshape(int(ax.get_ylim()[1]), -1)


def is_mark(text: Text) -> bool:
    return "not converged" in text.get_text()


# ---- cells -------------------------------------------------------------------------------------


def test_cells_are_means_over_seeds_and_the_first_operand_goes_up() -> None:
    one, other = flat("tape", 0), flat("tape", 1)
    one.exact[5, 0], other.exact[5, 0] = 40, 60  # six digits plus one digit
    figure = compose([Panel.of([one, other]), panel("fire", outside=90), panel("rope", outside=1)])
    ax = figure.axes[0]
    assert values(ax)[5, 0] == pytest.approx(0.5)
    assert ax.get_xlim() == (0, 8) and ax.get_ylim() == (0, 8)  # (1, 1) at the lower left
    assert "first" in ax.get_ylabel() and "second" in ax.get_xlabel()
    assert [mesh(ax).get_clim() for ax in figure.axes[:3]] == [(0.0, 1.0)] * 3
    assert len(figure.axes) == 4  # one colour bar


@pytest.mark.parametrize(("trained", "size"), [(3, 9), (5, 5), (8, 16)])
def test_the_trained_square_and_ticks_in_the_middle_of_cells(trained: int, size: int) -> None:
    ax = compose([panel("tape", trained=trained, size=size)]).axes[0]
    squares = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert [square.get_bbox().bounds for square in squares] == [(0, 0, trained, trained)]
    # The frame covers nothing of the first untrained length.
    frame = ax.transData.transform_bbox(squares[0].get_bbox()).bounds
    box = squares[0].get_clip_box()
    assert box is not None and box.bounds == pytest.approx(frame)
    for axis in (ax.xaxis, ax.yaxis):
        labels = [label.get_text() for label in axis.get_ticklabels()]
        assert labels == list(map(str, ticks(size)))
        assert list(axis.get_ticklocs()) == [length - 0.5 for length in ticks(size)]


def test_lists_stand_on_their_own_lengths() -> None:
    names = ("rope", "fire", "tape")
    panels = panels_of(drawn(name, seed, LISTS) for name in names for seed in (0, 1))
    figure = compose(panels)
    for ax, drawn_panel in zip(figure.axes, panels, strict=False):
        shares = np.mean([grid.exact / 100 for grid in drawn_panel.grids], axis=0)
        assert values(ax).shape == (4, 8)
        np.testing.assert_allclose(values(ax), shares)
        outline = next(patch for patch in ax.patches if isinstance(patch, Rectangle))
        assert outline.get_bbox().bounds == (0, 0, 4, 2)  # 1 to 4 digits, 2 to 3 numbers
        assert list(ax.get_yticks()) == [0.5, 1.5, 2.5, 3.5]  # 2, 3, 4, 5 numbers
        assert list(ax.get_xticks()) == [length - 0.5 for length in (1, 2, 4, 6, 8)]
    first = figure.axes[0]
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["2", "3", "4", "5"]
    assert (first.get_ylabel(), first.get_xlabel()) == ("numbers", "digits")
    figure.draw_without_rendering()
    box = first.get_position()
    assert box.width * figure.get_figwidth() == pytest.approx(box.height * figure.get_figheight())


def test_the_frame_of_the_trained_lengths_spans_every_depth() -> None:
    few = panels_of(drawn(f"pe{number}", 0, DEPTHS) for number in range(3))
    small = compose(few, width=3.3, columns=3)
    assert "depth" in [ax.get_ylabel() for ax in small.axes]
    assert "axis: depth of the key from the start" in words(small)
    figure = compose(panels_of(drawn(name, 0, DEPTHS) for name in ("rope", "fire")))
    for ax in figure.axes[:3]:  # two encodings and their difference
        assert values(ax).shape == (5, 8)
        outline = next(patch for patch in ax.patches if isinstance(patch, Rectangle))
        assert outline.get_bbox().bounds == (0, 0, 4, 5)  # 1 to 4 digits, all 5 depths
        assert list(ax.get_yticks()) == [0.5, 1.5, 2.5, 3.5, 4.5]
    first = figure.axes[0]
    assert first.get_ylabel() == "depth of the key from the start"
    assert first.get_xlabel() == "digits of haystack"
    assert "trained to 4 digits and tested to 8, at 5 depths (" in words(figure)


# ---- the difference of two ---------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_first_minus_second(sign: int) -> None:
    pair = [panel("fire", outside=70), panel("tape", outside=20)][::sign]
    figure = compose(pair)
    assert len(figure.axes) == 5  # three panels, two colour bars
    ax = figure.axes[2]
    assert values(ax)[7, 7] == pytest.approx(50 * sign)
    assert mesh(ax).get_clim() == (-60, 60)
    text = words(ax)
    assert (text.index("FIRE") < text.index("TAPE")) == (sign > 0)
    assert ("+" if sign > 0 else "\N{MINUS SIGN}") + "50.0 points" in text


def test_cells_without_a_significant_difference_are_grey() -> None:
    one, other = panel("fire"), panel("tape")
    for made in one.grids:
        made.exact[7, 1] = 90
    assert np.argwhere(significant_cells(one, other)).tolist() == [[7, 1]]
    figure = compose([one, other])
    assert np.argwhere(np.ma.getmaskarray(values(figure.axes[2], 1))).tolist() == [[7, 1]]
    assert mesh(compose([other, panel("rope")]).axes[2]).get_clim() == (-10, 10)
    background = figure.axes[2].collections[1].cmap(0)
    for small in (-1e-6, 1e-6):  # a significant one is coloured, by its sign, however small
        red, _, blue, _ = mesh(figure.axes[2]).to_rgba(np.array(small))
        assert np.sign(red - blue) == np.sign(small) and abs(red - blue) > 0.1
    assert np.ptp(background[:3]) < 0.01


# ---- words -------------------------------------------------------------------------------------


def test_means_seeds_and_convergence_above_a_panel() -> None:
    several = Panel.of(flat("tape", seed, outside=10 * min(seed + 1, 2)) for seed in range(3))
    bad = Panel.of([flat("rope", 0), flat("rope", 1, inside=98)])
    figure = compose([several, bad, panel("nope", [3], inside=90)])
    text = words(figure.axes[0])
    # 10, 20, 20 with t = 4.303.
    assert {"16.7", "14.3", "37.5", "10.8"} <= set(re.findall(r"\d+\.\d", text))
    assert "3 seeds" in text and "not converged" not in text
    assert "not converged" in words(figure.axes[1])
    assert "not converged" in [text.get_text() for text in figure.axes[2].texts][-1]
    figure = compose([several.only(1)])
    assert "seed 1" in words(figure.axes[0]) and "2 seeds" not in words(figure)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "mini"),
        ({"steps": 2000}, "mini with steps=2,000"),
        ({"learning_rate": 5e-4, "clip": 1.0}, "mini with learning_rate=0.0005, clip=1"),
        ({name: 1 for name in "abcdef"}, "mini with a=1, b=1, c=1, d=1 and 2 more"),
    ],
)
def test_settings_that_are_not_the_preset_s(settings: dict[str, Any], text: str) -> None:
    # A grid without its record has the same budget but does not tell.
    assert f"(preset {text})," in footnote([panel("fire"), panel("tape", settings=settings)])


def test_a_difference_of_long_names_keeps_its_sign() -> None:
    first, second = "fire:init_l=512:width=64", "tape:context=no-attention:form=non-equivariant"
    figure = compose([panel(first), panel(second)])
    assert "\N{MINUS SIGN} second" in words(figure.axes[2])


def test_no_text_leaves_the_page_or_meets_another() -> None:
    names = ["rope", "rand-rope", "fire:init_l=512:width=64:something=long", "tape-heads"]
    changed = {"num_problems": 640_000, "batch_size": 512, "steps": 20_000, "groups": 8, "x": 1}
    made = [panel(f"{names[k % 4]}{k}", inside=90, outside=k, settings=changed) for k in range(14)]
    figure = compose(made, in_order=True)
    assert_texts_are_apart(figure)
    text = words(figure)
    assert all(each in text for each in ("order: by name", "out, in, all:", "out 13.0"))


@pytest.mark.parametrize(("count", "width", "columns"), [(2, 6.0, 3), (5, 3.3, 3)])
def test_texts_above_panels_of_one_size_have_one_room(
    count: int, width: float, columns: int
) -> None:
    """To the right of a row's last panel is a colour bar, which is lower, or nothing."""

    def grids(name: str) -> Panel:
        shares = zip((90, 100, 100), (0, 50, 100), strict=True)
        return Panel.of(flat(name, n, inside=i, outside=o) for n, (i, o) in enumerate(shares))

    looks: dict[str, Any] = {"width": width, "columns": columns}
    figure = compose([grids(f"pe{k:02}") for k in range(count)], **looks)
    figure.draw_without_rendering()
    above = [ax.texts for ax in figure.axes[:count]]
    lines, marks = (
        {round(float(t.get_fontsize()), 2) for ts in above for t in ts if is_mark(t) == marks}
        for marks in (False, True)
    )
    assert len(lines) == len(marks) == 1, "equal lines shrink alike"
    assert min(marks) <= min(lines) and min(marks) < round(layout(count, Looks(**looks)).letters, 2)
    for ax, texts in zip(figure.axes, above, strict=False):
        ends = [text.get_window_extent().x1 for text in texts]
        assert max(ends) < ax.bbox.x1 + 0.2 * figure.dpi


@pytest.mark.parametrize("letters", [4.5, 7.0])
def test_no_line_of_a_note_leaves_its_margins(letters: float) -> None:
    """The note begins at ever other words, for few lines are as wide as they may be."""
    sentences = (
        "Where ± would leave 0 to 100 %, the lowest and the highest seed are in brackets. Cells "
        "are means over seeds; in a mean every cell weighs the same. Axes: digits of the operands."
    )
    note = sentences.split()
    for first in range(0, len(note), 3):
        figure = page(7.3, 1.0, " ".join(note[first:] + 3 * note), letters=letters)
        box = figure.texts[0].get_window_extent()
        assert box.x1 <= figure.bbox.width - 0.9 * box.x0


@pytest.mark.parametrize(
    ("count", "width", "columns"),
    [(2, 3.05, 3), (2, 5.5, 3), (5, 5.5, 3)],
)
def test_a_width_of_its_own_with_a_bar_as_long_as_the_panels(
    count: int, width: float, columns: int
) -> None:
    figure = compose([panel(f"pe{k}") for k in range(count)], width=width, caption=False)
    assert_texts_are_apart(figure)
    assert figure.get_size_inches()[0] == width and "Task" not in words(figure)
    boxes = [ax.get_position() for ax in figure.axes]
    assert len({round(box.x0, 2) for box in boxes[:count]}) == min(count, columns)
    shown, bar = boxes[:count], boxes[count + (count == 2)]
    if bar.width < bar.height:
        ends = min(box.y0 for box in shown), max(box.y1 for box in shown)
        assert (bar.y0, bar.y1) == pytest.approx(ends, abs=0.01)
    else:
        ends = min(box.x0 for box in shown), max(box.x1 for box in shown)
        assert (bar.x0, bar.x1) == pytest.approx(ends, abs=0.01)


def test_columns_and_labels() -> None:
    labels = {"rope": "Baseline", "tape": "Ours"}
    figure = compose([panel("rope"), panel("tape", [0, 1])], columns=1, labels=labels)
    text = words(figure)
    assert "\N{MINUS SIGN} Ours" in text and "(Ours: 0," in text
    assert "Ours higher" in text and "tape" not in text
    figure.draw_without_rendering()
    assert len({round(ax.get_position().x0, 2) for ax in figure.axes[:3]}) == 1


def test_a_papers_width() -> None:
    for count in range(1, 50):
        place = layout(count, Looks())
        assert place.columns * place.rows >= count > place.columns * (place.rows - 1) - 2
        assert place.letters >= (5 if place.brief else 5.9) and place.brief == (count > 12)
        assert place.height <= 9.6  # a page


@pytest.mark.parametrize(
    ("count", "options"), [(2, {"width": 2.5}), (9, {"columns": 9}), (1, {"width": 50.0})]
)
def test_panels_that_do_not_fit_the_width(count: int, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="inches"):
        compose([panel(f"pe{k}") for k in range(count)], **options)


# ---- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("new/folder/a.svg", b"<?xml")]
)
def test_a_file_by_its_ending(tmp_path: Path, name: str, start: bytes) -> None:
    path = tmp_path / name
    figure, again = (compose([panel("fire", [0], trained=20)], caption=False) for _ in range(2))
    save(figure, path)
    first = path.read_bytes()
    assert first.startswith(start) and len(first) < 500_000
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    save(again, path)
    assert path.read_bytes() == first  # the same figure is the same file
    assert plt.get_fignums() == []
    if path.suffix == ".PDF":  # fonts are TrueType, within the file
        assert b"/FontFile2" in first and b"/Type3" not in first
    if path.suffix == ".svg":  # text is text however it is saved; cells are an image, for squares
        images = ElementTree.fromstring(first).iter("{http://www.w3.org/2000/svg}image")
        assert len(list(images)) == 2 and b">FIRE</text>" in first  # open slowly
        figure.savefig(path)
        assert b">FIRE</text>" in path.read_bytes()


def test_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = compose([panel("tape")])
    for name in ("a.jpg", "a", "png", "a.png.gz"):
        with pytest.raises(UsageError, match=r"\.svg or \.pdf"):
            save(figure, tmp_path / name)

    def full(self: Figure, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    (tmp_path / "old.png").write_bytes(b"old")
    for name in ("new.png", "old.png"):
        with pytest.raises(Failure, match=rf"{name}: No space"):
            save(figure, tmp_path / name)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


# ---- a figure for a paper ----------------------------------------------------------------------


def test_numbers_above_panels() -> None:
    pair, heights = [panel("rope"), panel("nope", inside=90)], []
    for numbers, shown, absent in (
        ("none", ["not converged"], ["±", "out of distribution", "3 seeds"]),
        ("out", ["out of distribution", "not converged"], ["all cells", "3 seeds"]),
        ("all", ["out of distribution", "all cells", "3 seeds"], []),
    ):
        figure = compose(pair, numbers=numbers, legend=False, difference=False)
        above = " ".join(words(ax) for ax in figure.axes[:2])
        assert all(each in above for each in shown), numbers
        assert not any(each in above for each in absent), numbers
        assert ("±" in words(figure)) == (numbers != "none") and not figure.legends
        assert_texts_are_apart(figure)
        heights.append(figure.get_figheight())
    assert heights[0] < heights[1] < heights[2]


def test_a_mark_takes_no_room_above_the_panels_without_one() -> None:
    figure = compose([panel("rope"), panel("rand-rope"), panel("fire", inside=90)], numbers="out")
    figure.draw_without_rendering()
    lines = []
    for ax in figure.axes[:3]:
        texts = [text for text in ax.texts if text.get_text()]
        heights = {round(text.get_window_extent().y0 - ax.bbox.y1) for text in texts}
        name = next(text for text in ax.findobj(Text) if text.get_text() == ax.get_title("left"))
        gap = name.get_window_extent().y0 - max(text.get_window_extent().y1 for text in texts)
        assert 0 <= gap < texts[0].get_window_extent().height, "a name is right above its lines"
        assert min(heights) < 8 * figure.dpi / 72, "and these right above their panel"
        lines.append(len(heights))
    assert lines == [1, 2, 2]
    assert "told" in words(figure.axes[1]) and "told" not in words(figure.axes[0])
    assert_texts_are_apart(figure)


def test_two_without_their_difference_on_a_scale_that_ends_early() -> None:
    figure = compose([panel("rope"), panel("fire")], difference=False, vmax=40)
    assert len(figure.axes) == 3 and "higher" not in words(figure)
    assert [mesh(ax).get_clim() for ax in figure.axes[:2]] == [(0.0, 0.4)] * 2
    assert figure.axes[2].get_yticklabels()[-1].get_text() == "40\N{NO-BREAK SPACE}%"


def test_lines_have_one_size_and_marks_another_that_is_no_larger() -> None:
    three = [panel("rope"), panel("fire", inside=98), panel("rand-rope", inside=98)]
    sizes = {}
    for width, font in ((5.5, "monospace"), (12.0, "")):
        figure = compose(three, width=width, columns=3, font=font)
        assert_texts_are_apart(figure)
        texts = [text for ax in figure.axes for text in ax.texts if text.get_text()]
        kinds = [
            {round(float(text.get_fontsize()), 3) for text in texts if is_mark(text) == marks}
            for marks in (False, True)
        ]
        (lines,), (marks,) = kinds
        assert lines >= marks
        sizes[width, font] = lines, marks
        for mark in filter(is_mark, texts):  # right behind the line, also where that is smaller
            ax: Any = mark.axes
            ends = [t.get_window_extent().x1 for t in ax.texts if not is_mark(t)]
            gap = (mark.get_window_extent().x0 - ends[0]) * 72 / figure.dpi
            assert 2 < gap < 5
    assert sizes[5.5, "monospace"] < sizes[12.0, ""] == (7.0, 7.0)


def test_the_caption_says_what_a_legend_would_and_where_colours_end() -> None:
    pair = [panel("rope"), panel("fire", outside=90)]
    for figure, said in (
        (compose(pair), ()),
        (compose(pair[:1], vmax=40), ("colours of exact match end at 40\N{NO-BREAK SPACE}%",)),
        (compose(pair[:1], legend=False), ("framed: trained lengths",)),
        (compose(pair, legend=False), ("framed: trained lengths", "grey: no significant")),
    ):
        note = " ".join(figure.texts[0].get_text().split("\n"))
        clauses = ("colours of", "framed:", "grey:")
        assert sum(clause in note for clause in clauses) == len(said)
        assert all(each in note for each in said)


def test_a_font_and_a_persons_own_settings(tmp_path: Path) -> None:
    def look(figure: Figure) -> tuple[str, float, float]:
        figure.draw_without_rendering()
        ax = figure.axes[0]
        font: str = ax._left_title.get_fontname()  # type: ignore[attr-defined]
        return font, ax.spines["left"].get_linewidth(), figure.get_figwidth()

    made = [panel("rope")]
    assert look(compose(made, width=5.5)) == ("DejaVu Sans", 0.6, 5.5)
    assert look(compose(made, width=5.5, font="serif")) == ("DejaVu Serif", 0.6, 5.5)
    own: Any = {"font.family": "monospace", "axes.linewidth": 2.0, "savefig.bbox": "tight"}
    with plt.rc_context(own):
        figure = compose(made, width=5.5)
    # In the fonts of its making, whenever it is drawn.
    assert look(figure) == ("DejaVu Sans Mono", 2.0, 5.5)
    with plt.rc_context(own):
        save(compose(made, width=5.5, caption=False), tmp_path / "a.png")
    assert plt.imread(tmp_path / "a.png").shape[1] == 5.5 * 300
    own = {"axes.labelsize": 14, "ytick.labelsize": 15, "font.size": 30, "text.color": "red"}
    with plt.rc_context({"savefig.dpi": 50, "image.cmap": "gray", **own}):
        figure = compose(made, width=5.5, caption=False)
        save(figure, tmp_path / "a.png")
    assert plt.imread(tmp_path / "a.png").shape[1] == 5.5 * 50
    assert mesh(figure.axes[0]).get_cmap().name == "gray"
    usual = compose(made, width=5.5, caption=False)
    usual.draw_without_rendering()
    # Letters have the sizes that fit the width, on the colour bars too.
    own_sizes, sizes = (
        [text.get_fontsize() for text in each.findobj(Text) if text.get_text()]
        for each in (figure, usual)
    )
    assert own_sizes == sizes
    assert {text.get_color() for text in figure.legends[0].get_texts()} == {"red"}
    with pytest.raises(UsageError, match="no font is called 'Seriph'"):
        compose(made, font="Seriph")


def test_into_the_axes_of_a_caller() -> None:
    made = [panel("rope"), panel("fire")]
    page, (top, bottom) = plt.subplots(2, 3, figsize=(7, 5))
    assert compose(made, axes=list(top)) is page and page.legends == []
    assert mesh(top[2]).get_clim() == (-10, 10) and len(page.axes) == 6
    np.testing.assert_allclose(values(top[1]), made[1].cell_means)
    compose(made, axes=list(bottom[:2]), numbers="none")
    assert words(bottom[1]).endswith("FIRE") and not bottom[2].collections
    assert "out of distribution" in words(top[0])
    plt.close(page)


@pytest.mark.parametrize(("size", "columns"), [((7, 2.5), 2), ((5.5, 4), 3)])
def test_a_panel_in_the_axes_of_a_caller_is_whole(size: tuple[float, float], columns: int) -> None:
    made = [panel("rope"), panel("fire", inside=90)]
    page, axes = plt.subplots(1, columns, figsize=size, layout="constrained")
    compose(made, axes=list(axes), font="serif", labels={"rope": "$x"})
    page.draw_without_rendering()
    assert [ax.get_title() for ax in axes[:2]] == ["$x", "FIRE"]
    (letters,) = {float(ax.texts[0].get_fontsize()) for ax in axes}
    for ax in axes:
        labels = [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
        assert len(labels) > 8 and all(label.get_text() for label in labels)
        (label_size,) = {float(label.get_fontsize()) for label in labels}
        assert 5 < letters <= label_size <= 7
        texts = [text for text in ax.findobj(Text) if text.get_text()]
        assert {text.get_fontname() for text in texts} == {"DejaVu Serif"}
        for box in (text.get_window_extent() for text in texts):
            assert box.x0 >= 0 and box.y0 >= 0
            assert box.x1 <= page.bbox.x1 and box.y1 <= page.bbox.y1
    plt.close(page)
