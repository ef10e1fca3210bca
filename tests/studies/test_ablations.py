"""Ablations beside what they are taken from: families, differences, tests, the figure."""

import csv
import io
from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from scipy import stats

from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.studies import ablations
from tape_arith.arith.studies.ablations import families
from tests.helpers.figures import assert_nothing_is_cut_off
from tests.helpers.made_grids import filled


def panel(name: str, outside: Sequence[int], inside: int = 100) -> list[Grid]:
    """A seed for each of `outside`: exact answers of 100 in every cell beyond the trained ones."""
    grids = []
    for seed, right in enumerate(outside):
        counts = np.full((4, 4), right)
        counts[:2, :2] = inside
        grid = filled(counts, encoding=name, seed=seed)
        grid.blocks_done = 100
        grids.append(grid)
    return grids


PANELS = [
    panel("tape:width=4", [50, 60, 58]),
    panel("tape", [20, 30, 22]),
    panel("tape:context=no-mlp", [21, 25, 33]),
    panel("rope", [5, 6, 9]),
    panel("tape-heads:width=4", [7]),
]


def test_families_are_what_names_begin_with() -> None:
    grouped = families(PANELS)
    assert [family.name for family in grouped] == ["tape", "rope", "tape-heads"]
    tape = grouped[0].members
    assert [member.label for member in tape] == ["tape", "width=4", "context=no-mlp"]
    assert [round(member.difference or 0, 6) for member in tape] == [0, 0.32, 0.023333]
    assert grouped[2].members[0].label == "tape-heads:width=4"  # without the one it is taken from


def test_p_is_welch_s_after_holm_within_a_family() -> None:
    members = families(PANELS)[0].members
    base = [grid.mean("out_of_distribution").value for grid in PANELS[1]]
    p = [
        stats.ttest_ind(
            [grid.mean("out_of_distribution").value for grid in other], base, equal_var=False
        ).pvalue
        for other in (PANELS[0], PANELS[2])
    ]
    assert p[0] < p[1]
    expected = [2 * p[0], max(2 * p[0], p[1])]
    assert [member.p for member in members[1:]] == pytest.approx(expected)
    assert members[0].p is None


def test_what_did_not_converge_or_has_one_seed_is_not_tested() -> None:
    changed = [PANELS[1], panel("tape:width=4", [50, 60, 58], inside=90)]
    (family,) = families([*changed, panel("tape:width=8", [70])])
    assert [member.p for member in family.members] == [None] * 3
    table = ablations.to_markdown([family])
    assert "| tape:width=4 | 3 | 90.0 ± 0.0 | 56.0 ± 13.1 | +32.0 | - | not converged |" in table
    assert "1 (± over problems)" in table


def test_the_tables_say_the_same() -> None:
    grouped = families(PANELS)
    table = ablations.to_markdown(grouped).splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in table[2:]] == [
        "tape",
        "tape:width=4",
        "tape:context=no-mlp",
        "rope",
        "tape-heads:width=4",
    ]
    lines = list(csv.DictReader(io.StringIO(ablations.to_csv(grouped))))
    assert [line["family"] for line in lines] == ["tape"] * 3 + ["rope", "tape-heads"]
    assert float(lines[1]["difference"]) == pytest.approx(fmean([0.5, 0.6, 0.58]) - 0.24)
    assert lines[0]["difference"] == "" and 0 < float(lines[1]["p_welch_holm"]) < 0.05


def test_runs_that_must_not_be_compared_are_refused() -> None:
    other = filled(np.full((4, 4), 3), encoding="tape:width=8", budget={"steps": 2})
    with pytest.raises(UsageError, match="steps"):
        families([PANELS[1], [other]])


def test_the_figure_has_a_row_each_and_the_base_s_mean_through_its_family() -> None:
    grouped = families(PANELS)
    inside, outside = ablations.compose(grouped, PANELS).axes
    assert "in distribution" in inside.get_xlabel() and "out of" in outside.get_xlabel()
    names = [label.get_text() for label in inside.get_yticklabels()]
    assert names == ["tape", "width=4", "context=no-mlp", "rope", "tape-heads:width=4"]
    (differences,) = outside.child_axes
    texts = [label.get_text() for label in differences.get_yticklabels()]
    assert texts == ["difference", "+32.0", "+2.3"]
    drawn = [np.asarray(points.get_offsets()) for points in outside.collections]
    seeds = sorted(float(x) for points in drawn if len(points) > 1 for x in points[:, 0])
    assert seeds == pytest.approx(sorted([50, 60, 58, 20, 30, 22, 21, 25, 33, 5, 6, 9]))
    through = [
        line.get_segments()[0]
        for line in outside.collections
        if isinstance(line, LineCollection) and len(line.get_segments()[0]) == 2
    ]
    upright = [ends[0][0] for ends in through if ends[0][0] == ends[1][0]]
    assert upright == [pytest.approx(24)]
    assert_nothing_is_cut_off(ablations.compose(grouped, PANELS))
    low, high = outside.get_xlim()
    assert low <= 4 and 69 < high < 75  # all seeds and intervals, and not much more
