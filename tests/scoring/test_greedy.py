"""Greedy answers against a loop over single problems and one pass; scratchpads' final answers."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch

from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.grids.axes import scored_axes
from tape_arith.arith.registry.names import parse
from tape_arith.arith.scoring import greedy
from tape_arith.arith.scoring.greedy import add_final_answers, greedy_answers
from tape_arith.arith.scoring.score import TOKENS_A_BATCH, score
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.decoder import Decoder
from tape_arith.models.runner import Runner
from tests.helpers.small_training import cpu, small
from tests.scoring.test_score import greedy as greedy_by_prefixes
from tests.scoring.test_score import with_answers

CONFIG = small(trained_digits=2, tested_digits=4, hidden_size=32, mlp_size=32)


def random_decoder(name: str, task: str) -> Decoder:
    """Return a decoder of random weights, large enough that answers differ and some end early."""
    decoder = decoder_for(replace(CONFIG, task=task), parse(name), 0)
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(len(weight)))
    return decoder.eval()


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("rand-rope", "addition"),
        ("tape", "copy"),
        ("rand-rope", "multiplication:scratchpad=true:spaces=2"),
    ],
)
def test_greedy_answers(name: str, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, bucket = random_decoder(name, task), replace(CONFIG, task=task).evaluation_bucket()
    problems, keys = bucket.problems(0, 10), bucket.keys(0, 10)
    monkeypatch.setitem(TOKENS_A_BATCH, "cpu", 6 * int(problems.final_lengths.max()))
    runner = Runner(decoder, cpu())
    answers = [*chain(*greedy_answers(runner, problems, keys))]
    assert answers == greedy_by_prefixes(decoder, problems, keys)
    lengths = {len(answer) for answer in answers}
    assert len(lengths) > 1 and len({tuple(answer) for answer in answers}) > 2
    # One pass finds these answers exact, and no others.
    assert score(runner, with_answers(problems, answers), keys).exact.all()
    altered = [[*answer[:-1], int(answer[-1] == 0)] for answer in answers]
    assert not score(runner, with_answers(problems, altered), keys).exact.any()


def test_final_answers_count_whatever_the_steps_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each six answers one has a wrong step, one a wrong final digit, one no final answer."""
    config = replace(CONFIG, task="sum:scratchpad=true", trained_operands=2, tested_operands=4)
    trained, bucket, count = config.bucket(0), config.evaluation_bucket(), 36
    task = load_task(config.task)
    step = task.vocabulary.token(">")

    def three_by_three(
        runner: object, problems: Problems, keys: object, start: int
    ) -> Iterator[list[list[int]]]:
        answers = []
        firsts = problems.starts + problems.prompt_lengths
        lasts = problems.starts + problems.lengths
        for number, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
            answer = problems.tokens[first:last].tolist()
            if number % 6 == 0:
                answer = [5, step, *answer]
            elif number % 6 == 1:
                answer[-2] = 4 + (answer[-2] - 3) % 10
            elif number % 6 == 2:
                answer = [*answer[:-1], step]
            answers.append(answer)
        yield from (answers[i : i + 3] for i in range(start, len(answers), 3))

    monkeypatch.setattr(greedy, "greedy_answers", three_by_three)
    axes = scored_axes(trained, bucket)
    runner = Runner(random_decoder("nope", "addition"), cpu())
    shares: dict[str, float] = {}
    calls = 0
    while next(add_final_answers(shares, runner, bucket, axes, count), 0) is None:
        calls += 1  # each is stopped after one batch
    lengths = bucket.axis_lengths(0, count)
    inside = int((lengths <= np.array([2, 2])).all(axis=1).sum())
    assert calls == -(-inside // 3) - (inside - count) // 3
    for region, members in (("in", inside), ("out_of", count - inside)):
        wrong = sum(number % 6 in (1, 2) for number in range(members))
        assert shares[f"final_answers_{region}_distribution"] == pytest.approx(1 - wrong / members)
        assert shares[f"final_answers_{region}_distribution_of"] == members
    monkeypatch.setattr(greedy, "FINAL_ANSWERS", 2)  # of each region the first two, both changed
    monkeypatch.setattr(greedy, "greedy_answers", lambda runner, problems, *_: seen(problems))
    firsts: list[bytes] = []

    def seen(problems: Problems) -> Iterator[list[list[int]]]:
        firsts.extend(row.tobytes() for row in np.split(problems.tokens, problems.starts[1:]))
        yield [[] for _ in problems.starts]

    assert len([*add_final_answers({}, runner, bucket, axes, count)]) == 2
    longer = (lengths > np.array([2, 2])).any(axis=1)
    chosen = [*np.flatnonzero(~longer)[:2], *np.flatnonzero(longer)[:2]]
    wanted = [bucket.problems(int(i), int(i) + 1).tokens.tobytes() for i in chosen]
    assert firsts == wanted
