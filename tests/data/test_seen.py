"""Which problems a training has seen, against their texts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tape_arith.arith import catalogue
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.seen import SeenProblems, seen_share
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.runs.run import Run
from tape_arith.arith.tasks.task import Problems
from tests.helpers.tiny_runs import done, settings


def texts(problems: Problems) -> list[bytes]:
    ends = problems.lengths.cumsum()
    return [
        problems.tokens[end - n : end].tobytes()
        for end, n in zip(ends, problems.lengths, strict=True)
    ]


@pytest.mark.parametrize(
    ("task", "operands"), [("addition", 0), ("sort", 3), ("sort:spaces=1", 3), ("parity", 0)]
)
def test_a_problem_is_seen_if_its_tokens_were(task: str, operands: int) -> None:
    training = Bucket(task, 2, 5, "train", operands)
    tested = Bucket(task, 4, 0, "evaluation", operands and operands + 1)
    count = 40 * training.num_cells
    known = set(texts(training.problems(0, count)))
    problems = tested.problems(0, 30 * tested.num_cells)
    expected = [text in known for text in texts(problems)]
    seen = SeenProblems(training, count)
    assert seen(problems).tolist() == expected and any(expected) and not all(expected)
    inside = (problems.axis_lengths <= training.most).all(axis=1)
    assert seen_share(seen, tested, 30) == sum(expected) / inside.sum()
    assert not SeenProblems(training, 0)(problems).any()


def test_a_preset_states_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.loads(done("list", "mini-modular-sum", "--json").out)
    assert content["seen_share"] == pytest.approx(0.877, abs=5e-4)
    for share, words in (
        (0.066, "has seen 6.6"),
        (0.877, "the others decide convergence"),
        (1.0, "so that convergence is recall"),
    ):
        monkeypatch.setattr(catalogue, "_seen_share", lambda config, share=share: share)
        assert words in done("list", "mini-parity").out.splitlines()[-1]


def test_the_share_of_a_long_training_is_left_to_scoring() -> None:
    content = json.loads(done("list", "paper-40", "--json").out)
    assert content["seen_share"] is None and content["config"]["batch_size"]


def test_a_grid_counts_what_its_own_training_saw(here: Path) -> None:
    lengths = {"trained_digits": 1, "tested_digits": 2, "problems_per_cell": 20}
    done("train", "--pe", "rope", "--seed", 3, *settings(num_problems=64, **lengths))
    run = Run(here / "runs/mini/rope/seed-3")
    config, grid = run.record().config, Grid.load(run.grid_file())
    # Four batches of 8. After the 64 problems training begins over.
    assert config.problems_seen() == 32 and replace(config, steps=12).problems_seen() == 64
    known = set(texts(config.bucket(3).problems(0, 32)))
    tested = texts(config.evaluation_bucket().problems(0, 20 * 4))
    seen = sum(text in known for text in tested)
    assert grid.seen is not None and 0 < seen == grid.seen.sum() < 20
    assert grid.seen_share == seen / 20
    assert f"seen {5 * seen:.1f}" in done("leaderboard").out
