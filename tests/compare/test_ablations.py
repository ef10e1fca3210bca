"""Ablations beside what they are taken from: families, differences, tests, the figure."""

import csv
import io
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from scipy import stats

from tape_arith.arith.compare.sweep_tables import ablation_table, families
from tape_arith.arith.figures.ablations import compose as compose_ablations
from tape_arith.arith.grids.panel import Panel
from tests.helpers.figures import assert_nothing_is_cut_off, words
from tests.helpers.made_grids import filled


def panel(name: str, outside: Sequence[int], inside: int = 100, **more: Any) -> Panel:
    """Return a seed for each of `outside`: exact answers of 100 in every longer cell."""
    grids = []
    for seed, right in enumerate(outside):
        counts = np.full((4, 4), right)
        counts[:2, :2] = inside
        grid = filled(counts, encoding=name, seed=seed, **more)
        grid.blocks_done = 100
        grids.append(grid)
    return Panel.of(grids)


PANELS = [
    panel("tape:width=4", [50, 60, 58]),
    panel("tape", [20, 30, 22]),
    panel("tape:context=no-mlp", [21, 25, 33]),
    panel("rope", [5, 6, 9]),
    panel("tape-heads:width=4", [7]),
]


def test_families_are_what_names_begin_with() -> None:
    grouped = families(PANELS)
    labels = [[member.label for member in members] for members in grouped]
    # The last one is without the one it is taken from.
    assert labels == [["tape", "width=4", "context=no-mlp"], ["rope"], ["tape-heads:width=4"]]
    assert [round(member.difference or 0, 6) for member in grouped[0]] == [0, 0.32, 0.023333]
    lines = list(csv.DictReader(io.StringIO(ablation_table(grouped).to_csv())))
    assert [line["family"] for line in lines] == ["tape"] * 3 + ["rope", "tape-heads"]
    assert float(lines[1]["difference"]) == pytest.approx(fmean([0.5, 0.6, 0.58]) - 0.24)
    assert lines[0]["difference"] == "" and 0 < float(lines[1]["p_welch_holm"]) < 0.05
    members = grouped[0]  # p is Welch's, after Holm within a family
    seeds = [panel.seed_means("out_of_distribution") for panel in PANELS]
    p = [stats.ttest_ind(seeds[n], seeds[1], equal_var=False).pvalue for n in (0, 2)]
    assert p[0] < p[1]
    expected = [2 * p[0], max(2 * p[0], p[1])]
    assert [member.p for member in members[1:]] == pytest.approx(expected)
    tests = [stats.ttest_ind(seeds[n], seeds[1], equal_var=False) for n in (0, 2)]
    widths = [np.ptp(test.confidence_interval()) / 2 for test in tests]
    assert [float(line["difference_half_width"]) for line in lines[1:3]] == pytest.approx(widths)
    assert members[0].p is None


def test_nothing_is_compared_without_the_unchanged_encoding() -> None:
    panels = [panel("tape:width=4", [50, 60, 58]), panel("tape:width=12", [20, 30, 22])]
    (members,) = families(panels)
    assert [(each.label, each.unchanged, each.difference, each.p) for each in members] == [
        ("tape:width=4", False, None, None),
        ("tape:width=12", False, None, None),
    ]
    figure = compose_ablations([members], panels)
    names = figure.axes[0].get_yticklabels()
    assert [(name.get_text(), name.get_fontweight()) for name in names] == [
        ("TAPE (width=4)", "normal"),
        ("TAPE (width=12)", "normal"),
    ]
    assert "unchanged" not in words(figure)


def test_two_classes_of_one_file_are_two_families() -> None:
    names = ("mine.py:A", "mine.py:B", "mine.py:B:width=4")
    grouped = families([panel(name, [50]) for name in names])
    labels = [[member.label for member in members] for members in grouped]
    assert labels == [["mine.py:A"], ["mine.py:B", "width=4"]]
    lines = list(csv.DictReader(io.StringIO(ablation_table(grouped).to_csv())))
    assert [line["family"] for line in lines] == ["mine.py:A", "mine.py:B", "mine.py:B"]


def test_unconverged_runs_and_single_seeds_are_not_tested() -> None:
    changed = [PANELS[1], panel("tape:width=4", [50, 60, 58], inside=90)]
    (members,) = families([*changed, panel("tape:width=8", [70])])
    assert [member.p for member in members] == [None] * 3
    table = ablation_table([members]).to_markdown()
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()]
    (narrow,) = (line for line in cells if line[0].endswith("(width=4)"))
    assert [line.split(" ±")[0] for line in narrow[1:5]] == ["3", "90.0", "56.0", "+32.0"]
    assert narrow[5:] == ["-", "not converged"] and "problems)" in table


def test_two_scorings_of_the_same_runs_are_not_tested() -> None:
    yarn = panel("tape", [20, 30, 22], extrapolation="yarn")
    paper = panel("tape", [50, 60, 58], extrapolation="yarn:ramp=paper")
    ((_, member),) = families([yarn, paper])
    assert (member.points, member.p) == ("+32.0", None)


def test_the_figure_has_a_row_each_and_the_base_s_mean_through_its_family() -> None:
    figure = compose_ablations(families(PANELS), PANELS)
    inside, outside = figure.axes
    names = [label.get_text() for label in inside.get_yticklabels()]
    assert names == ["TAPE", "width=4", "context=no-mlp", "RoPE", "TAPE-heads (width=4)"]
    (differences,) = outside.child_axes
    texts = [label.get_text() for label in differences.get_yticklabels()]
    assert texts == ["", "+32.0 ± 12.0", "+2.3 ± 13.1", "", "", "difference"]
    drawn = [np.asarray(line.get_xdata()) for line in outside.lines if line.get_marker() == "o"]
    seeds = sorted(float(x) for xs in drawn if len(xs) > 1 for x in xs)
    assert seeds == pytest.approx(sorted([50, 60, 58, 20, 30, 22, 21, 25, 33, 5, 6, 9]))
    segments = [
        line.get_segments()[0] for line in outside.collections if isinstance(line, LineCollection)
    ]
    assert [ends[0][0] for ends in segments if ends[0][0] == ends[1][0]] == [pytest.approx(24)]
    assert_nothing_is_cut_off(figure)
