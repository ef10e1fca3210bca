"""A report's conclusion: who is first, by how much, and who is not told apart."""

import json
from pathlib import Path

import pytest

from tape_arith.arith.compare.conclusion import conclusion
from tape_arith.arith.compare.leaderboard import board_of
from tape_arith.arith.figures.report.page import page
from tape_arith.arith.grids.panel import panels_of
from tests.helpers.made_grids import flat
from tests.helpers.pages import Page, report
from tests.helpers.tiny_runs import done

NEAR, SAME = (28, 31, 33), (20, 30, 40)


def concluded(means: dict[str, tuple[int, ...]], inside: int = 100) -> list[str]:
    """Conclude from encodings with these means of their seeds, in percent."""
    grids = [
        flat(name, seed, inside=inside, outside=mean)
        for name, seeds in means.items()
        for seed, mean in enumerate(seeds)
    ]
    return [
        text.replace("\N{NO-BREAK SPACE}", " ")
        for text in conclusion(board_of(panels_of(grids), {}))
    ]


@pytest.mark.parametrize(
    ("means", "paragraphs"),
    [
        (
            {"fire": (30, 31, 32), "nope": NEAR, "rope": (1, 2, 3), "t5": (31,)},
            [
                "Task-agnostic: fire goes furthest, with 31.0 ± 2.5 % out of distribution "
                "(3 seeds). It is significantly above rope (+29.0 ± 2.3). These seeds do not tell "
                "it apart from nope."
            ],
        ),
        (
            {"fire": (30, 31, 32), "rand-rope": (50, 51), "coupling": (90,), "abacus": (80,)},
            [
                "Task-agnostic: fire has 31.0 ± 2.5 % out of distribution (3 seeds).",
                "Told the tested length: rand-rope has 50.5 ± 6.4 % out of distribution (2 seeds).",
                "Task-structured: coupling goes furthest, with 90.0 ± 0.9 % out of distribution "
                "(1 seed). Nothing is claimed from one seed.",
            ],
        ),
        (
            {"alibi": (40,), "fire": (30, 31, 32), "rope": (31, 33, 20), "tape": (5, 6, 7)},
            [
                "Task-agnostic: alibi goes furthest, with 40.0 ± 1.4 % out of distribution "
                "(1 seed). Nothing is claimed from one seed. Of those with more seeds it is fire, "
                "with 31.0 ± 2.5 %. It is significantly above tape (+25.0 ± 2.3). These seeds do "
                "not tell it apart from rope."
            ],
        ),
        (
            {name: SAME for name in ("fire", "nope", "t5", "cope", "fox", "path", "rope")},
            [
                "Task-agnostic: cope goes furthest, with 30.0 ± 24.8 % out of distribution "
                "(3 seeds). These seeds do not tell it apart from fire, fox, nope, path and 2 more."
            ],
        ),
    ],
)
def test_sentences(means: dict[str, tuple[int, ...]], paragraphs: list[str]) -> None:
    assert concluded(means) == paragraphs


def test_nothing_is_ranked() -> None:
    (sentence,) = concluded({"fire": (3, 4)}, inside=50)
    assert sentence.startswith("Nothing is ranked: ")


def test_it_opens_the_report_and_is_in_json(comparison: Path) -> None:
    found = json.loads(done("leaderboard", "--format", "json").out)["conclusion"]
    made = report([flat("fire", seed, outside=20 + seed) for seed in range(3)])
    texts = [text.strip() for text in Page(page(made)).texts if text.strip()]
    place = texts.index(conclusion(made.board)[0])
    assert texts[place - 1] == "Conclusion" and "Leaderboard" in texts[place:]
    assert found and all(sentence.endswith(".") for sentence in found)
