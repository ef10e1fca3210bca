"""Answer problems greedily with a trained run, and give the probability of each token."""

from dataclasses import dataclass
from typing import Any

import torch

from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.build import user_errors
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.weights import trained_decoder, trained_record
from tape_arith.arith.tasks.families.tokens import EOS
from tape_arith.arith.tasks.task import load_task
from tape_arith.models.build import prepare
from tape_arith.models.names import AttentionChoice, Name, NamePart
from tape_arith.models.sequences import Sequences

_UNCOMPILED = AttentionChoice(compiled=False)
_KEY = 0
"""The key of the problem's random positions, for encodings that draw them."""


@dataclass(frozen=True, repr=False)
class Answer:
    """A greedy answer, its tokens in the order of generation: least significant digit first.

    tokens         end with [EOS], unless the model never ends its answer
    probabilities  one for each token, given the tokens before it
    expected       the right tokens, which end with [EOS]
    """

    run: str
    encoding: str
    problem: str
    tokens: tuple[str, ...]
    probabilities: tuple[float, ...]
    expected: tuple[str, ...]

    @property
    def right(self) -> bool:
        return self.tokens == self.expected

    @property
    def text(self) -> str:
        """The answer as people write it, the most significant digit first."""
        return _written(self.tokens)

    def content(self) -> dict[str, Any]:
        """Return plain Python for JSON."""
        digits = [
            {"token": token, "probability": probability}
            for token, probability in zip(self.tokens, self.probabilities, strict=True)
        ]
        return {
            "schema": 1,
            "run": self.run,
            "encoding": self.encoding,
            "problem": self.problem,
            "answer": self.text,
            "expected": _written(self.expected),
            "right": self.right,
            "tokens": digits,
        }

    def __repr__(self) -> str:
        """Write one line with the answer and whether it is right, then one line per token."""
        verdict = "right" if self.right else f"wrong, it is {_written(self.expected)}"
        lines = [f"{self.problem} = {self.text}: {verdict} ({self.encoding})"]
        for place, (token, probability) in enumerate(
            zip(self.tokens, self.probabilities, strict=True)
        ):
            right = self.expected[place] if place < len(self.expected) else "[EOS]"
            note = "" if token == right else f"  not {right}"
            name = "end" if token == "[EOS]" else f"10^{place}"
            lines.append(f"  {name:<6}{token:<6}{probability:7.2%}{note}")
        return "\n".join(lines)


def answer(folder: RunFolder, written: str, extrapolation: NamePart | None = None) -> Answer:
    """Return the answer of the run in `folder` to the problem `written`, as in "123+45".

    Decoding is greedy and in float32. Raises UsageError if `written` is not a problem of the run's
    task, an operand is longer than `tested_digits`, or the run is not trained to its end.
    """
    record = trained_record(folder)
    config, name = record.config, Name(record.name.encoding, extrapolation)
    task = load_task(config.task)
    problem = task.parse(written)
    if (digits := int(problem.axis_lengths.max())) > config.tested_digits:
        raise UsageError(
            f"'{written}' has an operand of {digits} digits, and {folder.path} takes up to "
            f"{config.tested_digits}: ask for a shorter one"
        )
    decoder, hardware = trained_decoder(folder, name, record, _UNCOMPILED)
    prompt, most = int(problem.prompt_lengths[0]), int(problem.final_lengths[0])
    tokens, probabilities = problem.tokens[:prompt].tolist(), []

    def tensor(value: Any) -> torch.Tensor:
        return torch.tensor(value, device=hardware.device)

    with torch.no_grad(), user_errors(name.encoding):
        prepare(decoder, hardware.in_float32()).eval()
        while len(tokens) < most and tokens[-1] != EOS:
            seqs = Sequences(tensor([tokens]), tensor([most]), tensor([_KEY]), bound=most)
            distribution = decoder(seqs)[0, -1].softmax(-1)
            tokens.append(int(distribution.argmax()))
            probabilities.append(float(distribution[tokens[-1]]))
    return Answer(
        run=str(folder.path),
        encoding=str(name),
        problem="".join(written.split()),
        tokens=tuple(task.vocabulary.names[token] for token in tokens[prompt:]),
        probabilities=tuple(probabilities),
        expected=tuple(task.vocabulary.names[token] for token in problem.tokens[prompt:]),
    )


def _written(tokens: tuple[str, ...]) -> str:
    return "".join(token for token in reversed(tokens) if token != "[EOS]")
