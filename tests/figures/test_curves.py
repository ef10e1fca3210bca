"""Curves over training: the lines, and the claims of the caption."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from tape_arith.arith.compare.curves import Curves, curve_rows
from tape_arith.arith.figures.curves import compose, footnote
from tape_arith.arith.grids.axes import digit_pairs
from tests.helpers.figures import assert_nothing_is_cut_off, words

NORMS = [[1.41, 1.42, 1.5], [1.41, 1.5, 1.7], [1.41, 1.6, 2.0]]


def run(
    name: str, seed: int, losses: Sequence[float], outside: Sequence[float] = (), **more: Any
) -> tuple[str, int, list[dict[str, Any]]]:
    """Return a run's metrics, a line each 100 steps."""
    lines: list[dict[str, Any]] = [
        {"step": 100 * (place + 1), "loss": loss, "exact_match": (place + seed) / 10}
        | {key: values[place] for key, values in more.items()}
        for place, loss in enumerate(losses)
    ]
    for line, share in zip(lines, outside, strict=False):
        grid = {"in_distribution": 1.0, "out_of_distribution": share}
        line["small_grid"] = {**grid, "by_length": {"1": 1.0}}
    return name, seed, lines


def study(*runs: Any) -> Curves:
    seeds: dict[str, list[int]] = {}
    for name, seed, _ in runs:
        seeds.setdefault(name, []).append(seed)
    rows, axes = curve_rows(runs), digit_pairs(8, 16)
    return Curves(seeds, "mini", {"steps": 300}, "addition", 8, 16, rows, axes)


ROPE = (
    run("rope", 0, [2.0, 1.0, 0.1], [0, 0.1, 0.2]),
    run("rope", 1, [1.0, 0.5, 0.3], [0, 0.3, 0.4]),
)
TAPE = run(
    "tape", 0, [2.0, 0.9, 0.2], [0, 0.2, 0.1], state=[{"norm": n, "moved": n[::-1]} for n in NORMS]
)


def panels(study: Curves) -> dict[str, Axes]:
    return {ax.get_title(loc="left"): ax for ax in compose(study).axes}


def drawn(ax: Axes) -> list[list[float]]:
    """Return the heights of each line."""
    return [list(map(float, np.asarray(line.get_ydata()))) for line in ax.lines]


def test_lines_are_means_and_bands_reach_to_the_seeds() -> None:
    axes = panels(study(*ROPE, TAPE))
    loss = axes["training loss"]
    assert loss.get_yscale() == "log"
    assert drawn(loss)[0] == pytest.approx([1.5, 0.75, 0.2])
    assert drawn(axes["in distribution"])[0] == pytest.approx([0.05, 0.15, 0.25])
    outside = axes["out of distribution"]
    assert drawn(outside) == [pytest.approx([0, 0.2, 0.3]), pytest.approx([0, 0.2, 0.1])]
    (band,) = outside.collections  # one seed of tape has none
    (path,) = band.get_paths()
    corners = {(x, round(y, 6)) for x, y in np.asarray(path.vertices).tolist()}
    assert {(100, 0.0), (200, 0.1), (200, 0.3), (300, 0.2), (300, 0.4)} <= corners


def test_only_steps_that_every_seed_has() -> None:
    shorter = run("rope", 1, [5.0, 4.0], [0.5])
    rows = study(ROPE[0], shorter, TAPE).rows
    steps = rows.groupby(["encoding", "quantity"]).step.max()
    assert (steps["rope", "loss"], steps["rope", "out_of_distribution"]) == (200, 100)
    assert steps["tape", "loss"] == 300
    assert study(ROPE[0], run("rope", 1, []), TAPE).rows.encoding.unique() == ["tape"]


def test_a_state_has_a_row_and_a_line_a_layer() -> None:
    other = run("tape-heads", 0, [2.0, 0.9, 0.2], state=[{"norm": n} for n in NORMS])
    made = study(*ROPE, TAPE, other)
    axes = panels(made)
    layers = np.transpose(NORMS).tolist()
    norm, change, of_heads = (drawn(ax) for title, ax in axes.items() if title.startswith("TAPE"))
    assert norm == of_heads == layers and change == layers[::-1]
    (legend,) = filter(None, (ax.get_legend() for ax in next(iter(axes.values())).figure.axes))
    assert len(legend.get_texts()) == 3
    assert len(panels(study(*ROPE))) == 3


@pytest.mark.parametrize(("width", "columns"), [(5.5, None), (5.5, 2)])
def test_the_legend_of_layers_stands_where_there_is_room(width: float, columns: int | None) -> None:
    figure = compose(study(*ROPE, TAPE), width=width, columns=columns, caption=False)
    assert_nothing_is_cut_off(figure)
    assert figure.get_size_inches()[0] == width and not words(figure).count("Task")
    assert words(figure).count("layer 3") == (columns == 2)


@pytest.mark.parametrize(("highest", "bound"), [(0.03, 0.05), (0.93, 1.0)])
def test_the_scale_out_of_distribution_fits_the_data_and_says_so(
    highest: float, bound: float
) -> None:
    # The highest seed is within, not the mean alone.
    made = study(run("rope", 0, [2, 1], [0, 0]), run("rope", 1, [2, 1], [highest, 0]))
    axes = panels(made)
    outside = axes["out of distribution"]
    assert outside.get_ylim() == pytest.approx((-0.03 * bound, 1.03 * bound))
    assert axes["in distribution"].get_ylim() == pytest.approx((-0.03, 1.03))
    for text in (outside.get_ylabel(), footnote(made)):
        assert (f" {100 * bound:g}\N{NO-BREAK SPACE}%" in text) == (bound < 1)


def test_the_caption_names_bands_seeds_and_runs_that_lack_something() -> None:
    caption = footnote(study(*ROPE, TAPE))
    assert "(TAPE: 0)" in caption and "not scored" not in caption and "So far" not in caption
    early = study(*ROPE, run("tape", 0, [2.0, 0.9], [0.3]))
    assert "TAPE to 200" in footnote(early)
    assert panels(early)["out of distribution"].lines[1].get_marker() == "o"  # one point is seen
    unscored = study(run("rope", 0, [2.0, 1.0]))
    axes = panels(unscored)
    assert len(drawn(axes["training loss"])) == len(drawn(axes["in distribution"])) == 1
    outside = axes["out of distribution"]
    assert drawn(outside) == [] and "scored: RoPE" in footnote(unscored)


def test_long_names_stay_over_their_panel() -> None:
    name = "tape:context=no-attention:width=96@only-positional-from=rope:fraction=0.25"
    figure = compose(study((name, *TAPE[1:])))
    figure.draw_without_rendering()
    titles = [ax._left_title for ax in figure.axes if ax._left_title.get_text()]  # type: ignore[attr-defined]
    boxes = [title.get_window_extent() for title in titles]
    assert len(boxes) == 5
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_a_state_of_a_user_has_a_panel_for_each_measure() -> None:
    names = ("energy", "width", "depth")
    made = study(run("mine", 0, [2.0], state=[dict.fromkeys(names, NORMS[0])]))
    axes = panels(made)
    assert all(drawn(axes[f"mine\n{name}"]) for name in names)
    note = footnote(made)
    assert "measures it" in note and "rotation" not in note
