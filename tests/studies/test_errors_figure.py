"""The figure and the tables of wrong answers, from made-up counts."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tape_arith.arith.studies.errors_data import (
    KINDS,
    ErrorCounts,
    ErrorStudy,
    RunErrors,
    to_json,
    to_markdown,
)
from tape_arith.arith.studies.errors_figure import compose, draw
from tests.helpers.figures import assert_nothing_is_cut_off, words


def counts(exact: int, *, outside: bool = True, times: int = 1) -> ErrorCounts:
    """Of 40 problems in distribution 4 are wrong; out of it, of 20, all but `exact`; and all of
    that `times` times."""
    wrong = 20 - exact if outside else 0
    kinds = np.zeros((2, len(KINDS)), np.int64)
    kinds[0, list(KINDS).index("one_less")] = 4
    kinds[1, list(KINDS).index("ended_early")] = wrong // 2
    kinds[1, list(KINDS).index("other_digit")] = wrong - wrong // 2
    return ErrorCounts(
        problems=times * np.array([[10, 30, 0, 0, 0], [0, 5, 15, 0, 0]]) * [[1], [outside]],
        exact=times * np.array([[10, 26, 0, 0, 0], [0, exact if outside else 0, 0, 0, 0]]),
        first_wrong=times * np.array([[4, 0, 0, 0, 0, 0], [0, 0, wrong, 0, 0, 0]]),
        kinds=times * kinds,
    )


def study(*runs: RunErrors) -> ErrorStudy:
    evaluation = {"task": "addition", "version": 1, "split": "carry", "seed": 0}
    evaluation |= {"max_digits": 4, "problems": 60, "sha256": "ab" * 32}
    return ErrorStudy(runs, "mini", {"steps": 2000}, 2, evaluation)


THREE = study(
    RunErrors("a", "rope", 1, counts(5)),
    RunErrors("b", "fire", 0, counts(0)),
    RunErrors("c", "rope", 0, counts(2)),
)


def points(ax: Axes, number: int) -> NDArray[np.float64]:
    return np.array(ax.lines[number].get_xydata(), dtype=np.float64)


def test_markdown_shows_shares_with_their_counts() -> None:
    text = to_markdown(THREE)
    inside, outside = (
        text.split(f"chain, {region}\n\n")[1]
        for region in ("in distribution", "out of distribution")
    )
    assert inside.startswith("| chain | rope | fire |\n| ---: | ---: | ---: |\n| 0 | 100.0 % (20 ")
    assert "| 1 | 86.7 % (52 of 60) | 86.7 % (26 of 30) |" in inside.split("\n\n")[0]
    assert outside.split("\n\n")[0].endswith("| 2 | 0.0 % (0 of 30) | 0.0 % (0 of 15) |")
    wrong = "| rope | 0, 1 | out of distribution | 82.5 % (33 of 40) | 48.5 % (16 of 33) | "
    assert wrong + "51.5 % (17 of 33) | 0.0 % (0 of 17) | 16 | 0 | 0 | 0 | 17 | 0 |" in text
    assert "| 0 | \N{MINUS SIGN}2 | 100.0 % (8 of 8) | 100.0 % (4 of 4) |" in text
    assert "hard sums: long carry chains, trained to 2 digits and tested to 4" in text
    assert "these runs only: seeds 0, 1 (fire: 0)" in text


def test_json_pools_seeds_and_keeps_runs() -> None:
    content = json.loads(to_json(THREE))
    assert (content["schema"], content["kind"], content["trained_digits"]) == (1, "errors", 2)
    seeds = [(one["encoding"], one["seeds"]) for one in content["encodings"]]
    assert seeds == [("rope", [0, 1]), ("fire", [0])]
    assert [run["run"] for run in content["runs"]] == ["a", "b", "c"]
    rope = content["encodings"][0]["out_of_distribution"]
    assert (rope["problems"], rope["exact"], rope["wrong"]) == (40, 7, 33)
    assert rope["by_longest_chain"][0] == {"length": 1, "problems": 10, "exact": 7}
    assert rope["by_first_wrong_place"] == [{"place": 2, "beyond_trained": 0, "wrong": 33}]
    assert rope["kinds"]["ended_early"] == rope["wrong_length"] == 16


def test_figure_shows_the_counts() -> None:
    runs = (("rope", 1, 5), ("fire", 0, 0), ("rope", 0, 2))
    figure = compose(
        study(*(RunErrors(name, name, seed, counts(exact, times=10)) for name, seed, exact in runs))
    )
    inside, outside, places, kinds = figure.axes
    assert np.allclose(points(inside, 0), [[-0.1, 1], [0.9, 52 / 60]])
    assert np.allclose(points(outside, 0), [[0.9, 0.7], [1.9, 0]])
    assert np.allclose(points(outside, 1), [[1.1, 0], [2.1, 0]])
    assert np.allclose(points(places, 0), [[0, 0], [1, 0], [2, 1]])
    assert points(places, -1)[0, 0] == 1.5  # between the trained places and the others
    widths = [float(bar.get_width()) for bar in kinds.patches]  # type: ignore[attr-defined]
    assert np.allclose(widths[: len(KINDS)], [16 / 33, 0, 0, 0, 17 / 33, 0])
    assert "330 wrong" in words(figure) and "200 wrong" in words(figure)
    assert "counts that pool seeds on the same problems" in words(figure)
    assert "over problems;" in words(compose(study(THREE.runs[0])))


@pytest.mark.parametrize("share", [0.004, 0.013, 1.0])
def test_tick_labels_are_distinct(share: float) -> None:
    """Whole percents on a scale that ends at 2 % read "2 %, 2 %, 1 %, 0 %, 0 %"."""
    run = counts(0, times=20_000)
    run.exact[1, 2] = round(share * run.problems[1, 2])
    figure = compose(study(RunErrors("a", "rope", 0, run)))
    figure.canvas.draw()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            assert len(set(labels)) == len(labels)


def test_lengths_with_few_answers_are_not_drawn_and_scales_end_early() -> None:
    def chains(run: ErrorCounts) -> list[Axes]:
        return compose(study(RunErrors("a", "rope", 0, run))).axes[:2]

    inside, outside = chains(counts(0, times=4))  # of chain 0 there are 40, of chain 1 120
    assert points(inside, 0)[:, 0] == pytest.approx([1])
    assert points(outside, 0) == pytest.approx(np.array([[2, 0]]))
    assert inside.get_ylim() == (0, 1) and outside.get_ylim() == (0, 0.1)
    inside, _ = chains(counts(0))  # nowhere enough: the length with most answers
    assert points(inside, 0)[:, 0] == pytest.approx([1])


def test_nothing_longer_or_nothing_wrong(tmp_path: Path) -> None:
    inside = study(RunErrors("a", "rope", 0, counts(0, outside=False)))
    assert "out of distribution" not in words(compose(inside)) + to_markdown(inside)
    perfect = ErrorCounts(*(np.zeros_like(array) for array in vars(counts(0)).values()))
    perfect.problems[0, 1] = perfect.exact[0, 1] = 7
    right = study(RunErrors("a", "rope", 0, perfect))
    assert "| rope | 0 | in distribution | 0.0 % (0 of 7) | - | - | - |" in to_markdown(right)
    draw(right, tmp_path / "right.png")
    assert (tmp_path / "right.png").read_bytes().startswith(b"\x89PNG")


def test_no_text_leaves_the_page() -> None:
    names = ["rope", "fire", "tape-heads", "rand-rope", "fire:init_l=512:width=64", "a", "b", "c"]
    figure = compose(study(*(RunErrors(name, name, 0, counts(3)) for name in names)))
    assert_nothing_is_cut_off(figure)
