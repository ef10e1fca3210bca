"""Answer problems greedily with a trained run, and give the probability of each token."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch

from tape_arith.arith.decoders.build import user_errors
from tape_arith.arith.decoders.failures import explain_failures
from tape_arith.arith.decoders.weights import trained_decoder, trained_record
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.names import Name, NamePart
from tape_arith.arith.runs.run import Run
from tape_arith.arith.scoring.greedy import greedy_answers
from tape_arith.arith.tasks.load import load_task, task_errors
from tape_arith.models.hardware import detect
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences

_KEY = 0
"""The key of the problem's random positions, for encodings that draw them."""


@dataclass(frozen=True, repr=False)
class Answer:
    """A greedy answer, its tokens in the order of generation.

    task           the name of the task
    tokens         the generated tokens; they end with [EOS] unless the answer never ends
    probabilities  one for each token, given the tokens before it
    expected       the right tokens, which end with [EOS]
    """

    run: str
    encoding: str
    task: str
    problem: str
    tokens: tuple[str, ...]
    probabilities: tuple[float, ...]
    expected: tuple[str, ...]

    @property
    def right(self) -> bool:
        return self.tokens == self.expected

    @property
    def text(self) -> str:
        """The answer as people write it, the most significant digit of a number first."""
        return _written(self.task, self.tokens)

    def content(self) -> dict[str, Any]:
        """Return plain Python for JSON."""
        tokens = [
            {"token": token, "probability": probability}
            for token, probability in zip(self.tokens, self.probabilities, strict=True)
        ]
        return {
            "schema": 1,
            "run": self.run,
            "encoding": self.encoding,
            "problem": self.problem,
            "answer": self.text,
            "expected": _written(self.task, self.expected),
            "right": self.right,
            "tokens": tokens,
        }

    def __repr__(self) -> str:
        """Write one line with the answer and whether it is right, then one line per token."""
        expected = _written(self.task, self.expected)
        verdict = "right" if self.right else f"wrong, it is {expected}"
        lines = [f"{self.problem} = {self.text}: {verdict} ({self.encoding})"]
        rows = zip(_places(self.task, self.tokens), self.tokens, self.probabilities, strict=True)
        for number, (place, token, probability) in enumerate(rows):
            right = self.expected[number] if number < len(self.expected) else "[EOS]"
            note = "" if token == right else f"  not {right}"
            lines.append(f"  {place:<6}{token:<6}{probability:7.2%}{note}")
        return "\n".join(lines)


def answer(run: Run, written: str, extrapolation: NamePart | None = None) -> Answer:
    """Return the answer of `run` to the problem `written`, as in "123+45".

    Decoding is greedy and in float32. Raises UsageError if `written` is not a problem of the run's
    task or is longer than the tested problems, or if the run is not trained to its end.
    """
    record = trained_record(run)
    config, name = record.config, Name(record.name.encoding, extrapolation)
    task = load_task(config.task)
    with task_errors(config.task):
        problem = task.parse(written)
    tested = config.evaluation_bucket().most
    for axis, length, most in zip(task.axes, problem.axis_lengths[0], tested, strict=True):
        if length > most:
            raise UsageError(
                f"'{written}' has {length} {axis.name}, and {run.path} takes up to {most}: ask "
                "for a shorter one"
            )
    exact = detect(compiled=False).in_float32()
    runner = Runner(trained_decoder(run, name, record), exact)
    prompt, bound = int(problem.prompt_lengths[0]), int(problem.final_lengths[0])

    def tensor(value: Any) -> torch.Tensor:
        return torch.tensor(value, device=exact.device)

    explained = explain_failures(f"answering by {name}")
    with explained, user_errors(name.encoding), torch.no_grad():
        ((tokens,),) = greedy_answers(runner, problem, np.array([_KEY]))
        inputs = [*problem.tokens[:prompt].tolist(), *tokens[:-1]]
        seqs = Sequences(tensor([inputs]), tensor([bound]), tensor([_KEY]), bound=bound)
        distributions = runner(seqs)[0, prompt - 1 :].softmax(-1)
    probabilities = distributions.gather(-1, tensor(tokens)[:, None])[:, 0].tolist()
    return Answer(
        run=str(run.path),
        encoding=str(name),
        task=config.task,
        problem="".join(written.split()),
        tokens=tuple(task.vocabulary.names[token] for token in tokens),
        probabilities=tuple(probabilities),
        expected=tuple(task.vocabulary.names[token] for token in problem.tokens[prompt:]),
    )


def _written(name: str, tokens: Sequence[str]) -> str:
    """Return an answer as people write it."""
    task = load_task(name)
    left_out = {"[EOS]", *task.format.symbols}
    text = "".join(token for token in tokens if token not in left_out)
    if task.digit_order != "reversed":
        return text
    # A minus is generated after its number, when the sign is known.
    return re.sub("([0-9]+)(-?)", lambda match: match[2] + match[1][::-1], text)


def _places(name: str, tokens: Sequence[str]) -> list[str]:
    """Return the place of each token of an answer, as in 10^0; "" for a token that is no digit.

    Tokens of a string are counted from 1.
    """
    task = load_task(name)
    places = []
    for _, group in groupby(tokens, lambda t: t.isdecimal() or t in task.format.symbols):
        part = list(group)
        exponents = list(range(sum(map(str.isdecimal, part))))
        if task.digit_order == "plain":
            exponents.reverse()
        for token in part:
            place = "end" if token == "[EOS]" else ""
            if token.isdecimal():
                exponent = exponents.pop(0)
                place = f"{task.base}^{exponent}" if task.digit_order else str(exponent + 1)
            places.append(place)
    return places
