"""Kinds of errors, against decoding token by token and loops over text; tables and the figure.

A random decoder is wrong everywhere at once, so what it decodes itself is taken for the right
answer, and one token of it is changed.
"""

import re
from collections import Counter
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tape_arith.arith.data.bucket import CARRY, EVALUATION, Bucket
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.grids.axes import digit_pairs
from tape_arith.arith.registry.names import parse
from tape_arith.arith.scoring.score import score
from tape_arith.arith.studies import first_errors as module
from tape_arith.arith.studies.errors import figures, to_markdown
from tape_arith.arith.studies.first_errors import KINDS, count_first_errors, first_errors
from tape_arith.arith.studies.study import INSIDE, OUTSIDE
from tape_arith.arith.tasks.families.tokens import DIGIT_ZERO, EOS, SYMBOLS, Vocabulary
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.decoder import Decoder
from tape_arith.models.runner import Runner
from tests.helpers.boards import cells
from tests.helpers.exported_runs import greedy
from tests.helpers.figures import assert_nothing_is_cut_off, words
from tests.helpers.small_training import cpu, small
from tests.helpers.studied_runs import made_study, run_facts

TRAINED, TESTED = 1, 3
CONFIG = small(trained_digits=TRAINED, tested_digits=TESTED, hidden_size=32, mlp_size=32)
COUNT = 90
BUCKET = Bucket("addition", TESTED, 0, EVALUATION)
AXES = digit_pairs(TRAINED, TESTED)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    """Return a random decoder that answers all kinds of things."""
    decoder = decoder_for(CONFIG, parse("nope"), 0).double().eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator).double())
    return decoder


def rows_of(problems: Problems) -> list[tuple[list[int], list[int]]]:
    """Return prompt and right answer of each problem."""
    ends = np.cumsum(problems.lengths)
    cuts = zip(ends - problems.lengths, problems.prompt_lengths, ends, strict=True)
    tokens = problems.tokens.tolist()
    return [(tokens[start : start + n], tokens[start + n : end]) for start, n, end in cuts]


def longest_chain(first: str, second: str) -> int:
    """Count by the definition; numbers are written least significant digit first."""
    longest = running = 0
    for c, d in zip_longest(first, second, fillvalue="0"):
        total = int(c) + int(d)
        running = 1 if total > 9 else running + 1 if total == 9 and running else 0
        longest = max(longest, running)
    return longest


DIGITS = "0123456789"


def kind(own: list[int], right: list[int]) -> tuple[int, str]:
    """Return place and kind of the first error of an answer that is not right."""
    place = next(k for k, (a, b) in enumerate(zip(own, right, strict=False)) if a != b)
    predicted, meant = Vocabulary().decode([own[place]]), Vocabulary().decode([right[place]])
    if predicted == "[EOS]":
        return place, "ended_early"
    if meant == "[EOS]":
        return place, "went_on"
    if predicted not in DIGITS:
        return place, "no_digit" if meant in DIGITS else "other_symbol"
    if meant not in DIGITS:
        return place, "for_symbol"
    if int(predicted) == (int(meant) + 9) % 10:
        return place, "one_less"
    return place, "one_more" if int(predicted) == (int(meant) + 1) % 10 else "other_digit"


def count_by_loops(problems: Problems, answers: list[list[int]]) -> Counter[tuple[Any, ...]]:
    """The counts from whole answers; `problems` may call other answers right than arithmetic."""
    counted: Counter[tuple[Any, ...]] = Counter()
    for own, (prompt, right), lengths in zip(
        answers, rows_of(problems), problems.axis_lengths.tolist(), strict=True
    ):
        chain = longest_chain(*Vocabulary().decode(prompt)[:-1].split("+"))
        place, error = (None, "exact") if own == right else kind(own, right)
        counted[OUTSIDE if max(lengths) > TRAINED else INSIDE, chain, error, place] += 1
    return counted


def as_counter(frame: pd.DataFrame) -> Counter[tuple[Any, ...]]:
    """The counts of rows, of which there may be several of one kind."""
    counted: Counter[tuple[Any, ...]] = Counter()
    for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
        counted[row["region"], row["chain"], row["error"], row["place"]] += row.get("problems", 1)
    return counted


def decoded(decoder: Decoder, bucket: Bucket, problems: Problems) -> list[list[int]]:
    keys = bucket.keys(0, COUNT).tolist()
    finals = problems.final_lengths.tolist()
    return [
        greedy(decoder, prompt, final, key)
        for (prompt, _), final, key in zip(rows_of(problems), finals, keys, strict=True)
    ]


def test_answers_to_hard_problems(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket("addition", TESTED, 0, CARRY)
    problems = bucket.problems(0, COUNT)
    expected = count_by_loops(problems, decoded(decoder, bucket, problems))
    monkeypatch.setattr(module, "ROWS_A_CHUNK", 40)
    assert as_counter(count_first_errors(Runner(decoder, cpu()), bucket, COUNT, AXES)) == expected
    _, chains, kinds, _ = map(set, zip(*expected, strict=True))
    assert len(kinds) >= 4 and len(chains) >= 2


def test_every_kind_of_error(decoder: Decoder) -> None:
    """What the decoder answers is taken as right, and one token of each answer is changed."""
    problems, keys = BUCKET.problems(0, COUNT), BUCKET.keys(0, COUNT)
    answers = decoded(decoder, BUCKET, problems)
    changed = []
    for row, answer in enumerate(answers):
        place = row % len(answer)
        tokens = [EOS, *range(DIGIT_ZERO, DIGIT_ZERO + len(SYMBOLS))]
        token = tokens[(row * 7) % len(tokens)]
        if row % 5 == 0:
            changed.append(answer)  # left as it is
        elif token != answer[place]:
            changed.append([*answer[:place], token, *answer[place + 1 :]])
        else:
            changed.append([*answer[:place], DIGIT_ZERO + (token + 3) % 10])
    rows = [prompt + answer for (prompt, _), answer in zip(rows_of(problems), changed, strict=True)]
    changed_problems = problems._replace(
        tokens=np.concatenate(rows).astype(np.uint8), lengths=np.array([len(row) for row in rows])
    )
    outcome = score(Runner(decoder, cpu()), changed_problems, keys)
    chains = load_task("addition").carry_chains(BUCKET.drawn(0, COUNT))
    assert chains is not None
    counted = first_errors(changed_problems, chains, outcome, AXES)
    assert as_counter(counted) == count_by_loops(changed_problems, answers)
    assert set(counted.error) == {"exact", *KINDS}


def test_logits_that_overflow_say_no_digit() -> None:
    decoder = decoder_for(CONFIG, parse("rope"), 0).eval()
    with torch.no_grad():
        decoder.head.weight[DIGIT_ZERO + 5].fill_(float("nan"))  # which argmax takes for the most
    rows = count_first_errors(Runner(decoder, cpu()), BUCKET, 20, AXES)
    assert set(rows.error) == {"no_digit"} and rows.problems.sum() == 20


# ---- tables and the figure ---------------------------------------------------------------------


def run(
    encoding: str, seed: int, exact: int, *, outside: bool = True, times: int = 1
) -> pd.DataFrame:
    """Return a run with 4 of 40 problems wrong in distribution, all but `exact` of 20 out of it."""
    rows: list[tuple[Any, ...]] = [
        (INSIDE, 0, "exact", None, 10),
        (INSIDE, 1, "exact", None, 26),
        (INSIDE, 1, "one_less", 0, 4),
    ]
    if outside:
        early = (20 - exact) // 2
        rows += [
            (OUTSIDE, 1, "exact", None, exact),
            (OUTSIDE, 1, "ended_early", 2, 5 - exact),
            (OUTSIDE, 2, "ended_early", 2, early - 5 + exact),
            (OUTSIDE, 2, "other_digit", 2, 20 - exact - early),
        ]
    frame = pd.DataFrame(rows, columns=["region", "chain", "error", "place", "problems"])
    frame = frame.astype({"place": "Int64"}).assign(**run_facts(encoding, seed))
    return frame.assign(problems=frame.problems * times)


def shares(cell: str) -> list[str]:
    """Return the numbers of a cell: per cent, wrong or right, of how many."""
    return re.findall(r"[\d.]+", cell)


def test_tables_show_shares_with_their_counts() -> None:
    runs = run("rope", 1, 5), run("fire", 0, 0), run("rope", 0, 2)
    text = to_markdown(made_study("errors", *runs))
    inside, outside = (
        text.split(f"chain, {region}\n\n")[1].split("\n\n")[0]
        for region in ("in distribution", "out of distribution")
    )
    (head, _, first, second, *_), last = cells(inside), cells(outside)[-1]
    assert head == ["chain", "RoPE", "FIRE"] and shares(first[1]) == ["100.0", "20", "20"]
    assert [shares(cell) for cell in second] == [["1"], ["86.7", "52", "60"], ["86.7", "26", "30"]]
    assert [shares(cell) for cell in last] == [["2"], ["0.0", "0", "30"], ["0.0", "0", "15"]]
    (wrong,) = (row for row in cells(text) if row[:2] == ["RoPE", "0, 1"] and row[2][0] == "o")
    kinds = [["82.5", "33", "40"], ["48.5", "16", "33"], ["51.5", "17", "33"], ["0.0", "0", "17"]]
    assert [shares(cell) for cell in wrong[3:7]] == kinds
    assert wrong[7:] == ["16", "0", "0", "0", "17", "0"]
    both = [["0"], ["100.0", "8", "8"], ["100.0", "4", "4"]]
    assert both in [[shares(cell) for cell in row] for row in cells(text)]
    # An error that the task cannot have has a column where there is one.
    odd = run("rope", 0, 2).replace("other_digit", "for_symbol")
    columns = (to_markdown(made_study("errors", *each)) for each in (runs, [odd]))
    assert ["for a symbol" in each for each in columns] == [False, True]


def points(ax: Any, number: int) -> Any:
    return np.array(ax.lines[number].get_xydata(), dtype=np.float64)


def test_the_figure_shows_the_counts() -> None:
    runs = [run(*row, times=10) for row in (("rope", 1, 5), ("fire", 0, 0), ("rope", 0, 2))]
    figure = figures(made_study("errors", *runs))[""]
    inside, outside, places, kinds = figure.axes
    bars: list[Any] = list(kinds.patches)
    assert np.allclose(points(inside, 0), [[-0.1, 1], [0.9, 52 / 60]])
    assert np.allclose(points(outside, 0), [[0.9, 0.7], [1.9, 0]])
    assert np.allclose(points(outside, 1), [[1.1, 0], [2.1, 0]])
    assert np.allclose(points(places, 0), [[n, n == 2] for n in range(9)])
    assert points(places, -1)[0, 0] == 7.5  # between the trained places and the others
    widths = [float(bar.get_width()) for bar in bars[::2]]  # of the first of two encodings
    assert np.allclose(widths, [16 / 33, 0, 0, 0, 17 / 33, 0])
    assert "330 wrong" in words(figure)
    # Lengths with few answers are not drawn, and scales end early.
    inside, outside = figures(made_study("errors", run("a", 0, 0, times=4)))[""].axes[:2]
    assert points(inside, 0)[:, 0] == pytest.approx([1])
    assert points(outside, 0) == pytest.approx(np.array([[2, 0]]))
    assert inside.get_ylim() == (0, 1) and outside.get_ylim() == (0, 0.1)


def test_nothing_longer_nothing_wrong_and_many_names() -> None:
    study = made_study("errors", run("rope", 0, 0, outside=False).query("error == 'exact'"))
    del study.facts["evaluation"]["problems"][OUTSIDE]
    text = to_markdown(study)
    assert OUTSIDE.replace("_", " ") not in words(figures(study)[""]) + text
    (wrong,) = (row[3:7] for row in cells(text) if row[:2] == ["RoPE", "0"])
    assert shares(wrong[0]) == ["0.0", "0", "36"] and wrong[1:] == ["-"] * 3
    names = ["rope", "fire:init_l=512:width=64", "a", "b"]
    many = made_study("errors", *(run(name, 0, 3) for name in names))
    assert_nothing_is_cut_off(figures(many)[""])
