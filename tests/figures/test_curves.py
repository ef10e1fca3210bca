"""Curves over training: the lines, and the claims of the caption."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.axes import Axes

from tape_arith.arith.figures.curves import Learner, Series, Study, compose, footnote

STEPS = (100, 200, 300)


def series(*rows: tuple[float, ...], steps: tuple[int, ...] = STEPS) -> Series:
    return Series(steps, rows)


NONE = Series((), ())
ROPE = Learner(
    "rope",
    (0, 1),
    loss=series((2.0, 1.0, 0.1), (1.0, 0.5, 0.3)),
    held_out=series((0.0, 0.5, 1.0), (0.2, 0.7, 0.8)),
    in_distribution=series((0.0, 0.4, 1.0), (0.1, 0.7, 0.7)),
    out_of_distribution=series((0.0, 0.1, 0.2), (0.0, 0.3, 0.4)),
    by_length={1: series((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))},
)
TAPE = Learner(
    "tape",
    (0,),
    loss=series((2.0, 0.9, 0.2)),
    held_out=series((0.0, 0.6, 0.9)),
    in_distribution=series((0.0, 0.6, 0.9)),
    out_of_distribution=series((0.0, 0.2, 0.1)),
    state={
        "norm": (series((1.41, 1.41, 1.41)), series((1.42, 1.5, 1.6)), series((1.5, 1.7, 2.0))),
        "moved": (series((0.0, 0.0, 0.0)), series((0.1, 0.2, 0.3)), series((0.2, 0.4, 0.6))),
    },
)
STUDY = Study((ROPE, TAPE), "mini", {"steps": 300}, "addition", 8, 16)


def panels(study: Study) -> dict[str, Axes]:
    return {ax.get_title(loc="left"): ax for ax in compose(study).axes}


def drawn(ax: Axes) -> list[list[float]]:
    """Return the heights of each line."""
    return [list(map(float, np.asarray(line.get_ydata()))) for line in ax.lines]


def test_lines_are_means_and_bands_reach_to_the_seeds() -> None:
    axes = panels(STUDY)
    loss = axes["training loss"]
    assert loss.get_yscale() == "log"
    assert drawn(loss)[0] == pytest.approx([1.5, 0.75, 0.2])
    assert drawn(axes["in distribution"])[0] == pytest.approx([0.1, 0.6, 0.9])
    assert drawn(axes["out of distribution"]) == [
        pytest.approx([0.0, 0.2, 0.3]),
        pytest.approx([0.0, 0.2, 0.1]),
    ]
    (band,) = axes["out of distribution"].collections  # one seed of tape has none
    (path,) = band.get_paths()
    corners = {(x, round(y, 6)) for x, y in np.asarray(path.vertices).tolist()}
    assert {(100, 0.0), (200, 0.1), (200, 0.3), (300, 0.2), (300, 0.4)} <= corners


def test_a_state_has_a_row_and_a_line_a_layer() -> None:
    axes = panels(STUDY)
    assert drawn(axes["tape\nnorm of e"]) == [list(s.values[0]) for s in TAPE.state["norm"]]
    assert drawn(axes["tape\nchange of e"]) == [list(s.values[0]) for s in TAPE.state["moved"]]
    assert len(panels(replace(STUDY, learners=(ROPE,)))) == 3
    (legend,) = filter(None, (ax.get_legend() for ax in compose(STUDY).axes))
    assert len(legend.get_texts()) == 3


def test_the_scale_out_of_distribution_fits_the_data_and_says_so() -> None:
    for highest, bound in ((0.03, 0.05), (0.93, 1.0)):
        low = replace(ROPE, out_of_distribution=series((0.0, 0.0, 0.0), (0.0, highest, 0.0)))
        study = replace(STUDY, learners=(low,))
        axes = panels(study)
        # The highest seed is within, not the mean alone.
        assert axes["out of distribution"].get_ylim() == pytest.approx(
            (-0.03 * bound, 1.03 * bound)
        )
        assert axes["in distribution"].get_ylim() == pytest.approx((-0.03, 1.03))
        label = axes["out of distribution"].get_ylabel().replace("\N{NO-BREAK SPACE}", " ")
        assert (f"(to {100 * bound:g} %)" in label) == (bound < 1)
        note = footnote(study).replace("\N{NO-BREAK SPACE}", " ")
        assert (f"Its scale ends at {100 * bound:g} %," in note) == (bound < 1)


def test_the_caption_names_bands_seeds_and_runs_that_lack_something() -> None:
    caption = footnote(STUDY)
    assert "seeds 0, 1 (tape: 0)" in caption and "preset mini with steps=300" in caption
    assert "from the lowest to the highest seed, no interval" in caption
    assert "not scored" not in caption and "So far" not in caption
    alone = footnote(replace(STUDY, learners=(TAPE,)))
    assert "One run each: no band says how much seeds differ." in alone
    early = replace(TAPE, loss=series((2.0, 0.9), steps=(100, 200)))
    early = replace(early, out_of_distribution=series((0.3,), steps=(100,)), state={})
    study = replace(STUDY, learners=(ROPE, early))
    assert "So far: tape to 200 steps." in footnote(study)
    assert panels(study)["out of distribution"].lines[1].get_marker() == "o"  # one point is seen
    old = replace(ROPE, in_distribution=NONE, out_of_distribution=NONE, by_length={})
    study = replace(STUDY, learners=(old,))
    axes = panels(study)
    assert len(drawn(axes["training loss"])) == len(drawn(axes["in distribution"])) == 1
    assert drawn(axes["out of distribution"]) == [] and "(not scored: rope)" in footnote(study)


def test_long_names_stay_over_their_panel() -> None:
    name = "tape:context=no-attention:width=96@only-positional-from=rope:fraction=0.25"
    figure = compose(replace(STUDY, learners=(replace(TAPE, encoding=name),)))
    figure.draw_without_rendering()
    titles = [ax._left_title for ax in figure.axes if ax._left_title.get_text()]  # type: ignore[attr-defined]
    boxes = [title.get_window_extent() for title in titles]
    assert len(boxes) == 5
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
