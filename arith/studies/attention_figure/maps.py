"""Attention maps of one problem.

Shapes: T tokens.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.heatmap import COLOURS
from tape_arith.arith.figures.style import LETTERS, lines
from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.studies.attention_figure.page import EDGE, RED, box, colour_bar, page
from tape_arith.arith.studies.attention_figure.study import Example, Study

MOST_MAPS = 256


def maps(study: Study, layers: Sequence[int], heads: Sequence[int]) -> Figure:
    """A row a run and layer, a column a head; queries downwards, keys to the right."""
    example = study.example
    assert example is not None
    rows = [(run, layer) for run in study.runs for layer in layers]
    if len(rows) * len(heads) > MOST_MAPS:
        raise UsageError(
            f"{len(rows) * len(heads)} maps are too many for a figure: choose --layers and --heads"
        )
    tokens = len(example.tokens) - 1
    side = max(1.15, 0.085 * tokens)
    letters = min(6.5, 72 * side / tokens * 0.8)
    left, gap, top, bar = 0.16 + 0.09 * letters, 0.1, 0.36, 0.55
    width = left + len(heads) * (side + gap) + bar
    note = lines(_maps_note(example), (width - 2 * EDGE) * 72, LETTERS)
    below = len(note) * LETTERS * 1.35 / 72 + 0.4
    height = below + len(rows) * (side + top)
    figure = page(width, height, note)
    image = None
    for row, (run, layer) in enumerate(rows):
        assert run.maps is not None
        y = height - (row + 1) * (side + top)
        for column, head in enumerate(heads):
            inches = (left + column * (side + gap), y, side, side)
            ax = figure.add_axes(box(inches, width, height))
            image = _map(ax, run.maps[layer, head], example)
            ax.set_title(f"head {head + 1}", fontsize=LETTERS, loc="left", pad=2)
            words = [example.tokens[place] for place in range(tokens)]
            ax.set_xticks(range(tokens), words if row == len(rows) - 1 else [])
            ax.set_yticks(range(tokens), _queries(example) if column == 0 else [])
            ax.tick_params(length=0, pad=1.5, labelsize=letters)
        name = f"{run.title}, layer {layer + 1}"
        figure.text(
            left / width,
            (y + side + 0.17) / height,
            name,
            fontsize=LETTERS + 0.5,
            fontweight="bold",
        )
    assert image is not None
    across = width - bar + 0.02
    colour_bar(figure, image, (across, height - top - side, 0.08, side), "weight")
    figure.text(left / width, (below - 0.32) / height, "key", fontsize=LETTERS, va="bottom")
    figure.text(
        0.04 / width, (height - 0.1) / height, "query", fontsize=LETTERS, va="top", ha="left"
    )
    return figure


def _map(ax: Axes, weights: Floats, example: Example) -> AxesImage:
    visible = np.tri(len(weights), dtype=bool)
    image = ax.imshow(np.where(visible, weights, np.nan), cmap=COLOURS, vmin=0, vmax=1)
    for query, key in example.equal_places:
        square = Rectangle((key - 0.5, query - 0.5), 1, 1, fill=False, edgecolor=RED)
        square.set(linewidth=0.8, zorder=3)
        ax.add_patch(square)
    ax.spines[:].set_visible(False)
    return image


def _queries(example: Example) -> list[str]:
    """The tokens; with an arrow to what is predicted where that is the answer's.

    >>> _queries(Example("4+5", ("4", "+", "5", "=", "9", "[EOS]"), 4, ()))
    ['4', '+', '5', '=→9', '9→[EOS]']
    """
    pairs = zip(example.tokens, example.tokens[1:], strict=False)
    return [
        f"{token}\N{RIGHTWARDS ARROW}{following}" if place >= example.prompt - 1 else token
        for place, (token, following) in enumerate(pairs)
    ]


def _maps_note(example: Example) -> str:
    sequence = "".join(example.tokens[:-1])
    return (
        f"{example.written} stands in the sequence as {sequence}, every number its least "
        "significant digit first, and so it does on the axes. Rows are queries, with an arrow to "
        "the token that they predict where it is the answer's; columns are keys; white: not seen. "
        "Red squares: the operands' digits of the place that is predicted. These runs only."
    )
