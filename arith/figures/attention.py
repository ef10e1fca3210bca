"""Attention patterns as figures: maps of one problem, weight by distance, weight on equal places.

Shapes: N layers, H heads, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from arith.errors import UsageError
from arith.figures.heatmap import COLOURS, DPI, STYLE, UNDATED, lines
from arith.figures.scaling import LETTERS, MARKERS, figure_format
from arith.files import atomic
from arith.scoring.grid import Floats
from arith.scoring.patterns import Patterns

INSIDE, OUTSIDE = "in distribution", "out of distribution"
REGIONS = (INSIDE, OUTSIDE)
GREY = "#444444"
MOST_MAPS = 256
EDGE = 0.08  # inches


@dataclass(frozen=True)
class Example:
    """The problem whose maps are shown: as people write it, its tokens with the end token, how many
    of them the prompt has, and the (query, key) of each answer digit and an operand's digit of the
    same place."""

    written: str
    tokens: tuple[str, ...]
    prompt: int
    equal_places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class StudiedAttention:
    """One run: its patterns by region (of REGIONS; without a key where there are no problems), and
    its maps of the example, [N, H, T, T], without the end token."""

    run: str
    encoding: str
    seed: int
    leading_bos: int
    regions: dict[str, Patterns]
    maps: Floats | None

    @property
    def label(self) -> str:
        return self.encoding + (f", 0 to {self.leading_bos} [BOS]" if self.leading_bos else "")

    @property
    def title(self) -> str:
        return f"{self.label}, seed {self.seed}"

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head that address places best in distribution, counted from 0."""
        return self.regions[INSIDE].best

    def best_score(self, region: str) -> float:
        """Of the head that is best in distribution, in `region`, which must be there."""
        return float(self.regions[region].place[self.best])


@dataclass(frozen=True)
class Study:
    """All runs, and of which problems."""

    runs: tuple[StudiedAttention, ...]
    preset: str
    trained_digits: int
    evaluation: dict[str, Any]
    """task, version, seed, max_digits"""
    example: Example | None


def sample_line(study: Study) -> str:
    """Which problems, of which evaluation set."""
    of = study.evaluation
    counts = " and ".join(f"{p.problems} {region}" for region, p in study.runs[0].regions.items())
    return (
        f"{counts}: the first such problems of the evaluation set (task {of['task']}, to "
        f"{of['max_digits']} digits, seed {of['seed']}); trained to {study.trained_digits} digits, "
        f"preset {study.preset}."
    )


def draw(study: Study, path: Path, layers: Sequence[int], heads: Sequence[int]) -> list[Path]:
    """Write the figures beside each other, `path` with -distance, -places and, where there is an
    example, -maps (of `layers` and `heads`) before its ending (.png, .svg or .pdf); each whole or
    not at all.

    Errors: UsageError for another ending and for too many maps; Failure where the disk refuses.
    """
    kind = figure_format(path)
    written = []
    with mpl.rc_context(STYLE):
        figures = {"distance": by_distance(study), "places": places(study)}
        if study.example is not None:
            figures["maps"] = maps(study, layers, heads)
        for name, figure in figures.items():
            file = path.with_name(f"{path.stem}-{name}{path.suffix}")
            with atomic(file) as temporary:
                figure.savefig(temporary, format=kind, dpi=DPI, metadata=UNDATED[kind])
            written.append(file)
    return written


def chosen(
    study: Study, layers: Sequence[int] | None, heads: Sequence[int] | None, *, every: bool = False
) -> tuple[list[int], list[int]]:
    """Layers and heads, counted from 0, of those asked for, counted from 1. None is all heads, and
    the last layer, as in the paper's figure, or with `every` all of them.

    Errors: UsageError where one is not there.
    """
    num_layers, num_heads = study.runs[0].regions[INSIDE].place.shape
    if layers is None:
        layers = range(1 if every else num_layers, num_layers + 1)
    asked = {"layer": (layers, num_layers), "head": (heads or range(1, num_heads + 1), num_heads)}
    for what, (numbers, there) in asked.items():
        for number in numbers:
            if not 1 <= number <= there:
                raise UsageError(f"there is no {what} {number}: they are 1 to {there}")
    first, second = ([number - 1 for number in numbers] for numbers, _ in asked.values())
    return first, second


# ---- maps of one problem -----------------------------------------------------------------------


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
    figure = _page(width, height, note)
    image = None
    for row, (run, layer) in enumerate(rows):
        assert run.maps is not None
        y = height - (row + 1) * (side + top)
        for column, head in enumerate(heads):
            box = (left + column * (side + gap), y, side, side)
            ax = figure.add_axes(_box(box, width, height))
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
    _colour_bar(figure, image, (across, height - top - side, 0.08, side), "weight")
    figure.text(left / width, (below - 0.32) / height, "key", fontsize=LETTERS, va="bottom")
    figure.text(
        0.04 / width, (height - 0.1) / height, "query", fontsize=LETTERS, va="top", ha="left"
    )
    return figure


def _map(ax: Axes, weights: Floats, example: Example) -> AxesImage:
    visible = np.tri(len(weights), dtype=bool)
    image = ax.imshow(np.where(visible, weights, np.nan), cmap=COLOURS, vmin=0, vmax=1)
    for query, key in example.equal_places:
        square = Rectangle((key - 0.5, query - 0.5), 1, 1, fill=False, edgecolor="#e0452f")
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


# ---- weight by distance ------------------------------------------------------------------------


def by_distance(study: Study) -> Figure:
    """A panel a layer, rows of panels in and out of distribution; a line a run."""
    regions = [region for region in REGIONS if region in study.runs[0].regions]
    layers = len(study.runs[0].regions[INSIDE].by_distance)
    columns = min(4, layers)
    across = -(-layers // columns)
    side, high, left, gap, between = 1.55, 1.3, 0.5, 0.16, 0.5
    width = left + columns * (side + gap)
    note = lines(
        "Weight on the key so many tokens back, a mean over queries that have one, heads and "
        "problems; distance 0 is the token itself. Dashed: a query that attends to all it sees "
        f"alike. A line a run, these runs only. {sample_line(study)}",
        (width - 2 * EDGE) * 72,
        LETTERS,
    )
    labels = list(dict.fromkeys(run.label for run in study.runs))
    colours = dict(zip(labels, sns.color_palette("colorblind", len(labels)), strict=True))
    handles = [Line2D([], [], color=colours[label], label=label) for label in labels]
    handles.append(Line2D([], [], color=GREY, linestyle="--", label="uniform"))
    legend = 0.16 * -(-len(handles) // 4) + 0.1
    below = len(note) * LETTERS * 1.35 / 72 + legend + 0.1
    rows = [(region, part) for region in regions for part in range(across)]
    height = below + len(rows) * (high + between)
    figure = _page(width, height, note)
    for row, (region, part) in enumerate(rows):
        for column in range(min(columns, layers - part * columns)):
            layer = part * columns + column
            y = height - row * (high + between) - high - 0.22
            box = (left + column * (side + gap), y, side, high)
            ax = figure.add_axes(_box(box, width, height))
            _distances(ax, study, region, layer, colours)
            title = f"{region}, layer {layer + 1}" if column == 0 else f"layer {layer + 1}"
            ax.set_title(title, fontsize=LETTERS, fontweight="bold", loc="left", pad=3)
            if column == 0:
                ax.set_ylabel("mean weight", fontsize=LETTERS, labelpad=2)
            else:
                ax.set_yticklabels([])
            if (row + 1) % across == 0 or layer + columns >= layers:
                ax.set_xlabel("tokens back", fontsize=LETTERS, labelpad=1)
    _legend(figure, handles, (below - legend) / height, EDGE / width)
    return figure


def _distances(
    ax: Axes, study: Study, region: str, layer: int, colours: dict[str, tuple[float, float, float]]
) -> None:
    for run in study.runs:
        weight = run.regions[region].by_distance[layer]
        ax.plot(np.where(weight > 0, weight, np.nan), color=colours[run.label], linewidth=0.8)
    ax.plot(study.runs[0].regions[region].uniform, color=GREY, linewidth=0.7, linestyle="--")
    ax.set(yscale="log", ylim=(1e-4, 1.0))
    ax.set_yticks([10.0**power for power in range(-4, 1)])
    ax.yaxis.set_minor_locator(NullLocator())
    ax.tick_params(which="both", length=2, width=0.5, pad=1.5, labelsize=LETTERS - 0.5)
    ax.grid(visible=True, which="major", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)


# ---- weight on equal places --------------------------------------------------------------------


def places(study: Study) -> Figure:
    """Above, the best head of each run, in and out of distribution; below, all layers and heads."""
    regions = [region for region in REGIONS if region in study.runs[0].regions]
    layers, heads = study.runs[0].regions[INSIDE].place.shape
    cell = 0.2 if heads <= 8 else 0.12
    wide, high = heads * cell, layers * cell
    left, gap, pair_gap, title, foot, top, dots = 0.5, 0.1, 0.5, 0.36, 0.3, 0.42, 1.6
    pair = len(regions) * (wide + gap) - gap
    pairs = max(1, min(len(study.runs), int(6.2 / (pair + pair_gap))))
    rows = -(-len(study.runs) // pairs)
    width = max(4.6, left + pairs * (pair + pair_gap) + 0.5)
    note = lines(_places_note(study), (width - 2 * EDGE) * 72, LETTERS)
    below = len(note) * LETTERS * 1.35 / 72 + 0.08
    height = below + rows * (title + high + foot) + foot + dots + top
    figure = _page(width, height, note)
    ax = figure.add_axes(_box((left, height - top - dots, width - left - 0.1, dots), width, height))
    _best_heads(ax, study, regions)
    image = None
    for number, run in enumerate(study.runs):
        row, column = divmod(number, pairs)
        for part, region in enumerate(regions):
            x = left + column * (pair + pair_gap) + part * (wide + gap)
            y = below + (rows - 1 - row) * (title + high + foot) + foot
            ax = figure.add_axes(_box((x, y, wide, high), width, height))
            image = ax.imshow(
                run.regions[region].place, cmap=COLOURS, vmin=0, vmax=1, aspect="auto"
            )
            layer, head = run.best
            square = Rectangle((head - 0.5, layer - 0.5), 1, 1, fill=False, edgecolor="#e0452f")
            square.set(linewidth=1.2, clip_on=False, zorder=3)
            ax.add_patch(square)
            ax.set_title(
                {INSIDE: "in", OUTSIDE: "out"}[region], fontsize=LETTERS, loc="left", pad=2
            )
            steps = [range(0, count, -(-count // 8)) for count in (heads, layers)]
            ax.set_xticks(steps[0], [str(head + 1) for head in steps[0]])
            ax.set_yticks(steps[1], [str(n + 1) for n in steps[1]] if part == 0 else [])
            ax.tick_params(length=0, pad=1.5, labelsize=LETTERS - 0.5)
            if part == 0:
                ax.set_ylabel("layer", fontsize=LETTERS, labelpad=1)
            ax.set_xlabel("head", fontsize=LETTERS, labelpad=1)
            if part == 0:
                figure.text(
                    x / width,
                    (y + high + 0.16) / height,
                    run.title,
                    fontsize=LETTERS + 0.5,
                    fontweight="bold",
                )
    assert image is not None
    bar = (left + pairs * (pair + pair_gap) - pair_gap + 0.12, below + foot, 0.08, high)
    _colour_bar(figure, image, bar, "weight")
    return figure


def _best_heads(ax: Axes, study: Study, regions: Sequence[str]) -> None:
    labels = list(dict.fromkeys(run.label for run in study.runs))
    colours = sns.color_palette("colorblind", len(labels))
    for number, label in enumerate(labels):
        runs = [run for run in study.runs if run.label == label]
        # Seeds beside each other, so that none hides another.
        shifts = (np.arange(len(runs)) - (len(runs) - 1) / 2) * min(0.12, 0.6 / len(runs))
        for run, shift in zip(runs, shifts, strict=True):
            scores = [run.best_score(region) for region in regions]
            x, colour = number + shift, colours[number]
            ax.plot([x] * len(scores), scores, color=colour, linewidth=0.7, zorder=2)
            for region, score in zip(regions, scores, strict=True):
                face = colour if region == INSIDE else "white"
                marker = MARKERS[number % len(MARKERS)]
                style: dict[str, Any] = {"color": colour, "markerfacecolor": face, "zorder": 3}
                ax.plot(x, score, marker, markersize=4, markeredgewidth=0.8, **style)
    for region in regions:
        chance = study.runs[0].regions[region].chance
        style = {"linestyle": "-" if region == INSIDE else ":", "linewidth": 0.8, "color": GREY}
        ax.axhline(chance, zorder=1, **style)
    ax.set_xlim(-0.6, len(labels) - 0.4)
    ax.set_ylim(0, 1)
    letters = LETTERS if len(labels) <= 8 else LETTERS - 1.5
    # An option a line: a long name would run into its neighbour, turned into the maps below.
    names = [label.replace(":", ":\n").replace("+", "\n+") for label in labels]
    ax.set_xticks(range(len(labels)), names, fontsize=letters)
    if max(len(line) for name in names for line in name.split("\n")) > 80 / len(labels):
        ax.tick_params(axis="x", rotation=20)
    ax.set_ylabel("weight on equal places", fontsize=LETTERS, labelpad=2)
    ax.tick_params(axis="y", length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    ax.tick_params(axis="x", length=0, pad=3)
    ax.set_title(
        "The head that looks best in distribution",
        fontsize=LETTERS + 0.5,
        fontweight="bold",
        loc="left",
        pad=14,
    )
    grey: dict[str, Any] = {"color": GREY, "markersize": 4, "markeredgewidth": 0.8}
    handles = []
    for region in regions:
        face = GREY if region == INSIDE else "white"
        handles.append(
            Line2D([], [], linestyle="", marker="o", markerfacecolor=face, label=region, **grey)
        )
    for region in regions:
        label = "chance" + (" out" if region == OUTSIDE else " in" if len(regions) > 1 else "")
        style = {"linestyle": "-" if region == INSIDE else ":", "linewidth": 0.8, "color": GREY}
        handles.append(Line2D([], [], label=label, **style))
    ax.legend(
        handles=handles,
        fontsize=LETTERS - 0.5,
        frameon=False,
        ncols=len(handles),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.0,
        borderpad=0.1,
        handletextpad=0.3,
        columnspacing=1.0,
        handlelength=1.4,
    )
    ax.grid(visible=True, axis="y", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)


def _places_note(study: Study) -> str:
    return (
        "Weight that the query which predicts the answer's digit of place r puts on the operands' "
        "digits of place r (on one, where the other is shorter), a mean over answer positions; a "
        "last carry and the end token do not count. The query is the token before that digit ('=' "
        "for the first). Red: the head that is best in distribution; its score is shown above, the "
        "filled marker in distribution, the hollow one out of it; a marker a run. It is chosen and "
        "shown on the same problems. Chance: a query that attends to all it sees alike. These runs "
        f"only. {sample_line(study)}"
    )


# ---- pages -------------------------------------------------------------------------------------


def _page(width: float, height: float, note: Sequence[str]) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    figure.text(
        EDGE / width,
        0.05 / height,
        "\n".join(note),
        fontsize=LETTERS,
        color=GREY,
        va="bottom",
        linespacing=1.3,
    )
    return figure


def _box(
    inches: tuple[float, float, float, float], width: float, height: float
) -> tuple[float, float, float, float]:
    x, y, wide, high = inches
    return x / width, y / height, wide / width, high / height


def _colour_bar(
    figure: Figure, image: AxesImage, inches: tuple[float, float, float, float], label: str
) -> None:
    width, height = figure.get_size_inches()
    bar = figure.colorbar(
        image, cax=figure.add_axes(_box(inches, width, height)), ticks=[0, 0.5, 1]
    )
    bar.set_label(label, fontsize=LETTERS, labelpad=2)
    bar.ax.tick_params(length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    bar.outline.set_linewidth(0.5)


def _legend(figure: Figure, handles: Sequence[Any], y: float, x: float) -> None:
    figure.legend(
        handles=list(handles),
        loc="lower left",
        bbox_to_anchor=(x, y),
        ncols=4,
        frameon=False,
        fontsize=LETTERS,
        handlelength=1.6,
        columnspacing=1.4,
        borderaxespad=0.0,
        borderpad=0.2,
    )
