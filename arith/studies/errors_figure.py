"""How answers go wrong: what a study of runs holds, and its figure, which compares encodings.

Shapes: C lengths of carry chains, A places of an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tape_arith.arith.figures.captions import NBSP, SPLITS, preset_words
from tape_arith.arith.figures.figure_file import DPI, STYLE, figure_format, save
from tape_arith.arith.figures.foot import put_legend, put_note
from tape_arith.arith.figures.heatmap import lines
from tape_arith.arith.figures.looks import bound
from tape_arith.arith.figures.style import LETTERS, MARKERS
from tape_arith.arith.scoring.regions import REGION_WORDS
from tape_arith.arith.scoring.statistics import wilson
from tape_arith.arith.studies.mistakes import KINDS, REGIONS, Kind, Mistakes, Region

KIND_WORDS: Mapping[Kind, str] = {
    "ended_early": "ended too early",
    "went_on": "did not end",
    "one_less": "digit one less",
    "one_more": "digit one more",
    "other_digit": "another digit",
    "no_digit": "no digit",
}
# Lengths in one hue, digits in another, so that the two halves of a bar are seen first.
KIND_COLOURS: Mapping[Kind, str] = {
    "ended_early": "#b35806",
    "went_on": "#f1a340",
    "one_less": "#053061",
    "one_more": "#4393c3",
    "other_digit": "#c6dbef",
    "no_digit": "#999999",
}
FEWEST = 50
"""Of fewer answers, all seeds together, to problems with carry chains of one length no share is
drawn: it would say nothing, and a line to it something wrong. The table has it. Where there are
nowhere as many, that of most answers is."""
LINE: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.0, "markeredgewidth": 0.4}


@dataclass(frozen=True)
class RunErrors:
    """The mistakes of one run."""

    run: str
    encoding: str
    seed: int
    mistakes: Mistakes


@dataclass(frozen=True)
class Study:
    """The mistakes of some runs, all on the same problems."""

    runs: tuple[RunErrors, ...]
    preset: str
    settings: dict[str, int | float | str]
    """What was set in place of the preset's."""
    trained_digits: int
    evaluation: dict[str, Any]
    """task, version, split, seed, max_digits, problems (how many), sha256 of those"""

    @cached_property
    def pooled(self) -> dict[str, Mistakes]:
        """Of each encoding the counts of its runs together."""
        found: dict[str, Mistakes] = {}
        for one in self.runs:
            known = found.get(one.encoding)
            found[one.encoding] = one.mistakes if known is None else known + one.mistakes
        return found

    @property
    def seeds(self) -> dict[str, list[int]]:
        """The seeds of each encoding."""
        return {
            name: sorted(one.seed for one in self.runs if one.encoding == name)
            for name in self.pooled
        }

    @property
    def regions(self) -> list[Region]:
        """Those with problems."""
        first = self.runs[0].mistakes.problems
        return [region for region, row in zip(REGIONS, first, strict=True) if row.any()]


def sample_line(study: Study) -> str:
    """Which problems and which runs, and what the numbers speak of."""
    of = study.evaluation
    problems = SPLITS.get(of["split"], of["split"])
    told = [
        f"seed{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
        for numbers in study.seeds.values()
    ]
    if len(set(told)) > 1:
        told = [f"{name}: {seeds}" for name, seeds in zip(study.seeds, told, strict=True)]
    seeds = "; ".join(dict.fromkeys(told))
    return (
        f"Task {of['task']}{f', {problems},' if problems else ','} trained to "
        f"{study.trained_digits} digits and tested to {of['max_digits']} "
        f"(preset {preset_words(study.preset, study.settings)}), "
        f"{of['problems']:,} problems a run (evaluation set {of['sha256'][:8]}). Counts of all "
        f"seeds together, these runs only ({seeds})."
    )


# ---- the figure --------------------------------------------------------------------------------

# Inches.
SIDE, HEIGHT, LEFT, GAP, ROW_GAP, TOP, AXIS, LEGEND = 2.5, 1.5, 0.56, 0.68, 0.62, 0.24, 0.4, 0.2


def draw(study: Study, path: Path) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending, whole or not at all. Errors:
    UsageError for another ending; Failure where the disk refuses."""
    kind = figure_format(path)
    with mpl.rc_context(STYLE):
        save(compose(study), path, kind)


def compose(study: Study) -> Figure:
    """The figure before it is written: exact match by carry chain, a panel a region; then of the
    last region the places of the first errors, and what they are."""
    names, regions = list(study.pooled), study.regions
    width = LEFT + 2 * SIDE + GAP + 0.2
    note = lines(_note(study), (width - 0.16) * 72, LETTERS)
    keys = _handles(names)
    key_rows = -(-len(keys) // 4)
    foot = len(note) * LETTERS * 1.35 / 72 + key_rows * 0.16 + 0.16
    lower = max(HEIGHT, 0.3 * len(names))
    below = foot + AXIS + LEGEND
    height = below + lower + ROW_GAP + HEIGHT + TOP
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)

    def axes(row: int, column: int) -> Axes:
        x = (LEFT + column * (SIDE + GAP)) / width
        y, tall = (below + lower + ROW_GAP, HEIGHT) if row == 0 else (below, lower)
        return figure.add_axes((x, y / height, SIDE / width, tall / height))

    for column, region in enumerate(regions):
        ax = axes(0, column)
        _chains(ax, study, region)
        _finish(ax, f"exact, {REGION_WORDS[region]}", "length of the longest carry chain")
    ax = axes(1, 0)
    _places(ax, study, regions[-1])
    where = "place of the first wrong token (0: least significant)"
    _finish(ax, f"first error, {REGION_WORDS[regions[-1]]}", where)
    ax = axes(1, 1)
    _kinds(ax, study, regions[-1])
    _finish(ax, f"what it is, {REGION_WORDS[regions[-1]]}", "share of wrong answers", bars=True)
    style: dict[str, Any] = {"frameon": False, "fontsize": LETTERS, "borderaxespad": 0.0}
    ax.legend(
        handles=[Patch(color=KIND_COLOURS[kind], label=KIND_WORDS[kind]) for kind in KINDS],
        loc="upper right",
        bbox_to_anchor=(1.0, -0.36 / lower),
        ncols=3,
        handlelength=0.9,
        handletextpad=0.4,
        columnspacing=0.9,
        labelspacing=0.3,
        borderpad=0.0,
        **style,
    )
    put_legend(figure, keys, foot - key_rows * 0.16 - 0.1, 4, LETTERS)
    put_note(figure, note, LETTERS)
    return figure


def _styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    colours = sns.color_palette("colorblind", len(names))
    return {
        name: {"color": colours[number], "marker": MARKERS[number % len(MARKERS)], **LINE}
        for number, name in enumerate(names)
    }


def _handles(names: Sequence[str]) -> list[Line2D]:
    return [Line2D([], [], label=name, **style) for name, style in _styles(names).items()]


def _chains(ax: Axes, study: Study, region: Region) -> None:
    """Exact match at each length of the longest chain of which there are enough, with Wilson's
    intervals; the encodings side by side, so that no interval hides another."""
    row, count, top = REGIONS.index(region), len(study.pooled), 0.0
    for number, (name, style) in enumerate(_styles(list(study.pooled)).items()):
        total, exact = study.pooled[name].problems[row], study.pooled[name].exact[row]
        there = np.flatnonzero(total >= min(FEWEST, total.max()))
        low, high = wilson(exact[there], total[there])
        x = there + 0.4 * ((number + 0.5) / count - 0.5)
        ax.plot(x, exact[there] / total[there], zorder=3, clip_on=False, **style)
        ax.vlines(x, low, high, color=style["color"], linewidth=0.7, zorder=2)
        top = max(top, *high, 0.0)
    ax.set_ylim(0, bound(top))


def _places(ax: Axes, study: Study, region: Region) -> None:
    """The share of wrong answers at each place, up to the last one with any; the line is between
    the places that trained operands have and those that they have not."""
    row, last = REGIONS.index(region), 0
    for name, style in _styles(list(study.pooled)).items():
        wrong = study.pooled[name].first_wrong[row]
        if wrong.any():
            places = np.arange(wrong.nonzero()[0].max() + 1)
            last = max(last, len(places) - 1)
            shares = wrong[: len(places)] / wrong.sum()
            ax.plot(places, shares, zorder=3, clip_on=False, **style)
    ax.axvline(study.trained_digits - 0.5, color="#555555", linewidth=0.7, linestyle=(0, (3, 2)))
    ax.set_xlim(-0.4, max(last, study.trained_digits) + 0.4)
    ax.set_ylim(bottom=0)


def _kinds(ax: Axes, study: Study, region: Region) -> None:
    """A bar an encoding, the first on top: the kinds of its first errors, and their number."""
    for number, (name, counts) in enumerate(study.pooled.items()):
        wrong, left = counts.wrong(region), 0.0
        for kind in KINDS:
            part = counts.of_kinds(region, kind) / max(wrong, 1)
            ax.barh(number, part, left=left, height=0.5, color=KIND_COLOURS[kind], linewidth=0)
            left += part
        # Above the bar, where a name with many options has room.
        ax.text(0.01, number - 0.3, f"{name}, {wrong:,} wrong", va="bottom", fontsize=LETTERS - 0.5)
    ax.set_yticks([])
    ax.set(xlim=(0, 1), ylim=(len(study.pooled) - 0.6, -0.75))


def _finish(ax: Axes, title: str, x_label: str, *, bars: bool = False) -> None:
    ax.set_title(title, fontsize=LETTERS + 0.5, fontweight="bold", loc="left", pad=4)
    ax.set_xlabel(x_label, fontsize=LETTERS, labelpad=2)
    share = ax.xaxis if bars else ax.yaxis
    share.set_major_formatter(PercentFormatter(1, decimals=0, symbol=f"{NBSP}%"))
    if not bars:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.tick_params(length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    ax.grid(visible=True, axis="x" if bars else "y", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)


def _note(study: Study) -> str:
    several = any(len(seeds) > 1 for seeds in study.seeds.values())
    pooled = "counts that pool seeds on the same problems, so they are too narrow"
    return (
        "Answers decoded greedily up to their first error. Bars on exact match: Wilson's 95"
        f"{NBSP}% intervals over {pooled if several else 'problems'}; lengths of chains with fewer "
        f"than {FEWEST} answers are in the table alone, and each scale has an end of its own. "
        "Dashed: to its left the places that trained operands have. A last carry that is lost ends "
        "too early, one that is invented does not end; one less and one more, modulo 10, are what "
        "a carry lost or invented leaves; of nine wrong digits two are off by one by chance. "
        f"{sample_line(study)}"
    )
