"""Checks of drawn figures."""

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.text import Text


def words(figure: Figure) -> str:
    """Return all text of a figure in one line."""
    axes = figure.axes
    texts = [text.get_text() for ax in axes for text in ax.texts]
    texts += [ax.get_title(loc="left") for ax in axes]
    texts += [text.get_text() for text in figure.texts]
    texts += [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return " ".join(" ".join(texts).replace("\N{NO-BREAK SPACE}", " ").split())


def all_words(drawn: Artist) -> str:
    """Return all text of a figure or of one panel in one line, hidden ticks included."""
    texts = (text.get_text() for text in drawn.findobj(Text) if isinstance(text, Text))
    return " ".join(" ".join(texts).split())


def assert_nothing_is_cut_off(figure: Figure) -> None:
    """Check that panels lie on the page above the legend, and the legend above the note."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    box = figure.get_tightbbox(renderer)
    width, height = figure.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01
    foot = figure.texts[0].get_window_extent(renderer).y1
    for legend in figure.legends:
        extent = legend.get_window_extent(renderer)
        assert extent.y0 >= foot - 1 and extent.x1 <= figure.bbox.width
        foot = extent.y1
    for ax in figure.axes:
        panel = ax.get_tightbbox(renderer)
        assert panel is not None and panel.y0 >= foot - 1
        for axis in (ax.xaxis, ax.yaxis):  # "+1e2" would stand on the axis's label
            assert not axis.get_offset_text().get_text()


def assert_texts_are_apart(figure: Figure) -> None:
    """Check that every text lies on the page and none on another."""
    figure.draw_without_rendering()
    page, boxes = figure.bbox, []
    for text in figure.findobj(Text):
        if not isinstance(text, Text) or not text.get_text().strip() or not text.get_visible():
            continue
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1
        assert inside, text.get_text()
        assert float(text.get_fontsize()) >= 3.5
        boxes.append((box.x0 + 1, box.x1 - 1, box.y0 + 3, box.y1 - 3, text.get_text()))
    for place, (x0, x1, y0, y1, one) in enumerate(boxes):
        for u0, u1, v0, v1, other in boxes[place + 1 :]:
            assert x1 <= u0 or u1 <= x0 or y1 <= v0 or v1 <= y0, (one, other)
