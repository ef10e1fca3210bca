"""Score a language model on the grid of a preset; each call continues the one before."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from tape_arith.arith.compare.captions import MEANS, mean_line
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import Corrupt, UsageError
from tape_arith.arith.figures.heatmap import compose
from tape_arith.arith.figures.style import save
from tape_arith.arith.files import append_line, open_file, parse_json, remove
from tape_arith.arith.grids.axes import Ints, scored_axes
from tape_arith.arith.grids.facts import Budget, Evaluation
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.harness.model import LanguageModel
from tape_arith.arith.harness.prompts import Prompts, Question
from tape_arith.arith.lock import check_lock, lock_folder
from tape_arith.arith.machine import own_version
from tape_arith.arith.runs.config import Config
from tape_arith.arith.terminal import bar, say

GRID, ANSWERS, FIGURE = "grid.json", "answers.jsonl", "heatmap.png"
_TOGETHER = 256
"""Questions of one call of the model, after which a scoring can stop."""
_SHOWN = "question_"
"""Begins the names of the facts that show questions with their answers."""
_NUM_SHOWN, _LONGEST_SHOWN = 3, 2_000


def score_language_model(
    model: LanguageModel,
    prompts: Prompts,
    preset: str,
    config: Config,
    out: Path,
    *,
    fresh: bool,
    should_stop: Callable[[], bool],
) -> Grid:
    """Ask a model the problems of a grid that it has not answered yet; return the grid.

    The folder `out` gets the grid, its figure and every answer. If `should_stop` ends it, the grid
    is not complete. Raises UsageError if `out` answers another request; Failure if the model fails.
    """
    bucket, per_cell = config.evaluation_bucket(), config.problems_per_cell
    bucket.check_count(per_cell)
    axes, form = scored_axes(config.bucket(0), bucket), prompts.form
    sha256 = hashlib.sha256(json.dumps(form).encode()).hexdigest()
    grid = Grid.empty(
        model.name,
        axes,
        preset=preset,
        settings=form,
        seed=0,
        budget=Budget(steps=0, first_steps=0, batch_size=0, config_sha256=sha256),
        evaluation=Evaluation.of(bucket, per_cell),
        scoring={"tape-arith": own_version(), "lm-eval": model.library, **model.facts},
    )
    lengths = [[axis.trained, axis.tested] for axis in axes]
    with lock_folder(out, "score"):
        for file in (GRID, ANSWERS, FIGURE) if fresh else ():
            remove(out / file)
        request = {**model.facts, "task": config.task, "lengths": lengths, **form}
        answers = Answers(out / ANSWERS, request)
        with bar(f"score {model.name}", bucket.num_cells * per_cell) as update:
            for num_answered in _fill(grid, bucket, model, prompts, answers):
                update(num_answered)
                if should_stop():
                    break
        for number, each in enumerate(prompts.of(bucket.problems(0, _NUM_SHOWN)), start=1):
            if each.problem in answers:
                grid.scoring[f"{_SHOWN}{number}"] = _shown(each, answers[each.problem])
        check_lock(out)
        grid.save(out / GRID)
        if grid.complete:
            save(compose([Panel.of([grid])]), out / FIGURE)
    say(f"{out} has {ANSWERS}, {GRID}{f' and {FIGURE}' * grid.complete}")
    return grid


class Answers(dict[str, str]):
    """Answers by problem, in a file that grows by a line with each; its first line is `request`.

    So a process that is killed loses no answer, and nothing is asked twice. Raises UsageError if
    the file has another request; Corrupt if it is damaged.
    """

    def __init__(self, path: Path, request: dict[str, Any]) -> None:
        self._path, self._request = path, request
        first, *lines = _whole_lines(path) or [request]
        for key in first | request:
            if first.get(key) != request.get(key):
                raise UsageError(
                    f"{path} answers another request ({key} {first.get(key)}, not "
                    f"{request.get(key)}): choose another --out, or --fresh to ask again"
                )
        super().__init__((line["problem"], line["answer"]) for line in lines)

    def add(self, problem: str, answer: str) -> None:
        """Keep an answer, unless there is one. Raises Failure if the file cannot be written."""
        if problem not in self:
            if not self._path.exists():
                append_line(self._path, json.dumps(self._request))
            append_line(self._path, json.dumps({"problem": problem, "answer": answer}))
            self[problem] = answer


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """Return the request and the answers, if any; cut off a line that was never finished."""
    if not path.exists():
        return []
    with open_file(path) as file:
        content = file.read()
    finished = content[: content.rfind(b"\n") + 1]
    if len(finished) < len(content):
        os.truncate(path, len(finished))
    try:
        lines: list[dict[str, Any]] = list(map(parse_json, finished.decode().splitlines()))
        if any(line.keys() != {"problem", "answer"} for line in lines[1:]):
            raise ValueError("a line has no problem or no answer")
    except (ValueError, AttributeError) as error:
        raise Corrupt(f"{path} is corrupt: {error}", "--fresh asks again") from error
    return lines


def summary(grid: Grid) -> str:
    """Return the means of a grid with their intervals, and its first questions with answers."""
    head = f"{grid.name} on {grid.evaluation.task}, {grid.blocks_done} problems a cell:"
    means = [mean_line(Panel.of([grid]), region) for region in MEANS]
    shown = [value for key, value in grid.scoring.items() if key.startswith(_SHOWN)]
    return "\n".join([head, *means, *shown])


def _fill(
    grid: Grid, bucket: Bucket, model: LanguageModel, prompts: Prompts, answers: Answers
) -> Iterator[int]:
    """Count the answers to all problems; yield how many there are whenever the model was asked."""
    cells = bucket.num_cells
    while not grid.complete:
        left = grid.evaluation.problems_per_cell - grid.blocks_done
        blocks = min(max(1, _TOGETHER // cells), left)
        start = grid.blocks_done * cells
        problems = bucket.problems(start, start + blocks * cells)
        questions = prompts.of(problems)
        while missing := {q.problem: q for q in questions if q.problem not in answers}:
            model.ask(list(missing.values())[:_TOGETHER], prompts.most_tokens, answers.add)
            yield start + sum(each.problem in answers for each in questions)
        grid.add(problems.axis_lengths, *_compared(questions, answers))
        grid.blocks_done += blocks


def _answer(text: str) -> str:
    """Return the answer in a model's text: its first line, without blanks around it."""
    return text.partition("\n")[0].strip()


def _compared(questions: Sequence[Question], answers: Answers) -> Ints:
    """Return how many symbols of each answer are right, of how many with its end, and the index of
    the first wrong one, or -1: int[3, n]."""
    rows = []
    for question in questions:
        expected = [*question.answer, ""]
        answer = [*_answer(answers[question.problem]), ""]
        right = [a == b for a, b in zip_longest(expected, answer[: len(expected)])]
        rows.append((sum(right), len(right), -1 if all(right) else right.index(False)))
    return np.array(rows).T


def _shown(question: Question, text: str) -> str:
    verdict = "right" if _answer(text) == question.answer else f"not {question.answer}"
    prompt, written = (json.dumps(part[-_LONGEST_SHOWN:]) for part in (question.prompt, text))
    return f"{prompt} -> {written}, {verdict}"
