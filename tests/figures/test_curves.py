"""Curves over training: what is drawn, what the caption claims, and the JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes

from tape_arith.arith.figures.curves import Learner, Series, Study, compose, footnote, to_json

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
    """The heights of each line."""
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
    told = [text.get_text() for text in legend.get_texts()]
    assert told == [f"entering layer {i}" for i in (1, 2, 3)]


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
        said = footnote(study).replace("\N{NO-BREAK SPACE}", " ")
        assert (f"Its scale ends at {100 * bound:g} %," in said) == (bound < 1)


def test_runs_without_a_small_grid_are_drawn_and_told() -> None:
    old = replace(ROPE, in_distribution=NONE, out_of_distribution=NONE, by_length={})
    study = replace(STUDY, learners=(old,))
    axes = panels(study)
    assert len(drawn(axes["training loss"])) == len(drawn(axes["in distribution"])) == 1
    assert drawn(axes["out of distribution"]) == []
    assert [text.get_text() for text in axes["out of distribution"].texts] == ["not taken"]
    assert "(not scored: rope)" in footnote(study)


def test_the_caption_says_what_bands_are_and_over_which_seeds() -> None:
    words = footnote(STUDY)
    assert "seeds 0, 1 (tape: 0)" in words and "preset mini with steps=300" in words
    assert "from the lowest to the highest seed, no interval" in words
    assert "A line without a band is one run." in words
    assert "Nothing is selected" in words and "not scored" not in words
    alone = footnote(replace(STUDY, learners=(TAPE,)))
    assert "One run each: no band says how much seeds differ." in alone
    assert "1.41" in alone and "1.41" not in footnote(replace(STUDY, learners=(ROPE,)))


def test_json() -> None:
    content = json.loads(to_json(STUDY))
    assert content["schema"] == 1 and content["preset"] == "mini"
    rope, tape = content["learners"]
    assert rope["loss"] == {"steps": [100, 200, 300], "values": [[2.0, 1.0, 0.1], [1.0, 0.5, 0.3]]}
    assert rope["by_length"]["1"]["values"] == [[1.0] * 3] * 2
    assert tape["state"]["norm"][2]["values"] == [[1.5, 1.7, 2.0]]


def test_a_run_that_is_behind_is_told() -> None:
    assert "So far" not in footnote(STUDY)
    early = replace(TAPE, loss=series((2.0, 0.9), steps=(100, 200)))
    assert "So far: tape to 200 steps." in footnote(replace(STUDY, learners=(ROPE, early)))


def test_long_names_stay_over_their_panel() -> None:
    name = "tape:context=no-attention:width=96@only-positional-from=rope:fraction=0.25"
    figure = compose(replace(STUDY, learners=(replace(TAPE, encoding=name),)))
    figure.draw_without_rendering()
    titles = [ax._left_title for ax in figure.axes if ax._left_title.get_text()]  # type: ignore[attr-defined]
    boxes = [title.get_window_extent() for title in titles]
    assert len(boxes) == 5
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


def test_one_point_is_seen() -> None:
    early = replace(TAPE, out_of_distribution=series((0.3,), steps=(100,)), state={})
    (line,) = panels(replace(STUDY, learners=(early,)))["out of distribution"].lines
    assert line.get_marker() == "o"
