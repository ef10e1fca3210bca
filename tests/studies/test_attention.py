"""Weight by distance and the place-addressing score, against loops over one problem at a time; and
their tables and figures."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from tape_arith.arith.studies import inputs
from tape_arith.arith.studies.attention import (
    _has_equal_places,
    figures,
    maps,
    patterns,
    to_markdown,
)
from tape_arith.arith.studies.stability import deviations
from tape_arith.arith.studies.study import INSIDE, OUTSIDE, Study
from tape_arith.arith.tasks.addition import Addition
from tape_arith.arith.tasks.families.numbers import Digits, Int64
from tape_arith.arith.tasks.families.two_operands import TwoOperands
from tape_arith.arith.tasks.families.writing import Field, Writer
from tape_arith.arith.tasks.load import load_task
from tests.helpers.figures import assert_nothing_is_cut_off
from tests.helpers.studied_runs import (
    CONFIG,
    SAMPLE,
    made_study,
    one_by_one,
    rows_of,
    run_facts,
    varied,
)

LAYERS, HEADS = CONFIG.num_layers, CONFIG.num_heads
SYMBOLS = "0123456789+-x= "


def as_text(tokens: list[int]) -> str:
    return "".join(SYMBOLS[token - 4] for token in tokens)


def naive(name: str) -> dict[str, Any]:
    """Read the digits of a place, and the token that predicts it, off each problem's text."""
    decoder, problems = varied(name), SAMPLE.problems
    texts = [as_text(tokens) for tokens in rows_of(problems)]
    longest = max(map(len, texts))
    back = np.zeros((LAYERS, HEADS, longest))
    seen, uniform = np.zeros(longest), np.zeros(longest)
    place, chance, positions = np.zeros((LAYERS, HEADS)), 0.0, 0
    for text, tokens, bound, key in zip(
        texts, rows_of(problems), problems.final_lengths, SAMPLE.keys, strict=True
    ):
        layers, _ = one_by_one(decoder, tokens, int(bound), int(key))
        weights = np.stack(layers)
        for t in range(len(text)):
            for i in range(t + 1):
                back[:, :, t - i] += weights[:, :, t, i]
                seen[t - i] += 1
                uniform[t - i] += 1 / (t + 1)
        first, rest = text.split("+")
        second, answer = rest.split("=")
        assert int(first[::-1]) + int(second[::-1]) == int(answer[::-1])
        for r in range(len(answer)):
            # The logits at t are of the token at t + 1, here the answer's digit of place r.
            t = text.index("=") + 1 + r - 1
            keys = [r] * (r < len(first)) + [text.index("+") + 1 + r] * (r < len(second))
            if not keys:
                continue  # a last carry
            positions += 1
            chance += len(keys) / (t + 1)
            for i in keys:
                place += weights[:, :, t, i]
    return {
        "distance": (back / seen).mean(1),
        "place": place / positions,
        "uniform": uniform / seen,
        "chance": chance / positions,
    }


@pytest.mark.parametrize(
    ("name", "batch"),
    [("rope", inputs.NUMBERS_A_BATCH), ("tape", 1), ("cope", 1), ("rand-alibi", 10_000)],
)
def test_agrees_with_loops(name: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "NUMBERS_A_BATCH", batch)
    rows, expected = patterns(varied(name), SAMPLE, "cpu"), naive(name)
    place, distance = rows[rows.measure == "place"], rows[rows.measure == "distance"]
    measured = {
        "place": place.pivot(index="layer", columns="head", values="weight"),
        "distance": distance.pivot(index="layer", columns="distance", values="weight"),
        "chance": place.uniform,
        "uniform": distance[distance.layer == 2].uniform,
    }
    for key, numbers in measured.items():
        np.testing.assert_allclose(numbers, expected[key], rtol=1e-9)
    assert set(place.layer) == {1, 2, 3} and set(place["head"]) == set(range(1, HEADS + 1))


def test_a_layer_counts_once_a_loop() -> None:
    decoder = varied("tape", replace(CONFIG, num_layers=2, loops=2))
    for rows in (patterns(decoder, SAMPLE, "cpu"), deviations(decoder, SAMPLE, "cpu")):
        assert set(rows["layer"].dropna()) == {1, 2, 3, 4}


def test_letters_have_no_place() -> None:
    class Longer(TwoOperands):
        version = 1
        symbol = "-"
        symbols = "YN"
        example = "48-5"

        def answer(self, a: Digits, b: Digits) -> Digits:
            raise AssertionError("answers are letters")

        def answer_fields(self, drawn: tuple[Digits, Digits], write: Writer) -> list[Field]:
            longer = drawn[0].lengths > drawn[1].lengths
            return [write.symbol("Y", longer), write.symbol("N", ~longer)]

        def answer_digits(self, lengths: Int64) -> Int64:
            return 0 * lengths[:, 0] + 1

    assert _has_equal_places(Addition()) and not _has_equal_places(Longer())


def test_maps_of_one_problem() -> None:
    problem = load_task("addition").parse("123+45")
    assert as_text(rows_of(problem)[0]) == "321+54=861"
    decoder = varied("tape")
    expected, _ = one_by_one(decoder, rows_of(problem)[0], int(problem.final_lengths[0]), 0)
    np.testing.assert_allclose(maps(decoder, problem, "cpu"), np.stack(expected), rtol=1e-12)


# ---- tables and figures ------------------------------------------------------------------------

EXAMPLE = {"tokens": [*"84+5=35", "[EOS]"], "prompt": 5, "layer": 2}
EXAMPLE["equal_places"] = [(4, 0), (4, 3), (5, 1)]


def run(encoding: str, seed: int = 0, inside: float = 0.9, outside: float = 0.3) -> pd.DataFrame:
    """Two layers of two heads; the best in distribution is not the best out of it."""
    rows: list[tuple[Any, ...]] = []
    for region, layer, head in product((INSIDE, OUTSIDE), (1, 2), (1, 2)):
        weight = 0.99 if (region, layer, head) == (OUTSIDE, 1, 1) else 0.05
        if (layer, head) == (2, 1 + seed % 2):
            weight = inside if region == INSIDE else outside
        rows.append((region, "place", layer, head, None, None, None, weight, 0.11))
    for region, layer, back in product((INSIDE, OUTSIDE), (1, 2), range(8)):
        weight = 0.5 ** (back + 1) * (seed + 1)
        rows.append((region, "distance", layer, None, back, None, None, weight, 0.1))
    for head, query in product((1, 2), range(7)):
        for key in range(query + 1):
            rows.append(("", "map", 2, head, None, query, key, 1 / (query + key + 1), None))
    names = ["region", "measure", "layer", "head", "distance", "query", "key", "weight", "uniform"]
    frame = pd.DataFrame(rows, columns=names).assign(**run_facts(encoding, seed))
    return frame.astype(dict.fromkeys(names[2:7], "Int64"))


def study(*runs: pd.DataFrame) -> Study:
    return made_study("attention", *runs, example=EXAMPLE)


def test_the_best_head_is_chosen_in_distribution() -> None:
    text = to_markdown(study(run("rope"), run("rope", 1, 0.8, 0.2), run("fire")))
    # Student t of two seeds: 12.706 x 0.05.
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["0.850", "0.110", "0.250", "0.110"] in [[c[:5] for c in row[3:]] for row in rows]
    assert ["0.800", "0.110", "0.200", "0.110"] in [
        row[3:] for row in rows if row[:2] == ["RoPE", "1"]
    ]
    for name, weight in (("FIRE", "0.500"), ("uniform", "0.100")):
        assert [name, *[weight] * 2] in [row[1:] for row in rows]


def test_figures() -> None:
    runs = [run(*facts, 1.0, 0.0) for facts in (("rope", 0), ("rope", 1), ("fire:width=64", 0))]
    drawn = figures(study(*runs))
    for figure in drawn.values():
        assert_nothing_is_cut_off(figure)
    *thin, mean = drawn["-distance"].axes[0].get_lines()[:3]
    assert mean.get_linewidth() > 2 * max(line.get_linewidth() for line in thin)
    np.testing.assert_allclose(np.asarray(mean.get_ydata()), 1.5 * 0.5 ** np.arange(1, 9))
    points = drawn["-places"].axes[0].get_lines()
    framed = [line for line in points if line.get_markeredgecolor() == "black"]
    assert [set(np.asarray(line.get_ydata())) for line in framed] == [{1.0}] * 2
    panel = drawn["-maps"].axes[0]
    weights = np.asarray(panel.images[0].get_array(), dtype=float)
    assert weights[4, 2] == pytest.approx(1 / 7) and np.isnan(weights).sum() == 21  # future keys
    squares = [
        patch.get_xy()
        for patch in panel.patches
        if isinstance(patch, Rectangle) and to_hex(patch.get_edgecolor()) == "#e0452f"
    ]
    assert squares == [(-0.5, 3.5), (2.5, 3.5), (0.5, 4.5)]
