"""Errors in answers: where and how decoders go wrong.

Rows of the study: the number of `problems` that share region, `chain` (length of the longest carry
chain; none for a task without carries), `error` (EXACT or a key of KINDS) and `place` of the first
wrong token (0 is the first, in a number that is written so the least significant; none for an exact
answer).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from tape_arith.arith.compare.captions import NBSP
from tape_arith.arith.figures.style import LETTERS, finish, page, percent_tick, scale_end, styled
from tape_arith.arith.grids.axes import REGION_WORDS, Region, scored_axes
from tape_arith.arith.grids.statistics import wilson
from tape_arith.arith.studies.first_errors import (
    EXACT,
    KINDS,
    OFF_BY_ONE,
    WRONG_LENGTH,
    count_first_errors,
    has_decimals,
    has_digits,
)
from tape_arith.arith.studies.inputs import StudiedRuns
from tape_arith.arith.studies.study import Study, is_one_number, markdown
from tape_arith.arith.tasks.families.two_operands import TwoOperands
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Task

# Lengths in one hue, digits in another, so that the two halves of a bar are seen first.
_COLOURS = ("#b35806", "#f1a340", "#053061", "#4393c3", "#c6dbef", "#999999", "#5e3c99", "#b2abd2")
_FEWEST = 50
"""Minimum number of answers, over all seeds, for a point of the figure; the table has all. If no
chain length has so many, the length with the most answers is drawn."""
_LINE: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.0, "markeredgewidth": 0.4}
_BY_CHANCE = (
    "If a wrong digit were any of the nine others, 22 % would be off by one; 8 for 9 and 9 for 0 "
    "count as one less. "
)


def measure(runs: StudiedRuns, count: int | None = None) -> Study:
    """Count the errors of `runs` on the first `count` problems (None: all) of their evaluation set.

    Raises UsageError for too many problems, Failure for a corrupt file.
    """
    regions, config = runs.regions(count), runs.record.config
    axes = scored_axes(config.bucket(0), runs.bucket)
    total = sum(map(len, regions.values()))
    return runs.measure(
        "errors", regions, lambda runner: count_first_errors(runner, runs.bucket, total, axes)
    )


def _task(study: Study) -> Task[Any]:
    return load_task(study.facts["evaluation"]["task"])


def _shown_kinds(study: Study) -> dict[str, str]:
    """Return the kinds of errors that answers to the task can have, with their words."""
    task, seen = _task(study), set(study.rows.error)
    possible = {*WRONG_LENGTH, *(("other_digit", "no_digit") if has_digits(task) else ())}
    possible |= {*OFF_BY_ONE} if has_decimals(task) else set()
    return {kind: words for kind, words in KINDS.items() if kind in possible | seen}


def _counts(study: Study, region: Region, by: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count wrong answers and all answers: one row per value of `by`, one column per label."""
    rows = study.labelled.query("region == @region")
    tables = [
        each.pivot_table("problems", by, "label", "sum", fill_value=0)
        for each in (rows[rows.error != EXACT], rows)
    ]
    wrong, total = (t.reindex(columns=[*study.seeds], fill_value=0).astype(int) for t in tables)
    return wrong.reindex(total.index, fill_value=0), total


def _kinds(study: Study, region: Region) -> pd.DataFrame:
    """Count first errors: one row per label, one column for each of KINDS."""
    return _counts(study, region, "error")[0].reindex([*KINDS], fill_value=0).T


# ---- tables ------------------------------------------------------------------------------------


def to_markdown(study: Study) -> str:
    """Format tables of exact match by carry chain, of kinds of first errors and of their places."""
    tables = {}
    for region in study.regions if study.rows.chain.notna().any() else ():
        wrong, total = _counts(study, region, "chain")
        title = f"Exact match by length of the longest carry chain, {REGION_WORDS[region]}"
        tables[title] = markdown(_shares(total - wrong, total), 0)
    kinds = pd.concat([_kinds_table(study, region) for region in study.regions])
    tables["First error of wrong answers"] = markdown(kinds, 3)
    for region in study.regions:
        wrong, _ = _counts(study, region, "place")
        title = f"Wrong answers by place of their first wrong token, {REGION_WORDS[region]}"
        if len(wrong):
            tables[title] = markdown(_shares(wrong, wrong * 0 + wrong.sum()), 0)
    texts, task = [f"{title}\n\n{text}\n" for title, text in tables.items()], _task(study)
    zero = "the least significant digit" if is_one_number(task) else "the first token"
    legend = (
        "The first error is the token at which greedy decoding first leaves the right answer; "
        f"place 0 is {zero}. {_BY_CHANCE if has_decimals(task) else ''}"
        "Counts of all seeds together."
    )
    return "".join([*texts, f"{legend} {study.source}\n"])


def _shares(part: pd.DataFrame, total: pd.DataFrame) -> pd.DataFrame:
    cells = {label: map(_share, part[label], total[label]) for label in part}
    return pd.DataFrame(cells, part.index).reset_index()


def _share(part: int, total: int) -> str:
    """Format a share in percent with its counts.

    >>> _share(3, 1200), _share(0, 0)
    ('0.2 % (3 of 1,200)', '-')
    """
    return f"{100 * part / total:.1f} % ({part:,} of {total:,})" if total else "-"


def _kinds_table(study: Study, region: Region) -> pd.DataFrame:
    kinds, problems = _kinds(study, region), _counts(study, region, "error")[1].sum()
    wrong, off_by_one = kinds.sum(axis=1), kinds[OFF_BY_ONE].sum(axis=1)
    digits = off_by_one + kinds.other_digit
    shares = {
        "wrong answers": (wrong, problems),
        "wrong length": (kinds[WRONG_LENGTH].sum(axis=1), wrong),
        "wrong digit": (digits, wrong),
        "off by one, of wrong digits": (off_by_one, digits),
    }
    if not has_digits(_task(study)):
        del shares["wrong digit"]
    if not has_decimals(_task(study)):
        del shares["off by one, of wrong digits"]
    facts = {"seeds": [", ".join(map(str, seeds)) for seeds in study.seeds.values()]}
    facts["problems"] = [REGION_WORDS[region]] * len(kinds)
    facts |= {name: [*map(_share, *pair)] for name, pair in shares.items()}
    counts = kinds[[*_shown_kinds(study)]].rename(columns=KINDS).map("{:,}".format)
    table = pd.concat([pd.DataFrame(facts, kinds.index), counts], axis=1)
    return table.rename_axis("encoding").reset_index()


# ---- figure ------------------------------------------------------------------------------------


@styled()
def figures(study: Study) -> dict[str, Figure]:
    """Draw exact match by carry chain, if there are any, and first errors in the last region."""
    last, styles, task = study.regions[-1], study.points, _task(study)
    kinds, has_chains = _shown_kinds(study), bool(study.rows.chain.notna().any())
    colours = dict(zip(KINDS, _COLOURS, strict=True))
    handles: list[Artist] = [
        Line2D([], [], label=name, **style, **_LINE) for name, style in styles.items()
    ]
    handles += [Patch(color=colours[kind], label=words) for kind, words in kinds.items()]
    one_number = is_one_number(task)
    has_places = one_number and isinstance(task, TwoOperands)
    note = f"{_figure_note(has_chains, has_places)} {study.source}"
    lower = max(2.2, 0.3 * len(styles) + 0.8)
    figure = page(6.0, 2.0 * has_chains + lower, note, handles)
    heights = (2.0, lower) if has_chains else (lower,)
    *upper, places_ax, kinds_ax = figure.subplots(len(heights), 2, height_ratios=heights).flat
    for ax, region in zip(upper, study.regions, strict=False):
        _draw_chains(ax, study, region)
        ax.set_xlabel("length of the longest carry chain")
        finish(ax, f"exact, {REGION_WORDS[region]}")
    _draw_places(places_ax, study, last, has_places)
    zero = "least significant" if one_number else "first"
    places_ax.set_xlabel(f"place of the first wrong token (0: {zero})")
    places_ax.set_ylabel("share of wrong answers")
    finish(places_ax, f"first error, {REGION_WORDS[last]}")
    for ax in (*upper, places_ax):
        ax.yaxis.set_major_formatter(percent_tick)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if upper and len(study.regions) == 1:
        upper[1].remove()
    _draw_kinds(kinds_ax, _kinds(study, last)[[*kinds]], colours)
    kinds_ax.set_xlabel("share of wrong answers")
    finish(kinds_ax, f"kind of the first error, {REGION_WORDS[last]}", grid="x")
    return {"": figure}


def _figure_note(has_chains: bool, has_places: bool) -> str:
    note = "Answers decoded greedily up to their first error."
    if has_chains:
        note += (
            f" Bars: Wilson's 95{NBSP}% intervals over problems, too narrow where seeds share "
            f"them; chains with fewer than {_FEWEST} answers are in the table alone."
        )
    if has_places:
        note += " Dashed: to its left the places that trained operands have."
    return note


def _draw_chains(ax: Axes, study: Study, region: Region) -> None:
    """Draw exact match by length of the longest chain with Wilson's intervals, side by side."""
    wrong, total = _counts(study, region, "chain")
    top = 0.0
    for number, (label, style) in enumerate(study.points.items()):
        answers = total[label][total[label] >= min(_FEWEST, total[label].max())]
        right = answers - wrong[label][answers.index]
        x = answers.index + 0.4 * ((number + 0.5) / total.shape[1] - 0.5)
        low, high = wilson(right, answers)
        ax.plot(x, right / answers, zorder=3, clip_on=False, **style, **_LINE)
        ax.vlines(x, low, high, color=style["color"], linewidth=0.7, zorder=2)
        top = max(top, *high)
    ax.set_ylim(0, scale_end(top))


def _draw_places(ax: Axes, study: Study, region: Region, has_places: bool) -> None:
    """Draw the share of wrong answers at each place; a dashed line follows the last trained one."""
    wrong, trained = _counts(study, region, "place")[0], study.facts["trained_digits"]
    places = np.arange(max([trained * has_places, *wrong.index]) + 1)
    shares = (wrong / wrong.sum()).reindex(places, fill_value=0)
    for label, style in study.points.items():
        ax.plot(places, shares[label], zorder=3, clip_on=False, **style, **_LINE)
    if has_places:
        ax.axvline(trained - 0.5, color="#555555", linewidth=0.7, linestyle=(0, (3, 2)))
    ax.set_ylim(bottom=0)


def _draw_kinds(ax: Axes, table: pd.DataFrame, colours: Mapping[str, str]) -> None:
    """Draw one bar per encoding, the first on top, divided into kinds of first errors."""
    wrong = table.sum(axis=1)
    shares = table.div(wrong.clip(lower=1), axis=0)
    left = shares.cumsum(axis=1) - shares
    for kind, colour in colours.items():
        if kind in table:
            ax.barh(range(len(table)), shares[kind], 0.5, left[kind], color=colour, linewidth=0)
    for number, label in enumerate(table.index):
        # Above the bar there is room for a name with many options.
        text = f"{label}, {wrong[label]:,} wrong"
        ax.text(0.01, number - 0.3, text, va="bottom", fontsize=LETTERS - 0.5)
    ax.set(xlim=(0, 1), ylim=(len(table) - 0.6, -0.75), yticks=[])
    ax.xaxis.set_major_formatter(percent_tick)
