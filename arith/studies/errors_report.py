"""Errors in answers: tables and the figure. Never imports torch: `errors.py` counts."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from tape_arith.arith.figures.captions import NBSP, signed
from tape_arith.arith.figures.style import (
    LETTERS,
    finish,
    page,
    percent_tick,
    scale_end,
    series_styles,
)
from tape_arith.arith.scoring.grid import REGION_WORDS, Region
from tape_arith.arith.scoring.statistics import wilson
from tape_arith.arith.studies.study import Study, markdown

EXACT = "exact"
"""The `error` of a right answer."""
KINDS = {
    "ended_early": "ended too early",
    "went_on": "did not end",
    "one_less": "digit one less",
    "one_more": "digit one more",
    "other_digit": "another digit",
    "no_digit": "no digit",
}
"""Kinds of a first error."""
_WRONG_LENGTH, _OFF_BY_ONE = ["ended_early", "went_on"], ["one_less", "one_more"]
_WRONG_DIGIT = [*_OFF_BY_ONE, "other_digit"]
# Lengths in one hue, digits in another, so that the two halves of a bar are seen first.
_COLOURS = ("#b35806", "#f1a340", "#053061", "#4393c3", "#c6dbef", "#999999")
_FEWEST = 50
"""The fewest answers, all seeds together, of which the figure shows a share; the table has all. If
no chain has as many, the length with most answers is drawn."""
_LINE: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.0, "markeredgewidth": 0.4}


def _counts(study: Study, region: Region, by: str, *, wrong: bool = False) -> pd.DataFrame:
    """Count problems, all seeds together: a row a value of `by`, a column a label.

    With `wrong` counts wrong answers alone.
    """
    rows = study.labelled
    rows = rows[(rows.region == region) & ~(wrong & (rows.error == EXACT))]
    table = rows.pivot_table("problems", by, "label", "sum", fill_value=0)
    return table.reindex(columns=list(study.seeds), fill_value=0).astype(int)


def _exact_by_chain(study: Study, region: Region) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return exact answers and problems by length of the longest carry chain."""
    total = _counts(study, region, "chain")
    wrong = _counts(study, region, "chain", wrong=True)
    return total - wrong.reindex(total.index, fill_value=0), total


def _errors_by_kind(study: Study, region: Region) -> pd.DataFrame:
    """Count first errors by kind: a row a label, a column for each of KINDS."""
    return _counts(study, region, "error", wrong=True).reindex([*KINDS], fill_value=0).T


# ---- tables ------------------------------------------------------------------------------------


def to_markdown(study: Study) -> str:
    """Format tables of exact match by carry chain, of kinds of first errors and of their places."""
    parts = []
    for region in study.regions:
        exact, total = _exact_by_chain(study, region)
        title = "Exact match by length of the longest carry chain"
        parts.append(_table(f"{title}, {REGION_WORDS[region]}", _shares(exact, total)))
    parts.append(_table("First error of wrong answers", _kinds_table(study), 3))
    for region in study.regions:
        wrong = _counts(study, region, "place", wrong=True)
        shares = _shares(wrong, wrong * 0 + wrong.sum())
        less = [signed(place - study.facts["trained_digits"], 0) for place in shares.place]
        shares.insert(1, "less trained digits", less)
        title = "Wrong answers by place of their first wrong token"
        parts.append(_table(f"{title}, {REGION_WORDS[region]}", shares))
    legend = (
        "The first error is the token at which greedy decoding first leaves the right answer; "
        "place 0 is the least significant digit. By chance 22 % of wrong digits are off by one "
        "(two of nine); 8 for 9 and 9 for 0 count as one less. Counts of all seeds together. "
        f"{study.source}"
    )
    return "\n".join([*filter(None, parts), f"{legend}\n"])


def _table(title: str, table: pd.DataFrame, text_columns: int = 0) -> str:
    return "" if table.empty else f"{title}\n\n{markdown(table, text_columns)}"


def _shares(part: pd.DataFrame, total: pd.DataFrame) -> pd.DataFrame:
    cells = {label: map(_share, part[label], total[label]) for label in part}
    return pd.DataFrame(cells, part.index).reset_index()


def _share(part: int, total: int) -> str:
    """Format a share in percent with its counts.

    >>> _share(3, 1200), _share(0, 0)
    ('0.2 % (3 of 1,200)', '-')
    """
    return f"{100 * part / total:.1f} % ({part:,} of {total:,})" if total else "-"


def _kinds_table(study: Study) -> pd.DataFrame:
    body = []
    for region in study.regions:
        problems, errors = _counts(study, region, "error").sum(), _errors_by_kind(study, region)
        wrong, digits = errors.sum(axis=1), errors[_WRONG_DIGIT].sum(axis=1)
        shares = {
            "wrong answers": (wrong, problems),
            "wrong length": (errors[_WRONG_LENGTH].sum(axis=1), wrong),
            "wrong digit": (digits, wrong),
            "off by one, of wrong digits": (errors[_OFF_BY_ONE].sum(axis=1), digits),
        }
        facts = {"seeds": [", ".join(map(str, seeds)) for seeds in study.seeds.values()]}
        facts["problems"] = [REGION_WORDS[region]] * len(errors)
        facts |= {name: [*map(_share, *pair)] for name, pair in shares.items()}
        cells = errors.rename(columns=KINDS).map("{:,}".format)
        body.append(pd.concat([pd.DataFrame(facts, errors.index), cells], axis=1))
    return pd.concat(body).rename_axis("encoding").reset_index()


# ---- figure ------------------------------------------------------------------------------------


def figures(study: Study) -> dict[str, Figure]:
    """Draw exact match by carry chain, a panel a region; below, places and kinds of the first
    errors of the last region."""
    last, styles = study.regions[-1], series_styles(study.seeds)
    handles: list[Artist] = [
        Line2D([], [], label=name, **style, **_LINE) for name, style in styles.items()
    ]
    handles += [Patch(color=c, label=KINDS[kind]) for c, kind in zip(_COLOURS, KINDS, strict=True)]
    lower = max(2.2, 0.3 * len(styles) + 0.8)
    figure = page(6.0, 2.0 + lower, _note(study), handles)
    *upper, places, kinds = figure.subplots(2, 2, height_ratios=(2.0, lower)).flat
    for ax, region in zip(upper, study.regions, strict=False):
        _draw_chains(ax, study, region)
        ax.set_xlabel("length of the longest carry chain")
        finish(ax, f"exact, {REGION_WORDS[region]}")
    _draw_places(places, study, last)
    places.set_xlabel("place of the first wrong token (0: least significant)")
    finish(places, f"first error, {REGION_WORDS[last]}")
    for ax in (*upper, places):
        ax.yaxis.set_major_formatter(percent_tick)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if len(study.regions) == 1:
        upper[1].remove()
    _draw_kinds(kinds, study, last)
    kinds.set_xlabel("share of wrong answers")
    finish(kinds, f"kind of the first error, {REGION_WORDS[last]}", grid="x")
    return {"": figure}


def _draw_chains(ax: Axes, study: Study, region: Region) -> None:
    """Draw exact match by length of the longest chain with Wilson's intervals, the encodings side
    by side so that no interval hides another."""
    exact, total = _exact_by_chain(study, region)
    top = 0.0
    for number, (label, style) in enumerate(series_styles(study.seeds).items()):
        shown = total[label] >= min(_FEWEST, total[label].max())
        right, answers = exact[label][shown].to_numpy(), total[label][shown].to_numpy()
        x = total.index[shown] + 0.4 * ((number + 0.5) / total.shape[1] - 0.5)
        low, high = wilson(right, answers)
        ax.plot(x, right / answers, zorder=3, clip_on=False, **style, **_LINE)
        ax.vlines(x, low, high, color=style["color"], linewidth=0.7, zorder=2)
        top = max(top, *high)
    ax.set_ylim(0, scale_end(top))


def _draw_places(ax: Axes, study: Study, region: Region) -> None:
    """Draw the share of wrong answers at each place; a dashed line follows the last place of
    trained operands."""
    wrong, trained = _counts(study, region, "place", wrong=True), study.facts["trained_digits"]
    places = np.arange(max([trained, *wrong.index]) + 1)
    shares = (wrong / wrong.sum()).reindex(places, fill_value=0)
    for label, style in series_styles(study.seeds).items():
        ax.plot(places, shares[label], zorder=3, clip_on=False, **style, **_LINE)
    ax.axvline(trained - 0.5, color="#555555", linewidth=0.7, linestyle=(0, (3, 2)))
    ax.set_ylim(bottom=0)


def _draw_kinds(ax: Axes, study: Study, region: Region) -> None:
    """Draw a bar an encoding, the first on top: the kinds of its first errors."""
    table = _errors_by_kind(study, region)
    ends = table.div(table.sum(axis=1).clip(lower=1), axis=0).cumsum(axis=1)
    for number, label in enumerate(table.index):
        widths = np.diff(ends.loc[label], prepend=0)
        ax.barh(number, widths, 0.5, ends.loc[label] - widths, color=_COLOURS, linewidth=0)
        # Above the bar, where a name with many options has room.
        text = f"{label}, {table.loc[label].sum():,} wrong"
        ax.text(0.01, number - 0.3, text, va="bottom", fontsize=LETTERS - 0.5)
    ax.set_yticks([])
    ax.set(xlim=(0, 1), ylim=(len(table) - 0.6, -0.75))
    ax.xaxis.set_major_formatter(percent_tick)


def _note(study: Study) -> str:
    pooled = "counts that pool seeds on the same problems, so they are too narrow"
    return (
        "Answers decoded greedily up to their first error. Bars on exact match: Wilson's 95"
        f"{NBSP}% intervals over {pooled if study.several_seeds else 'problems'}; chains of a "
        f"length with fewer than {_FEWEST} answers are in the table alone, and each scale has its "
        "own end. Dashed: to its left the places that trained operands have. A lost last carry "
        "ends too early, an invented one does not end; one less and one more, modulo 10, are what "
        "a lost or invented carry leaves; by chance two of nine wrong digits are off by one. "
        f"{study.source}"
    )
