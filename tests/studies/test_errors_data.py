"""What goes wrong, against decoding token by token and loops over text.

A random decoder is wrong everywhere at once, so what it decodes itself is taken for the right
answer and then one token of it is changed, to all that it can be mistaken for.
"""

from collections import Counter

import numpy as np
import pytest
import torch

from tape_arith.arith.data.bucket import CARRY, EVALUATION, Bucket
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.scoring.score import score
from tape_arith.arith.studies import errors as module
from tape_arith.arith.studies.errors import errors
from tape_arith.arith.studies.errors_data import KINDS, REGIONS, ErrorCounts, count_errors
from tape_arith.arith.tasks.task import Problems, load_task
from tape_arith.arith.tasks.vocabulary import DIGIT_ZERO, EOS, decode
from tape_arith.models.decoder import Decoder
from tape_arith.models.names.parse import parse
from tape_arith.models.sequences import Sequences
from tests.helpers.small_training import cpu, small, train, trainer

TRAINED, TESTED = 1, 3
CONFIG = small(
    trained_digits=TRAINED,
    tested_digits=TESTED,
    hidden_size=32,
    mlp_size=32,
    batch_size=32,
    steps=200,
)
COUNT = 90


@pytest.fixture(scope="module")
def trained() -> Decoder:
    """Rope, part of the way to adding two digits."""
    return train(trainer(CONFIG)).decoder.eval()


def rows_of(problems: Problems) -> list[tuple[list[int], list[int]]]:
    """Prompt and right answer of each problem."""
    ends = np.cumsum(problems.lengths)
    return [
        (
            problems.tokens[end - n : end - n + p].tolist(),
            problems.tokens[end - n + p : end].tolist(),
        )
        for end, n, p in zip(ends, problems.lengths, problems.prompt_lengths, strict=True)
    ]


def greedy(decoder: Decoder, prompt: list[int], final_length: int, key: int) -> list[int]:
    """What it answers, a token at a time, to its end token or the last place."""
    tokens = list(prompt)
    while len(tokens) < final_length and tokens[-1] != EOS:
        seqs = Sequences(torch.tensor([tokens]), torch.tensor([final_length]), torch.tensor([key]))
        with torch.no_grad():
            tokens.append(int(decoder(seqs)[0, -1].argmax()))
    return tokens[len(prompt) :]


def longest_chain(first: str, second: str) -> int:
    """Of two numbers as they are written, the least significant digit first."""
    width = max(len(first), len(second))
    places = zip(first.ljust(width, "0"), second.ljust(width, "0"), strict=True)
    longest = running = 0
    for c, d in places:
        total = int(c) + int(d)
        running = 1 if total > 9 else running + 1 if total == 9 and running else 0
        longest = max(longest, running)
    return longest


def kind(own: list[int], right: list[int]) -> tuple[int, str]:
    """The place and the kind of the first error of a whole answer, which is not right."""
    place = next(k for k, (a, b) in enumerate(zip(own, right, strict=False)) if a != b)
    predicted, meant = decode([own[place]]), decode([right[place]])
    if predicted == "[EOS]":
        return place, "ended_early"
    if predicted not in "0123456789":
        return place, "no_digit"
    if meant == "[EOS]":
        return place, "went_on"
    if int(predicted) == (int(meant) + 9) % 10:
        return place, "one_less"
    return place, "one_more" if int(predicted) == (int(meant) + 1) % 10 else "other_digit"


def count_by_loops(
    problems: Problems, answers: list[list[int]]
) -> dict[str, Counter[tuple[str, object]]]:
    """The counts from whole answers; `problems` may call other answers right than arithmetic."""
    counted: dict[str, Counter[tuple[str, object]]] = {
        name: Counter() for name in ("problems", "exact", "first_wrong", "kinds")
    }
    for own, (prompt, right), lengths in zip(
        answers, rows_of(problems), problems.operand_lengths.tolist(), strict=True
    ):
        region = REGIONS[max(lengths) > TRAINED]
        first, second = decode(prompt)[:-1].split("+")
        chain = longest_chain(first, second)
        counted["problems"][region, chain] += 1
        if own == right:
            counted["exact"][region, chain] += 1
            continue
        place, error = kind(own, right)
        counted["first_wrong"][region, place] += 1
        counted["kinds"][region, error] += 1
    return counted


def as_counters(counts: ErrorCounts) -> dict[str, Counter[tuple[str, object]]]:
    counted: dict[str, Counter[tuple[str, object]]] = {}
    for name in ("problems", "exact", "first_wrong", "kinds"):
        counted[name] = Counter()
        for (row, column), value in np.ndenumerate(getattr(counts, name)):
            if value:
                column = list(KINDS)[column] if name == "kinds" else column
                counted[name][REGIONS[row], column] += int(value)
    return counted


def decoded(decoder: Decoder, bucket: Bucket, problems: Problems) -> list[list[int]]:
    keys = bucket.keys(0, COUNT).tolist()
    finals = problems.final_lengths.tolist()
    return [
        greedy(decoder, prompt, final, key)
        for (prompt, _), final, key in zip(rows_of(problems), finals, keys, strict=True)
    ]


@pytest.mark.parametrize("split", [EVALUATION, CARRY])
def test_what_a_trained_decoder_answers(
    trained: Decoder, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket("addition", TESTED, 0, split)
    problems = bucket.problems(0, COUNT)
    expected = count_by_loops(problems, decoded(trained, bucket, problems))
    done: list[int] = []
    monkeypatch.setattr(module, "ROWS_A_CHUNK", 40)
    counted = errors(trained, bucket, COUNT, TRAINED, cpu(), done.append)
    assert as_counters(counted) == expected and done == [40, 80, 90]
    # There is something to tell apart.
    assert sum(expected["exact"].values()) > 2 and len(expected["kinds"]) >= 4
    assert len(expected["first_wrong"]) > 1 and len(expected["problems"]) >= 4


def test_every_kind_of_error() -> None:
    """A random decoder that answers all kinds of things, one token of each answer changed."""
    decoder = decoder_for(CONFIG, parse("nope"), 0).double().eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator).double())
    bucket = Bucket("addition", TESTED, 0, EVALUATION)
    problems, keys = bucket.problems(0, COUNT), bucket.keys(0, COUNT)
    answers = decoded(decoder, bucket, problems)
    changed = []
    for row, answer in enumerate(answers):
        place = row % len(answer)
        tokens = [EOS, *range(DIGIT_ZERO, DIGIT_ZERO + 10)]
        token = tokens[(row * 7) % 11]
        if row % 5 == 0:
            changed.append(answer)  # left as it is
        elif token != answer[place]:
            changed.append([*answer[:place], token, *answer[place + 1 :]])
        else:
            changed.append([*answer[:place], DIGIT_ZERO + (token + 3) % 10])
    lengths = problems.prompt_lengths + np.array([len(answer) for answer in changed])
    rows = [prompt + answer for (prompt, _), answer in zip(rows_of(problems), changed, strict=True)]
    changed_problems = problems._replace(
        tokens=np.array([token for row in rows for token in row], dtype=np.uint8), lengths=lengths
    )
    outcome = score(decoder, changed_problems, keys, cpu())
    counted = count_errors(
        changed_problems,
        load_task("addition").carry_chains(*bucket.operands(0, COUNT)),
        outcome.first_wrong,
        outcome.predicted,
        trained_digits=TRAINED,
        max_digits=TESTED,
        places=TESTED + 2,
    )
    expected = count_by_loops(changed_problems, answers)
    assert as_counters(counted) == expected
    assert {error for _, error in expected["kinds"]} == set(KINDS)


def test_logits_that_overflow_say_no_digit(trained: Decoder) -> None:
    decoder = decoder_for(CONFIG, parse("rope"), 0).eval()
    with torch.no_grad():
        decoder.head.weight[DIGIT_ZERO + 5].fill_(float("nan"))  # which argmax takes for the most
    counted = errors(decoder, Bucket("addition", TESTED, 0, EVALUATION), 20, TRAINED, cpu())
    assert counted.exact.sum() == 0 and counted.kinds[:, list(KINDS).index("no_digit")].sum() == 20
