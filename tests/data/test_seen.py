"""Which problems a training has seen, against their texts."""

import json
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("preset", "share", "words"),
    [
        ("mini", 0.066, "has seen 6.6"),
        ("mini-modular-sum", 0.877, "the others decide convergence"),
        ("mini-parity", 1, "so that convergence is recall"),
    ],
)
def test_a_preset_states_its_share(preset: str, share: float, words: str) -> None:
    assert words in done("list", preset).out.splitlines()[-1]
    content = json.loads(done("list", preset, "--json").out)
    assert content["seen_share"] == pytest.approx(share, abs=5e-4)


def test_the_share_of_a_long_training_is_left_to_scoring() -> None:
    content = json.loads(done("list", "paper-40", "--json").out)
    assert content["seen_share"] is None and content["config"]["batch_size"]


@pytest.mark.parametrize(("steps", "count"), [(4, 32), (12, 64)])
def test_a_grid_counts_what_its_own_training_saw(here: Path, steps: int, count: int) -> None:
    lengths = {"trained_digits": 1, "tested_digits": 2, "problems_per_cell": 20}
    # Of 64 problems, after which training begins over; a batch has 8.
    done("train", "--pe", "rope", "--seed", 3, *settings(steps=steps, num_problems=64, **lengths))
    run = Run(here / "runs/mini/rope/seed-3")
    config, grid = run.record().config, Grid.load(run.grid_file())
    known = set(texts(config.bucket(3).problems(0, count)))
    tested = texts(config.evaluation_bucket().problems(0, 20 * 4))
    seen = sum(text in known for text in tested)
    assert grid.seen is not None and 0 < seen == grid.seen.sum() < 20
    assert grid.seen_share == seen / 20
    assert f"seen {5 * seen:.1f}" in done("leaderboard").out
