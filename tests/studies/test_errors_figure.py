"""The figure and the tables of wrong answers, from counts made up."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tape_arith.arith.errors import UsageError
from tape_arith.arith.studies.errors_figure import KIND_WORDS, RunErrors, Study, compose, draw
from tape_arith.arith.studies.errors_table import to_json, to_markdown
from tape_arith.arith.studies.mistakes import KINDS, Mistakes


def made(exact: int, *, outside: bool = True, times: int = 1) -> Mistakes:
    """Of 40 problems in distribution 4 are wrong; out of it, of 20, all that are not `exact`; all
    of it so many times."""
    wrong = 20 - exact if outside else 0
    kinds = np.zeros((2, len(KINDS)), np.int64)
    kinds[0, KINDS.index("one_less")] = 4
    kinds[1, KINDS.index("ended_early")] = wrong // 2
    kinds[1, KINDS.index("other_digit")] = wrong - wrong // 2
    return Mistakes(
        problems=times * np.array([[10, 30, 0, 0, 0], [0, 5, 15, 0, 0]]) * [[1], [outside]],
        exact=times * np.array([[10, 26, 0, 0, 0], [0, exact if outside else 0, 0, 0, 0]]),
        first_wrong=times * np.array([[4, 0, 0, 0, 0, 0], [0, 0, wrong, 0, 0, 0]]),
        kinds=times * kinds,
    )


def study(*runs: RunErrors) -> Study:
    evaluation = {"task": "addition", "version": 1, "split": "carry", "seed": 0}
    evaluation |= {"max_digits": 4, "problems": 60, "sha256": "ab" * 32}
    return Study(runs, "mini", {"steps": 2000}, 2, evaluation)


THREE = study(
    RunErrors("a", "rope", 1, made(5)),
    RunErrors("b", "fire", 0, made(0)),
    RunErrors("c", "rope", 0, made(2)),
)


def test_seeds_are_pooled() -> None:
    assert THREE.seeds == {"rope": [0, 1], "fire": [0]}
    assert THREE.pooled["rope"].problems.sum() == 120
    assert THREE.runs[0].mistakes.problems.sum() == 60  # and the runs' own stay as they are
    assert THREE.regions == ["in_distribution", "out_of_distribution"]


def test_markdown_shows_shares_with_their_counts() -> None:
    text = to_markdown(THREE)
    inside, outside = (
        text.split(f"chain, {region}\n\n")[1]
        for region in ("in distribution", "out of distribution")
    )
    assert inside.startswith(
        "| chain | rope | fire |\n| ---: | ---: | ---: |\n| 0 | 100.0 % (20 of 20)"
    )
    assert "| 1 | 86.7 % (52 of 60) | 86.7 % (26 of 30) |" in inside.split("\n\n")[0]
    assert outside.split("\n\n")[0].endswith("| 2 | 0.0 % (0 of 30) | 0.0 % (0 of 15) |")
    assert "| 1 | 70.0 % (7 of 10) | 0.0 % (0 of 5) |" in outside
    wrong = "| rope | 0, 1 | out of distribution | 82.5 % (33 of 40) | 48.5 % (16 of 33) | "
    assert wrong + "51.5 % (17 of 33) | 0.0 % (0 of 17) | 16 | 0 | 0 | 0 | 17 | 0 |" in text
    assert "| 100.0 % (8 of 8) | 0 | 0 | 8 | 0 | 0 | 0 |" in text
    assert "| 0 | \N{MINUS SIGN}2 | 100.0 % (8 of 8) | 100.0 % (4 of 4) |" in text
    assert "| 2 | 0 | 100.0 % (33 of 33) | 100.0 % (20 of 20) |" in text
    assert "hard sums: long carry chains, trained to 2 digits and tested to 4" in text
    assert "(preset mini with steps=2,000), 60 problems a run (evaluation set abababab)" in text
    assert "these runs only (rope: seeds 0, 1; fire: seed 0)" in text


def test_json_has_stable_keys() -> None:
    content = json.loads(to_json(THREE))
    assert (content["schema"], content["kind"], content["trained_digits"]) == (1, "errors", 2)
    assert [(e["encoding"], e["seeds"]) for e in content["encodings"]] == [
        ("rope", [0, 1]),
        ("fire", [0]),
    ]
    assert [run["run"] for run in content["runs"]] == ["a", "b", "c"]
    rope = content["encodings"][0]["out_of_distribution"]
    assert (rope["problems"], rope["exact"], rope["wrong"]) == (40, 7, 33)
    assert rope["by_longest_chain"][0] == {"length": 1, "problems": 10, "exact": 7}
    assert rope["by_first_wrong_place"] == [{"place": 2, "beyond_trained": 0, "wrong": 33}]
    assert rope["kinds"]["ended_early"] == rope["wrong_length"] == 16


def points(ax: Axes, number: int) -> NDArray[np.float64]:
    return np.array(ax.lines[number].get_xydata(), dtype=np.float64)


def texts(figure: Figure) -> str:
    found = [text.get_text() for ax in figure.axes for text in ax.texts]
    found += [ax.get_title(loc="left") for ax in figure.axes]
    return "\n".join([*found, *(text.get_text() for text in figure.texts)])


def test_the_figure_shows_the_counts() -> None:
    runs = (("rope", 1, 5), ("fire", 0, 0), ("rope", 0, 2))
    figure = compose(
        study(*(RunErrors(name, name, seed, made(exact, times=10)) for name, seed, exact in runs))
    )
    inside, outside, places, kinds = figure.axes
    assert np.allclose(points(inside, 0), [[-0.1, 1], [0.9, 52 / 60]])
    rope, fire = points(outside, 0), points(outside, 1)
    assert np.allclose(rope, [[0.9, 0.7], [1.9, 0]])
    assert np.allclose(fire, [[1.1, 0], [2.1, 0]])
    assert np.allclose(points(places, 0), [[0, 0], [1, 0], [2, 1]])
    assert points(places, -1)[0, 0] == 1.5  # between the trained places and the others
    widths = [float(bar.get_extents().width / kinds.bbox.width) for bar in kinds.patches]
    assert np.allclose(widths[: len(KINDS)], [16 / 33, 0, 0, 0, 17 / 33, 0])
    assert "330 wrong" in texts(figure) and "200 wrong" in texts(figure)
    assert "hard sums" in texts(figure).replace("\n", " ")
    assert "these runs only" in texts(figure).replace("\n", " ")
    legend = kinds.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == list(KIND_WORDS.values())


def test_few_problems_draw_no_line_and_a_scale_ends_where_its_intervals_do() -> None:
    def chains(*runs: Mistakes) -> list[Axes]:
        return compose(study(*(RunErrors("a", "rope", 0, run) for run in runs))).axes[:2]

    inside, outside = chains(made(0, times=4))  # of chain 0 there are 40, of chain 1 120
    assert points(inside, 0)[:, 0] == pytest.approx([1])
    assert points(outside, 0) == pytest.approx(np.array([[2, 0]]))
    assert inside.get_ylim() == (0, 1) and outside.get_ylim() == (0, 0.1)
    inside, _ = chains(made(0))  # nowhere enough: what there is most of
    assert points(inside, 0)[:, 0] == pytest.approx([1])
    assert "lengths of chains with fewer than 50 answers" in " ".join(texts(compose(THREE)).split())


def test_the_caption_says_what_the_bars_count() -> None:
    def told(shown: Study) -> str:
        return " ".join(texts(compose(shown)).replace("\N{NO-BREAK SPACE}", " ").split())

    pooled = "intervals over counts that pool seeds on the same problems, so they are too narrow;"
    assert pooled in told(THREE)
    alone = told(study(THREE.runs[0]))
    assert "intervals over problems;" in alone and "pool" not in alone


def test_where_nothing_is_longer_or_nothing_is_wrong(tmp_path: Path) -> None:
    inside = study(RunErrors("a", "rope", 0, made(0, outside=False)))
    assert inside.regions == ["in_distribution"]
    assert "out of distribution" not in texts(compose(inside)) + to_markdown(inside)
    perfect = Mistakes(*(np.zeros_like(array) for array in vars(made(0)).values()))
    perfect.problems[0, 1] = perfect.exact[0, 1] = 7
    right = study(RunErrors("a", "rope", 0, perfect))
    assert "| rope | 0 | in distribution | 0.0 % (0 of 7) | - | - | - |" in to_markdown(right)
    draw(right, tmp_path / "right.png")
    assert (tmp_path / "right.png").read_bytes().startswith(b"\x89PNG")


def test_no_text_leaves_the_page() -> None:
    names = ["rope", "fire", "tape-heads", "rand-rope", "fire:init_l=512:width=64", "a", "b", "c"]
    figure = compose(study(*(RunErrors(name, name, 0, made(3)) for name in names)))
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    box = figure.get_tightbbox(renderer)
    width, height = figure.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height


def test_another_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        draw(THREE, tmp_path / "x.jpg")
