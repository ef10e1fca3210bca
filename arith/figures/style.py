"""The page, letters, colour scales and file formats that all figures share."""

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.text import (
    DPI,
    families,
    fit_alike,
    fit_artist,
    known_font,
    letters_without_font,
    lines,
    text_width,
)
from tape_arith.arith.files import atomic
from tape_arith.arith.origin import origin
from tape_arith.arith.terminal import say

LETTERS = 7.0
"""Size of a figure's small letters, in points."""
GREY = "#444444"
"""The colour of notes and of reference lines."""
GUESS: Mapping[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 0.8}
"""The line at what a guess gets right."""
PALE = "#e4e4e4"
"""The colour of cells that say nothing: no significant difference, or not ranked."""
_MARGIN = 0.08
"""Margin around a page, in inches."""
_HANDLE, _BETWEEN = 2.0, 1.4
"""Length of a legend's handle and space between its columns, in multiples of the letter size."""
_TICKS = {"size": 2, "width": 0.5, "pad": 1.5}
_TICK_KEYS = {"length": "size", "width": "width", "pad": "pad"}
"""Settings of ticks in `_TICKS`, by the names that axes have for them."""
_METADATA: dict[str, tuple[str, dict[str, Any]]] = {
    "png": ("Description", {}),
    "svg": ("Description", {"Date": None}),
    "pdf": ("Subject", {"CreationDate": None}),
}
"""The field that says what made a figure, and what keeps equal figures equal, by format."""
_SCALE_ENDS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


def colours() -> Colormap:
    """Return the colours of exact match, and of attention weights, from 0 to 1."""
    return mpl.colormaps[mpl.rcParams["image.cmap"]]


@contextmanager
def styled(letters: float = LETTERS, font: str = "", fonts: Any = None) -> Iterator[None]:
    """Set the style of all figures, with labels of `letters` points; works as a decorator too.

    Of a person's own matplotlibrc stay fonts, colours, line widths, dpi and the colour map; what
    would break texts or the page does not. Sizes of letters follow the width of the page.

    font   a font in place of matplotlib's, such as serif; fonts  all settings of fonts
    Raises UsageError for an unknown font.
    """
    must: Any = {
        # Names are no formulas.
        "text.usetex": False,
        "text.parse_math": False,
        # Text stays text, and PDF embeds its fonts (type 42, as journals ask).
        "pdf.fonttype": 42,
        "svg.fonttype": "none",
        # The same figure gives the same bytes.
        "svg.hashsalt": "tape-arith",
        "savefig.bbox": None,  # the page is as wide as it was asked for
        "axes.grid": False,  # over cells; `finish` draws one where it helps
        "axes.labelsize": letters,
        "xtick.labelsize": letters,
        "ytick.labelsize": letters,
    }
    usual: Any = {"axes.linewidth": 0.6, "axes.labelpad": 2, "axes.axisbelow": True}
    for axis in ("xtick", "ytick"):
        for kind in ("major", "minor"):
            usual |= {f"{axis}.{kind}.{key}": n for key, n in _TICKS.items()}
    library = logging.getLogger("matplotlib")
    level = library.level
    with mpl.rc_context(fonts), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph ", UserWarning)  # `Page` names such letters
        library.setLevel(logging.ERROR)
        unset = {key for key in usual if mpl.rcParams[key] == mpl.rcParamsDefault[key]}
        mpl.rcParams.update(must | {key: usual[key] for key in unset})
        if font:
            mpl.rcParams["font.family"] = known_font(font)
        try:
            yield
        finally:
            library.setLevel(level)


def figure_format(path: Path) -> str:
    """Return the format that the suffix of `path` names. Raises UsageError for an unknown one."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise UsageError(f"cannot draw {path}: a figure's name ends in .png, .svg or .pdf")
    return kind


class Page(Figure):
    """A figure that a notebook shows if it is the value of a cell.

    Before it is drawn, its fonts are chosen, its panels arranged, and texts cut to their room.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings: Any = mpl.rcParams
        self.fonts = {key: settings[key] for key in settings if key.startswith("font.")}
        """Matplotlib's settings of fonts, in which it is drawn whenever that is."""
        self.to_fit: dict[Text, bool] | None = {}
        """Texts to fit into their room from their left end on, and whether each must stay uncut;
        None once that is done."""
        self.alike: Sequence[Sequence[Text]] = ()
        """Groups of these texts, as `fit_alike` takes them."""

    def draw(self, renderer: Any) -> None:
        """Draw the figure, as matplotlib does."""
        with styled(fonts=self.fonts):
            self._settle()
            super().draw(renderer)

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """Save the figure as matplotlib does, with text as text and fonts embedded."""
        with styled(fonts=self.fonts):
            self._settle()
            super().savefig(*args, **kwargs)

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.savefig(data, format="png")
        return data.getvalue()

    def fit_alike_later(self, *groups: Sequence[Text]) -> None:
        """Keep texts as `fit_later` does, in the sizes of `fit_alike`."""
        self.alike = groups
        for group in groups:
            for text in group:
                fit_later(text, uncut=True)

    def _settle(self) -> None:
        """Choose fonts, arrange the panels and fit the texts, once: the layout is then fixed.

        Raises UsageError if texts leave the panels no room.
        """
        to_fit, self.to_fit = self.to_fit, None
        if to_fit is None:
            return
        texts = [text for text in self.findobj(Text) if isinstance(text, Text)]
        for text in texts:
            if not text.get_text().isascii():
                text.set_fontfamily(families(text.get_text(), str(text.get_fontweight())))
        if unknown := letters_without_font("".join(text.get_text() for text in texts)):
            say(
                f"note: no font of this machine has {' '.join(unknown)}: the figure shows boxes; "
                "install a font that has them, such as one of Noto"
            )
        words = [text.get_text() for text in to_fit]
        # A long text would take room from the panels; a short one has its height.
        for text in to_fit:
            text.set_text(re.sub(".+", "x", text.get_text()))
        engine = self.get_layout_engine()
        if engine is not None:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "constrained_layout not applied", UserWarning)
                try:
                    engine.execute(self)
                except UserWarning:
                    raise UsageError(
                        f"in {self.get_figwidth():g} inches the texts leave no room for panels: "
                        "give a larger --width or shorter labels"
                    ) from None
            self.set_layout_engine("none")
        boxes = [(ax, ax.get_tightbbox(for_layout_only=True)) for ax in self.axes]
        panels = [(ax, panel) for ax, panel in boxes if panel is not None]
        gap, rooms = self.dpi * _MARGIN / 2, dict[Text, tuple[Any, float]]()
        for text, line in zip(to_fit, words, strict=True):
            text.set_text(line)
            box, right = text.get_window_extent(), self.bbox.x1 - gap
            for ax, panel in panels:
                is_level = panel.y0 < box.y1 and box.y0 < panel.y1
                if ax is not text.axes and is_level and panel.x0 > box.x0:
                    right = min(right, panel.x0 - gap)
            own: Any = text.axes
            rooms[text] = own.bbox, right - own.bbox.x0

        def room(text: Text) -> float:
            size, _ = rooms[text]
            # Panels of one size give their texts one room, whatever is to their right.
            reach = min(to for other, to in rooms.values() if abs(other.width - size.width) < 1)
            return 72 * float(size.x0 + reach - text.get_window_extent().x0) / self.dpi

        fit_alike(self.alike, room)
        for text in set(to_fit).difference(*self.alike):
            fit_artist(text, room(text), uncut=to_fit[text])


def save(figure: Figure, path: Path) -> None:
    """Write `figure` to `path`, whole or not at all; its suffix says PNG, SVG or PDF.

    Its metadata say which version, commit and command made it.
    Raises UsageError for another suffix, Failure if the disk refuses.
    """
    kind = figure_format(path)
    field, undated = _METADATA[kind]
    with atomic(path) as temporary:
        figure.savefig(temporary, format=kind, metadata={**undated, field: origin()})


def page(
    width: float,
    height: float,
    note: str,
    handles: Sequence[Artist] = (),
    columns: int = 4,
    letters: float = LETTERS,
    *,
    compress: bool = False,
) -> Page:
    """Make an empty figure, with a legend of `handles` and a wrapped `note` below its panels.

    Matplotlib's constrained layout arranges the panels. `width` is that of the page and `height`
    that of the panels with their labels, in inches. `compress` leaves no gaps between panels of a
    fixed aspect. The legend has at most `columns`. Raises UsageError for a width not in 2 to 20.
    """
    if not 2 <= width <= 20:
        raise UsageError(f"a figure is from 2 to 20 inches wide, not {width:g}")
    while columns > 1 and _legend_width(handles, columns, letters) > 72 * width:
        columns -= 1
    room = 72 * (width - 2 * _MARGIN)
    text = lines(note, room, letters)
    note_height = len(text) * 1.35 * letters / 72 + _MARGIN
    signs = [lines(str(each.get_label()), room - 3 * letters, letters) for each in handles]
    heights = [0.45 + 1.2 * len(sign) for sign in signs]
    legend_height = max(map(sum, np.array_split(heights, columns))) * letters / 72
    foot = note_height + (legend_height + _MARGIN if handles else 0.0)
    total = height + foot
    pads: dict[str, Any] = {"w_pad": 0.06, "h_pad": 0.05, "wspace": 0.03, "hspace": 0.03}
    pads["rect"] = (0, foot / total, 1, height / total)
    layout = ConstrainedLayoutEngine(**pads, compress=compress)
    figure = Page(figsize=(width, total), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    left = _MARGIN / width
    look: Any = {"fontsize": letters, "color": GREY, "va": "bottom", "linespacing": 1.3}
    figure.text(left, _MARGIN / 2 / total, "\n".join(text), **look)
    if handles:
        legend = figure.legend(
            handles=handles,
            labels=[""] * len(handles),  # matplotlib would leave out what begins with "_"
            loc="lower left",
            bbox_to_anchor=(left, note_height / total),
            ncols=columns,
            frameon=False,
            fontsize=letters,
            handlelength=_HANDLE,
            columnspacing=_BETWEEN,
            borderaxespad=0.0,
            borderpad=0.2,
        )
        legend.set_in_layout(False)
        for drawn, sign in zip(legend.get_texts(), signs, strict=True):
            drawn.set_text("\n".join(sign))
    return figure


def _legend_width(handles: Sequence[Artist], columns: int, letters: float) -> float:
    """Return the width of a legend in points, a little generously."""
    widths = [text_width(str(handle.get_label()), letters) for handle in handles]
    texts = sum(max(column, default=0.0) for column in np.array_split(widths, columns))
    return float(texts) + columns * letters * (_HANDLE + _BETWEEN + 0.8)


def write_title(ax: Axes, title: str, **look: Any) -> None:
    """Write a title above the left end of a panel, as long as its room will be."""
    fit_later(ax.set_title(title, loc="left", **look))


def adopt(ax: Axes) -> None:
    """Give axes that were made elsewhere the letters and lines of those made in our style."""
    rc: Any = mpl.rcParams
    font = {"fontfamily": rc["font.family"]}
    ax.title.set(parse_math=False, usetex=False, **font)
    for axis, name in ((ax.xaxis, "xtick"), (ax.yaxis, "ytick")):
        axis.label.set(fontsize=rc["axes.labelsize"], **font)
        axis.labelpad = rc["axes.labelpad"]
        axis.set_tick_params(
            labelsize=rc[f"{name}.labelsize"],
            labelfontfamily=rc["font.family"],
            **{key: rc[f"{name}.major.{rc_key}"] for key, rc_key in _TICK_KEYS.items()},
        )
    for spine in ax.spines.values():
        spine.set_linewidth(rc["axes.linewidth"])


def fit_later(text: Text, *, uncut: bool = False) -> None:
    """Keep `text` on its page and off the panels to its right, once these have their places."""
    page: Any = text.get_figure()
    page.to_fit[text] = uncut


def finish(
    ax: Axes,
    title: str = "",
    grid: Literal["x", "y", "both"] = "y",
) -> None:
    """Give a panel of lines, points or bars its title and a grid, and remove its frame."""
    write_title(ax, title, fontsize=LETTERS + 0.5, fontweight="bold", pad=4)
    ax.grid(visible=True, which="major", axis=grid, color="#dddddd", linewidth=0.5)
    sns.despine(ax=ax)
    for line in ax.lines:  # the layout makes no room for marks on the edge
        line.set_in_layout(False)


def scale_end(share: float) -> float:
    """Return the smallest of the usual scale ends that is not below `share` (0..1).

    >>> scale_end(0.13), scale_end(0.6)
    (0.2, 0.6)
    """
    return next(end for end in _SCALE_ENDS if share <= end)


def percent_tick(share: float, _position: float = 0) -> str:
    """Return the label of a tick at `share`, with as many decimals as it needs.

    >>> percent_tick(0.005), percent_tick(0.2)
    ('0.5\\xa0%', '20\\xa0%')
    """
    return f"{round(100 * share, 6):g}\N{NO-BREAK SPACE}%"
