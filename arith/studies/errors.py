"""Errors in answers: where and how decoders go wrong.

One teacher-forced pass suffices: up to its first wrong token, the decoder predicts the right
answer, so the argmax there is exactly the first error of greedy decoding. Later tokens are not
measured: an answer whose first error is a digit may also have a wrong length.

Rows of the study: the number of `problems` that share region, `chain` (length of the longest carry
chain), `error` (EXACT or a key of KINDS) and `place` of the first wrong token (0 is the least
significant; none for an exact answer).
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.captions import NBSP
from tape_arith.arith.figures.style import (
    LETTERS,
    finish,
    page,
    percent_tick,
    scale_end,
    series_styles,
    styled,
)
from tape_arith.arith.scoring.axes import REGION_WORDS, Region
from tape_arith.arith.scoring.score import (
    PROBE_ROWS,
    ROWS_A_CHUNK,
    Outcome,
    low_precision_threshold,
    score,
)
from tape_arith.arith.scoring.statistics import wilson
from tape_arith.arith.studies.inputs import Integers, StudiedRuns
from tape_arith.arith.studies.study import INSIDE, OUTSIDE, Study, markdown
from tape_arith.arith.tasks.families.tokens import DIGIT_ZERO, EOS
from tape_arith.arith.tasks.task import Problems, load_task
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.names import AttentionChoice

EXACT = "exact"
"""The value of `error` for a right answer."""
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
# Lengths in one hue, digits in another, so that the two halves of a bar are seen first.
_COLOURS = ("#b35806", "#f1a340", "#053061", "#4393c3", "#c6dbef", "#999999")
_FEWEST = 50
"""Minimum number of answers, over all seeds, for a point of the figure; the table has all. If no
chain length has so many, the length with the most answers is drawn."""
_LINE: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.0, "markeredgewidth": 0.4}
_LEGEND = (
    "The first error is the token at which greedy decoding first leaves the right answer; place 0 "
    "is the least significant digit. By chance 22 % of wrong digits are off by one (two of nine); "
    "8 for 9 and 9 for 0 count as one less. Counts of all seeds together."
)


def measure(runs: StudiedRuns, count: int | None = None) -> Study:
    """Count the errors of `runs` on the first `count` problems (None: all) of their evaluation set.

    Raises UsageError for too many problems and a task without carry chains; Failure for a corrupt
    file.
    """
    regions, digits = runs.regions(count), runs.record.config.trained_digits
    total = sum(map(len, regions.values()))

    def measured(decoder: Decoder, hardware: Hardware) -> pd.DataFrame:
        return errors(decoder, runs.bucket, total, digits, hardware)

    return runs.measure("errors", regions, measured, AttentionChoice(compiled=False))


def errors(
    decoder: Decoder, bucket: Bucket, count: int, trained_digits: int, hardware: Hardware
) -> pd.DataFrame:
    """Count the errors in the answers to the first `count` problems of `bucket`, scored as a grid
    is."""
    task, probe = load_task(bucket.task), min(PROBE_ROWS, count)
    threshold = low_precision_threshold(
        decoder, bucket.problems(0, probe), bucket.keys(0, probe), hardware
    )
    parts = []
    for start in range(0, count, ROWS_A_CHUNK):
        stop = min(start + ROWS_A_CHUNK, count)
        problems = bucket.problems(start, stop)
        outcome = score(decoder, problems, bucket.keys(start, stop), hardware, threshold)
        chains = task.carry_chains(bucket.drawn(start, stop))
        if chains is None:
            raise UsageError(f"task {task.name} does not say what its carry chains are")
        parts.append(first_errors(problems, chains, outcome, trained_digits))
    columns = ["region", "chain", "error", "place"]
    counts = pd.concat(parts).value_counts(columns, sort=False, dropna=False)
    return counts.rename("problems").reset_index()


def first_errors(
    problems: Problems, chains: Integers, outcome: Outcome, trained_digits: int
) -> pd.DataFrame:
    """Return one row per problem; `chains` int64[n] has the length of its longest carry chain."""
    longer = (problems.axis_lengths > trained_digits).any(axis=1)
    starts = problems.starts + problems.prompt_lengths
    right = problems.tokens[starts + np.maximum(outcome.first_wrong, 0)].astype(np.int64)
    predicted, difference = outcome.predicted, (outcome.predicted - right) % 10
    # Digits are compared modulo 10: a lost carry leaves one less, an invented carry one more. A
    # lost last carry ends the answer early, an invented one goes on.
    kinds = {
        EXACT: outcome.first_wrong < 0,
        "ended_early": predicted == EOS,
        "no_digit": (predicted < DIGIT_ZERO) | (predicted >= DIGIT_ZERO + 10),
        "went_on": right == EOS,
        "one_less": difference == 9,
        "one_more": difference == 1,
    }
    places = pd.Series(outcome.first_wrong, dtype="Int64")
    return pd.DataFrame(
        {
            "region": np.where(longer, OUTSIDE, INSIDE),
            "chain": chains,
            "error": np.select(list(kinds.values()), list(kinds), "other_digit"),
            "place": places.mask(outcome.first_wrong < 0),
        }
    )


def _counts(study: Study, region: Region, by: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count wrong answers and all answers, over all seeds: one row per value of `by`, one column
    per label."""
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
    for region in study.regions:
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
    texts = [f"{title}\n\n{text}\n" for title, text in tables.items()]
    return "".join([*texts, f"{_LEGEND} {study.source}\n"])


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
    wrong, off_by_one = kinds.sum(axis=1), kinds[_OFF_BY_ONE].sum(axis=1)
    digits = off_by_one + kinds.other_digit
    shares = {
        "wrong answers": (wrong, problems),
        "wrong length": (kinds[_WRONG_LENGTH].sum(axis=1), wrong),
        "wrong digit": (digits, wrong),
        "off by one, of wrong digits": (off_by_one, digits),
    }
    facts = {"seeds": [", ".join(map(str, seeds)) for seeds in study.seeds.values()]}
    facts["problems"] = [REGION_WORDS[region]] * len(kinds)
    facts |= {name: [*map(_share, *pair)] for name, pair in shares.items()}
    counts = kinds.rename(columns=KINDS).map("{:,}".format)
    table = pd.concat([pd.DataFrame(facts, kinds.index), counts], axis=1)
    return table.rename_axis("encoding").reset_index()


# ---- figure ------------------------------------------------------------------------------------


@styled()
def figures(study: Study) -> dict[str, Figure]:
    """Draw exact match by carry chain, one panel per region; below, places and kinds of the first
    errors in the last region."""
    last, styles = study.regions[-1], series_styles(study.seeds)
    handles: list[Artist] = [
        Line2D([], [], label=name, **style, **_LINE) for name, style in styles.items()
    ]
    handles += [Patch(color=c, label=KINDS[kind]) for c, kind in zip(_COLOURS, KINDS, strict=True)]
    note = (
        "Answers decoded greedily up to their first error. Bars on exact match: Wilson's 95"
        f"{NBSP}% intervals over problems, too narrow where seeds are pooled on the same ones; "
        f"chains of a length with fewer than {_FEWEST} answers are in the table alone, and each "
        "scale has its own end. Dashed: to its left the places that trained operands have. A lost "
        "last carry ends too early, an invented one does not end; one less and one more, modulo "
        "10, are what a lost or invented carry leaves; by chance two of nine wrong digits are off "
        f"by one. {study.source}"
    )
    lower = max(2.2, 0.3 * len(styles) + 0.8)
    figure = page(6.0, 2.0 + lower, note, handles)
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
    _draw_kinds(kinds, _kinds(study, last))
    kinds.set_xlabel("share of wrong answers")
    finish(kinds, f"kind of the first error, {REGION_WORDS[last]}", grid="x")
    return {"": figure}


def _draw_chains(ax: Axes, study: Study, region: Region) -> None:
    """Draw exact match by length of the longest chain with Wilson's intervals, the encodings side
    by side so that no interval hides another."""
    wrong, total = _counts(study, region, "chain")
    top = 0.0
    for number, (label, style) in enumerate(series_styles(study.seeds).items()):
        answers = total[label][total[label] >= min(_FEWEST, total[label].max())]
        right = answers - wrong[label][answers.index]
        x = answers.index + 0.4 * ((number + 0.5) / total.shape[1] - 0.5)
        low, high = wilson(right, answers)
        ax.plot(x, right / answers, zorder=3, clip_on=False, **style, **_LINE)
        ax.vlines(x, low, high, color=style["color"], linewidth=0.7, zorder=2)
        top = max(top, *high)
    ax.set_ylim(0, scale_end(top))


def _draw_places(ax: Axes, study: Study, region: Region) -> None:
    """Draw the share of wrong answers at each place; a dashed line follows the last place of
    trained operands."""
    wrong, trained = _counts(study, region, "place")[0], study.facts["trained_digits"]
    places = np.arange(max([trained, *wrong.index]) + 1)
    shares = (wrong / wrong.sum()).reindex(places, fill_value=0)
    for label, style in series_styles(study.seeds).items():
        ax.plot(places, shares[label], zorder=3, clip_on=False, **style, **_LINE)
    ax.axvline(trained - 0.5, color="#555555", linewidth=0.7, linestyle=(0, (3, 2)))
    ax.set_ylim(bottom=0)


def _draw_kinds(ax: Axes, table: pd.DataFrame) -> None:
    """Draw one bar per encoding, the first on top, divided into kinds of first errors."""
    wrong = table.sum(axis=1)
    shares = table.div(wrong.clip(lower=1), axis=0)
    left = shares.cumsum(axis=1) - shares
    for kind, colour in zip(KINDS, _COLOURS, strict=True):
        ax.barh(range(len(table)), shares[kind], 0.5, left[kind], color=colour, linewidth=0)
    for number, label in enumerate(table.index):
        # The name stands above the bar, where there is room for many options.
        text = f"{label}, {wrong[label]:,} wrong"
        ax.text(0.01, number - 0.3, text, va="bottom", fontsize=LETTERS - 0.5)
    ax.set(xlim=(0, 1), ylim=(len(table) - 0.6, -0.75), yticks=[])
    ax.xaxis.set_major_formatter(percent_tick)
