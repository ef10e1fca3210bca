"""Measures taken while a run trains, against plain loops; taking them changes nothing."""

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.runs.config import Config
from tape_arith.arith.tasks.families.tokens import EOS, Vocabulary
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.training import evaluation
from tape_arith.arith.training.evaluation import (
    _PROBLEMS_A_CELL,
    SmallGrid,
    _chosen_lengths,
    state_measures,
)
from tape_arith.arith.training.trainer import Line, Trainer
from tape_arith.models.attention import Eager
from tape_arith.models.decoder import Decoder
from tape_arith.models.encodings.tape import TapeState
from tape_arith.models.sequences import Sequences
from tests.helpers.small_training import (
    assert_same_bits,
    perturbed,
    small,
    train,
    trainer,
    weights,
)
from tests.scoring.test_score import greedy, rows_of

pytestmark = pytest.mark.usefixtures("often")
WIDE = small(trained_digits=10, tested_digits=20)
CONTEXTUAL = ("tape", "tape-heads")


def each(problems: Problems) -> list[list[int]]:
    """Return the tokens of each problem."""
    return [prompt + answer for prompt, answer, _ in rows_of(problems)]


# ---- the small grid ------------------------------------------------------------------------


@pytest.mark.parametrize("config", [small(), small(trained_digits=7, tested_digits=50)])
def test_each_chosen_cell_has_its_problems(config: Config) -> None:
    grid = SmallGrid.of(config)
    lengths = _chosen_lengths(config.trained_digits, config.tested_digits)
    near = range(config.trained_digits, min(config.trained_digits + 2, config.tested_digits) + 1)
    assert {*near, config.tested_digits} <= set(lengths)
    assert len(lengths) <= evaluation._MOST_LENGTHS + 3
    cells: dict[tuple[int, int], int] = {}
    for tokens, prompt in zip(each(grid.problems), grid.problems.prompt_lengths, strict=True):
        text = Vocabulary().decode(tokens[:-1])
        first, second = text.split("=")[0].split("+")
        total = int(first[::-1]) + int(second[::-1])
        assert text == f"{first}+{second}={str(total)[::-1]}" and tokens[-1] == EOS
        assert tokens[prompt - 1] == Vocabulary().token("=")
        cells[len(first), len(second)] = cells.get((len(first), len(second)), 0) + 1
    assert cells == {(i, j): _PROBLEMS_A_CELL[2] for i in lengths for j in lengths}


def test_every_place_is_in_the_small_grid_at_each_chosen_length() -> None:
    grid = SmallGrid.of(small(task="recall:gaps=5", trained_digits=7, tested_digits=50))
    cells = Counter(map(tuple, grid.problems.axis_lengths.tolist()))
    chosen = product(range(1, 6), _chosen_lengths(7, 50))
    assert cells == dict.fromkeys(chosen, _PROBLEMS_A_CELL[2])


def test_the_small_grid_is_its_own() -> None:
    """Its long problems are in no evaluation set; its cells are those of each run's seed."""
    small_ones = {tuple(tokens) for tokens in each(SmallGrid.of(WIDE).problems) if len(tokens) > 30}
    bucket = Bucket("addition", 20, 0, "evaluation")
    assert small_ones and small_ones.isdisjoint(map(tuple, each(bucket.problems(0, 4000))))
    again = SmallGrid.of(replace(WIDE, learning_rate=0.5, steps=7))
    assert again.problems.tokens.tobytes() == SmallGrid.of(WIDE).problems.tokens.tobytes()


@pytest.fixture(scope="module")
def learning() -> Trainer:
    """Rope that can add one digit, mostly: right and wrong answers in and out of distribution."""
    torch.set_num_threads(1)
    config = small(trained_digits=1, tested_digits=3, steps=40, hidden_size=32, mlp_size=32)
    config = replace(config, batch_size=64, learning_rate=0.01)
    return train(trainer(config), evaluate_every=1000)


def test_exact_match_is_that_of_a_plain_loop(learning: Trainer) -> None:
    grid = SmallGrid.of(learning.config)
    result = grid.exact_match(learning.runner, lambda: False)
    answers = greedy(learning.decoder, grid.problems, grid.keys)
    rows = zip(answers, rows_of(grid.problems), strict=True)
    exact = [answer == right for answer, (_, right, _) in rows]
    longer = [max(pair) for pair in grid.problems.axis_lengths.tolist()]
    assert 0 < sum(exact) < len(exact)

    def mean(lengths: tuple[int, ...]) -> float:
        chosen = [right for right, length in zip(exact, longer, strict=True) if length in lengths]
        return sum(chosen) / len(chosen)

    assert result["in_distribution"] == pytest.approx(mean((1,)))
    assert result["out_of_distribution"] == pytest.approx(mean((2, 3)))
    assert result["by_length"] == {str(n): pytest.approx(mean((n,))) for n in (1, 2, 3)}


def test_memory_that_runs_out_in_an_evaluation(
    learning: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same measures in smaller groups, whichever part of it does not fit."""
    one = trainer(learning.config, "tape")
    expected = SmallGrid.of(one.config).exact_match(one.runner, lambda: False)
    measures = state_measures(one.runner, *one.held_out(32))
    forward = Decoder.forward

    def limited(self: Decoder, seqs: Sequences, *rest: Any) -> torch.Tensor:
        if len(seqs.tokens) > 5:
            raise RuntimeError("could not create a primitive")
        return forward(self, seqs, *rest)

    monkeypatch.setattr(Decoder, "forward", limited)
    assert SmallGrid.of(one.config).exact_match(one.runner, lambda: False) == expected
    again = state_measures(one.runner.on(one.hardware), *one.held_out(32))
    assert measures and again is not None
    for name, layers in measures.items():
        assert again[name] == pytest.approx(layers, rel=1e-6)


# ---- looking changes nothing ---------------------------------------------------------------


def trained(name: str, *, curves: bool, evaluate_every: int) -> tuple[Trainer, list[Line]]:
    lines: list[Line] = []
    one = trainer(small(steps=20, batch_size=4, groups=1), name)
    one.curves = curves
    return train(one, lines.append, evaluate_every=evaluate_every), lines


@pytest.mark.parametrize("name", ["tape-heads", "rand-rope"])
def test_evaluating_changes_no_bit_of_the_weights(name: str) -> None:
    """Often and with curves, or once at the end and without."""
    looked, lines = trained(name, curves=True, evaluate_every=10)
    blind, few = trained(name, curves=False, evaluate_every=10**9)
    assert_same_bits(weights(looked), weights(blind))
    assert [line["loss"] for line in lines] == [line["loss"] for line in few]
    assert ["small_grid" in line for line in lines] == [False, True] * 2
    assert ["state" in line for line in lines] == [False, name == "tape-heads"] * 2
    assert [line["exact_match"] is None for line in lines] == [True, False] * 2
    assert ["small_grid" in line for line in few] == [False] * 4
    if name == "tape-heads":
        state = lines[-1]["state"]
        assert state.keys() == {"norm", "moved"}
        assert len(state["norm"]) == len(state["moved"]) == 2
        assert state["norm"][0] == pytest.approx(2**0.5) and state["moved"][0] == 0
        assert 0 < state["moved"][1] < 1


# ---- the state -----------------------------------------------------------------------------


def matrices(state: Any) -> Tensor:
    """float64[T, H, F, 2, 2]: the state of one problem, of either form."""
    if isinstance(state, TapeState):
        return state.e[0].double().unflatten(-1, (2, -1)).movedim(-1, -3)
    a, b = state.e[0].double().chunk(2, -1)
    return torch.stack((torch.stack((a, -b), -1), torch.stack((b, a), -1)), -2)


def naive_measures(decoder: Decoder, problems: Problems, keys: Any) -> dict[str, list[float]]:
    """Return the means by layer over all matrices, from one problem at a time."""
    norms: list[list[Tensor]] = []
    moves: list[list[Tensor]] = []
    for row, tokens in enumerate(each(problems)):
        states: list[Any] = []

        def watch(i: int, name: str, state: Any, states: list[Any] = states) -> None:
            if name == "state":
                states.append(state)

        seqs = Sequences(
            torch.tensor([tokens[:-1]]),
            torch.tensor([problems.final_lengths[row]]),
            torch.tensor([keys[row]]),
            watch=watch,
        )
        with torch.no_grad():
            decoder(seqs)
        heads = max(matrices(state).shape[1] for state in states)
        layers = [m[:, torch.arange(heads) % m.shape[1]] for m in map(matrices, states)]
        norms.append([torch.linalg.matrix_norm(now).flatten() for now in layers])
        changes = [torch.linalg.matrix_norm(now - layers[0]).flatten() for now in layers]
        moves.append([change / norms[-1][0] for change in changes])
    return {
        name: [float(torch.cat(layer).mean()) for layer in zip(*parts, strict=True)]
        for name, parts in (("norm", norms), ("moved", moves))
    }


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", [*CONTEXTUAL, "abacus+tape"])
def test_measures_are_those_of_a_plain_loop(
    name: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of many lengths, so that padding would show."""
    monkeypatch.setattr(Eager, "packs", packed)
    config = small(trained_digits=4, tested_digits=4, num_layers=3)
    one = trainer(config, name)
    perturbed(one.decoder)
    bucket = replace(one.bucket, split="held-out")
    problems, keys = bucket.problems(0, 6), bucket.keys(0, 6)
    assert len(set(problems.lengths.tolist())) > 2
    result = state_measures(one.runner, problems, keys)
    assert one.runner.packs is (packed and name in CONTEXTUAL) or name == "abacus+tape"
    expected = naive_measures(one.decoder, problems, keys)
    assert result is not None and result.keys() == expected.keys()
    for measure, layers in expected.items():
        assert result[measure] == pytest.approx(layers, rel=1e-4, abs=1e-6)
    assert min(result["moved"][1:]) > 0.01  # else nothing was tested


def test_a_measure_that_is_not_finite_is_left_out() -> None:
    """It is looked at and no more: neither does it end a training, nor can a file hold it."""
    one = trainer(small(num_layers=3), "tape")
    problems, keys = one.bucket.problems(0, 3), one.bucket.keys(0, 3)
    result = state_measures(one.runner, problems, keys)
    assert result is not None and result.keys() == {"norm", "moved"}
    measures = one.decoder.pe.measures

    def partly(first: Any, state: Any) -> dict[str, Tensor]:
        values = measures(first, state)
        return {**values, "moved": values["moved"] / 0}

    vars(one.decoder.pe)["measures"] = partly
    assert state_measures(one.runner, problems, keys) == {"norm": result["norm"]}
