"""Weight by distance and the place-addressing score, against loops over one problem at a time."""

import numpy as np
import pytest
import torch

from tape_arith.arith.studies import inputs
from tape_arith.arith.studies.attention import maps, patterns
from tape_arith.arith.studies.attention_data import Patterns
from tape_arith.arith.studies.inputs import Sample
from tape_arith.arith.tasks.task import Digits, load_task
from tests.helpers.studied_runs import ALL, CONFIG, KEYS, PROBLEMS, one_by_one, rows_of, varied

LAYERS, HEADS = CONFIG.num_layers, CONFIG.num_heads
SAMPLE = Sample(PROBLEMS, KEYS, ALL)
SYMBOLS = "0123456789+-x= "


def as_text(tokens: list[int]) -> str:
    return "".join(SYMBOLS[token - 4] for token in tokens)


def naive(name: str) -> Patterns:
    """Read off the text of each problem: where the digits of a place are, and who predicts it."""
    decoder = varied(name)
    texts = [as_text(tokens) for tokens in rows_of(PROBLEMS)]
    longest = max(map(len, texts))
    back = np.zeros((LAYERS, HEADS, longest))
    seen, uniform = np.zeros(longest), np.zeros(longest)
    place, chance, positions = np.zeros((LAYERS, HEADS)), 0.0, 0
    for text, tokens, bound, key in zip(
        texts, rows_of(PROBLEMS), PROBLEMS.final_lengths, KEYS, strict=True
    ):
        weights, _ = one_by_one(decoder, tokens, int(bound), int(key))
        for t in range(len(text)):
            for i in range(t + 1):
                for layer in range(LAYERS):
                    for head in range(HEADS):
                        back[layer, head, t - i] += weights[layer][head, t, i]
                seen[t - i] += 1
                uniform[t - i] += 1 / (t + 1)
        first, rest = text.split("+")
        second, answer = rest.split("=")
        assert int(first[::-1]) + int(second[::-1]) == int(answer[::-1])
        for r in range(len(answer)):
            # The logits at t are of the token at t + 1, here the answer's digit of place r.
            t = text.index("=") + 1 + r - 1
            keys = []
            if r < len(first):
                keys.append(r)
            if r < len(second):
                keys.append(text.index("+") + 1 + r)
            if not keys:
                continue  # a last carry
            positions += 1
            chance += len(keys) / (t + 1)
            for layer in range(LAYERS):
                for head in range(HEADS):
                    place[layer, head] += sum(weights[layer][head, t, i] for i in keys)
    back /= seen
    return Patterns(
        by_distance=back.mean(1),
        diagonal=back[:, :, 0],
        place=place / positions,
        uniform=uniform / seen,
        chance=chance / positions,
        problems=len(texts),
        positions=positions,
    )


@pytest.mark.parametrize("numbers", [inputs.NUMBERS_A_BATCH, 1])
@pytest.mark.parametrize("name", ["rope", "tape", "cope", "rand-alibi"])
def test_agrees_with_loops(name: str, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "NUMBERS_A_BATCH", numbers)
    ours, theirs = patterns(varied(name), SAMPLE, "cpu"), naive(name)
    for field in ("by_distance", "diagonal", "place", "uniform", "chance"):
        np.testing.assert_allclose(getattr(ours, field), getattr(theirs, field), rtol=1e-9)
    assert (ours.problems, ours.positions) == (theirs.problems, theirs.positions)
    assert ours.best == tuple(np.argwhere(theirs.place == theirs.place.max())[0])


def test_attention_to_everything_alike_is_chance() -> None:
    """NoPE whose scores are all 0."""
    decoder = varied("nope")
    with torch.no_grad():
        for path, weight in decoder.named_parameters():
            if path.endswith("qkv.weight"):
                weight[: HEADS * CONFIG.head_dim] = 0
    uniform = patterns(decoder, SAMPLE, "cpu")
    np.testing.assert_allclose(uniform.place, uniform.chance)
    np.testing.assert_allclose(uniform.by_distance, np.tile(uniform.uniform, (LAYERS, 1)))
    assert uniform.best == (0, 0)


def test_maps_of_one_problem() -> None:
    values = np.zeros((2, 3), dtype=np.uint8)
    values[0, :3], values[1, :2] = [3, 2, 1], [5, 4]
    a, b = Digits(values[:1], np.array([3])), Digits(values[1:], np.array([2]))
    problem = load_task("addition").problems(a, b, 3)
    assert as_text(rows_of(problem)[0]) == "321+54=861"
    decoder = varied("tape")
    ours = maps(decoder, problem, "cpu")
    theirs, _ = one_by_one(decoder, rows_of(problem)[0], int(problem.final_lengths[0]), 0)
    assert ours.shape == (LAYERS, HEADS, 10, 10)
    np.testing.assert_allclose(ours, np.stack(theirs), rtol=1e-12)
