"""Problems as text: prompts after solved examples, and the right answers."""

from typing import NamedTuple

import numpy as np

from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import locate
from tape_arith.arith.registry.names import parse_task
from tape_arith.arith.runs.config import Config
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems

TEMPLATE = "{problem}="


class Question(NamedTuple):
    """A problem as text without its '=', the prompt that asks it, and the right answer."""

    problem: str
    prompt: str
    answer: str


class Prompts:
    r"""Writes problems of a task as prompts.

    template  text with {problem}, in which \n is a new line; if it ends in {answer}, a prompt ends
              before that and before blanks
    shots     number of solved examples, a line each: the first training problems of seed 0

    Raises UsageError for a template without a place for the problem.
    """

    def __init__(self, config: Config, template: str, shots: int) -> None:
        template = template.replace("\n", "\\n")  # documents hold no control characters
        self.form: dict[str, int | float | str] = {"template": template, "shots": shots}
        self._before = template.replace("\\n", "\n").removesuffix("{answer}")
        if "{problem}" not in self._before or "{answer}" in self._before:
            raise UsageError(
                f"--template '{template}' needs {{problem}}, and {{answer}} nowhere but at its end"
            )
        self._task, self._examples = load_task(config.task), ""
        bound = self._task.answer_bound(np.array([config.evaluation_bucket().most]))
        # A blank may come before the answer, and its end token after it.
        self.most_tokens = int(bound[0]) + 2
        solved = self.of(config.bucket(0).problems(0, shots))
        self._examples = "".join(f"{self._asked(each.problem)}{each.answer}\n" for each in solved)

    def of(self, problems: Problems) -> list[Question]:
        """Return the question that each problem becomes."""
        lines = self._task.vocabulary.lines(problems.tokens).split("\n")[:-1]
        questions = []
        for line, end in zip(lines, problems.prompt_lengths.tolist(), strict=True):
            problem, answer = line[: end - 1], line[end:]
            prompt = self._examples + self._asked(problem).rstrip(" ")
            questions.append(Question(problem, prompt, answer))
        return questions

    def _asked(self, problem: str) -> str:
        return self._before.replace("{problem}", problem)


def plain(task: str) -> str:
    """Return a task with its numbers as people write them.

    >>> plain("addition"), plain("copy")
    ('addition:order=plain', 'copy')
    """
    part = parse_task(task)
    options = locate("task", part.name).declaration().options
    if "order" not in options or "order" in dict(part.options):
        return task
    return str(parse_task(f"{part}:order=plain"))
