"""One teacher-forced pass is greedy decoding, token by token, for every encoding.

The naive twin decodes from the prompt alone: one token at a time, the whole sequence again for
each. A random decoder is always wrong, which would prove little, so what it decodes itself is
taken for the right answer, and then one token of that is changed.
"""

from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows, groups_of_tokens, pad
from tape_arith.arith.data.seen import SeenProblems
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.errors import Failure
from tape_arith.arith.grids.axes import digit_pairs
from tape_arith.arith.grids.facts import Budget, Evaluation
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import parse
from tape_arith.arith.scoring import score as module
from tape_arith.arith.scoring import score_grid as grid_module
from tape_arith.arith.scoring.score import Outcome, answer_logits, score
from tape_arith.arith.scoring.score_grid import score_grid
from tape_arith.arith.scoring.threshold import low_precision_threshold
from tape_arith.arith.stopping import Stopped, Stopper
from tape_arith.arith.tasks.families.tokens import EOS, Vocabulary
from tape_arith.arith.tasks.task import Problems, take
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences
from tests.helpers.made_grids import BUDGET
from tests.helpers.small_training import cpu, perturbed, small, train, trainer

pytestmark = pytest.mark.usefixtures("one_thread")
# One of each way to know positions; that prefixes equal the whole, the contract asks of all.
FAMILIES = ("fire", "rand-rope", "tape+yarn", "fox", "abacus")
CONFIG = small(trained_digits=3, tested_digits=6)
BUCKET = Bucket("addition", 6, 0, "evaluation")  # to twice the trained digits
ONE_DIGIT = small(trained_digits=1, tested_digits=2, hidden_size=32, mlp_size=32)
ONE_DIGIT = replace(ONE_DIGIT, batch_size=64, steps=40, learning_rate=0.01)
FLOAT32, BFLOAT16 = cpu(), cpu(torch.bfloat16)
Keys = NDArray[np.int64]
Close = tuple[Decoder, Problems, Keys]


def varied(name: str) -> Decoder:
    """A decoder whose answers vary, in float64 so that no rounding decides."""
    return perturbed(decoder_for(CONFIG, parse(name), 0).double().eval(), 0.4)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_logits_of_answers_are_those_of_all_tokens_there(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: the decoder is asked for a round number, for the sake of kernels."""
    decoder, positions = varied("tape"), []
    forward = Decoder.forward

    def watched(
        self: Decoder, seqs: Sequences, at: Tensor | None = None, blocks: Any = None
    ) -> Tensor:
        positions.append(at)
        return forward(self, seqs, at, blocks)

    group = pad(*problems_of(0, rows), np.arange(rows))
    everything = decoder(module.sequences(group, "cpu"))
    monkeypatch.setattr(Decoder, "forward", watched)
    logits = answer_logits(Runner(decoder, FLOAT32), group)
    assert torch.allclose(logits, everything[torch.from_numpy(group.is_answer)], atol=1e-12)
    (at,) = positions
    assert at is not None and len(at) % module.ANSWERS == 0


def last_logits(decoder: Decoder, tokens: list[int], final_length: int, key: int) -> Tensor:
    seqs = Sequences(torch.tensor([tokens]), torch.tensor([final_length]), torch.tensor([key]))
    with torch.no_grad():
        return decoder(seqs)[0, -1]


def rows_of(problems: Problems) -> list[tuple[list[int], list[int], int]]:
    """Prompt, answer and final length of each problem."""
    ends = np.cumsum(problems.lengths)
    rows = []
    for row, end in enumerate(ends):
        tokens = problems.tokens[end - problems.lengths[row] : end].tolist()
        prompt = int(problems.prompt_lengths[row])
        rows.append((tokens[:prompt], tokens[prompt:], int(problems.final_lengths[row])))
    return rows


def greedy(decoder: Decoder, problems: Problems, keys: Keys) -> list[list[int]]:
    """Decode from the prompts alone, to the end token or the last place."""
    answers = []
    for (prompt, _, final_length), key in zip(rows_of(problems), keys.tolist(), strict=True):
        tokens = list(prompt)
        while len(tokens) < final_length:
            tokens.append(int(last_logits(decoder, tokens, final_length, key).argmax()))
            if tokens[-1] == EOS:
                break
        answers.append(tokens[len(prompt) :])
    return answers


def with_answers(problems: Problems, answers: list[list[int]]) -> Problems:
    """Put other tokens in the place of the right answers."""
    prompts = [prompt for prompt, _, _ in rows_of(problems)]
    rows = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    return problems._replace(
        tokens=np.concatenate([np.array(row, dtype=np.uint8) for row in rows]),
        lengths=np.array([len(row) for row in rows], dtype=np.int64),
    )


class Row(NamedTuple):
    num_correct: int
    answer_tokens: int
    first_wrong: int
    margin: float
    predicted: int


def looped(decoder: Decoder, problems: Problems, keys: Keys) -> list[Row]:
    """The outcome by a forward on every prefix and the definitions of its numbers."""
    rows = []
    for (prompt, answer, final), key in zip(rows_of(problems), keys.tolist(), strict=True):
        right, margins, predicted = [], [], []
        for place, token in enumerate(answer):
            logits = last_logits(decoder, [*prompt, *answer[:place]], final, key).tolist()
            margins.append(logits[token] - max(logits[:token] + logits[token + 1 :]))
            predicted.append(logits.index(max(logits)))
            right.append(predicted[-1] == token)
        first = right.index(False) if False in right else -1
        wrong = -1 if first == -1 else predicted[first]
        rows.append(Row(sum(right), len(answer), first, min(margins), wrong))
    return rows


def assert_outcome(outcome: Outcome, expected: list[Row], tolerance: float = 1e-9) -> None:
    assert [f.name for f in fields(Outcome)] == list(Row._fields)
    for values, row in zip(zip(*astuple(outcome), strict=True), expected, strict=True):
        assert (*values[:3], values[4]) == (*row[:3], row[4])
        assert values[3] == pytest.approx(row.margin, abs=tolerance)
        assert (row.first_wrong == -1) == (row.margin > 0)


def problems_of(start: int, stop: int) -> tuple[Problems, Keys]:
    return BUCKET.problems(start, stop), BUCKET.keys(start, stop)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_it_decodes_is_exact_and_nothing_else(name: str) -> None:
    decoder = varied(name)
    problems, keys = problems_of(0, 7)
    assert len(set(problems.lengths.tolist())) > 3
    answers = greedy(decoder, problems, keys)
    assert len({token for answer in answers for token in answer}) > 3, "too dull a decoder"
    own = with_answers(problems, answers)
    runner = Runner(decoder, FLOAT32)
    outcome = score(runner, own, keys)
    assert outcome.exact.all() and (outcome.margin > 0).all()
    assert outcome.num_correct.tolist() == outcome.answer_tokens.tolist() == list(map(len, answers))
    assert_outcome(outcome, looped(decoder, own, keys))

    # One token changed, at every place in turn.
    for place in range(max(map(len, answers))):
        altered = [list(answer) for answer in answers]
        changed = [place % len(answer) for answer in answers]
        for answer, at in zip(altered, changed, strict=True):
            answer[at] = (answer[at] + 1 + place) % len(Vocabulary())
        wrong = with_answers(problems, altered)
        outcome = score(runner, wrong, keys)
        assert not outcome.exact.any() and (outcome.margin < 0).all()
        assert outcome.first_wrong.tolist() == changed
        assert (outcome.num_correct >= outcome.first_wrong).all()
        assert (outcome.num_correct < outcome.answer_tokens).all()
        if place == 2:
            assert_outcome(outcome, looped(decoder, wrong, keys))


@pytest.fixture(scope="module")
def trained() -> Decoder:
    """Rope, part of the way to adding two digits."""
    torch.set_num_threads(1)
    return train(trainer(ONE_DIGIT)).decoder.eval()


def test_held_out_exact_match_is_their_mean(
    trained: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape_arith.arith.training.trainer.HELD_OUT_PROBLEMS", 60)
    trainer_of_trained = trainer(ONE_DIGIT)
    trainer_of_trained.decoder.load_state_dict(trained.state_dict())
    held_out = Bucket("addition", 1, 0, "held-out")
    problems, keys = held_out.problems(0, 60), held_out.keys(0, 60)
    answers = greedy(trained, problems, keys)
    right = [own == true for own, (_, true, _) in zip(answers, rows_of(problems), strict=True)]
    assert trainer_of_trained.held_out_exact_match() == np.mean(right)
    assert 0 < np.mean(right) < 1


def test_order_batches_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = varied("rand-rope")
    problems, keys = problems_of(0, 24)
    answers = greedy(decoder, problems, keys)
    for row in range(0, 24, 3):
        answers[row][-1] = 4 if answers[row][-1] != 4 else 5
    problems = with_answers(problems, answers)
    expected = score(Runner(decoder, FLOAT32), problems, keys)
    assert expected.exact.sum() == 16
    order = np.random.Generator(np.random.Philox(3)).permutation(24)
    shuffled = take(problems, order)
    for tokens, threads in ((8_192, 1), (100, 2), (1, 1)):
        monkeypatch.setitem(module.TOKENS_A_BATCH, "cpu", tokens)
        outcome = score(Runner(decoder, cpu(threads=threads)), shuffled, keys[order])
        for got, field in zip(astuple(outcome)[:3], astuple(expected)[:3], strict=True):
            assert np.array_equal(got, field[order])
        assert outcome.margin == pytest.approx(expected.margin[order], abs=1e-12)


# ---- low precision -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def close() -> Close:
    """A decoder with two nearly equal tokens for every one, and its answers of one token in
    float32."""
    torch.set_num_threads(1)
    decoder = varied("rope").float()
    with torch.no_grad():
        pairs = decoder.head.weight[:18].unflatten(0, (9, 2))
        pairs[:, 1] = pairs[:, 0] + 0.03 * pairs[:, 1]
    problems, keys = problems_of(0, 200)
    firsts = [
        [int(last_logits(decoder, prompt, final, key).argmax())]
        for (prompt, _, final), key in zip(rows_of(problems), keys.tolist(), strict=True)
    ]
    return decoder, with_answers(problems, firsts), keys


def run_on(hardware: Hardware, close: Close) -> tuple[Runner, Problems, Keys]:
    return Runner(close[0], hardware), *close[1:]


def test_where_rounding_could_decide_float32_does(close: Close) -> None:
    low = score(*run_on(BFLOAT16, close))
    assert 0 < (~low.exact).sum() < 100, "bfloat16 must go wrong for this to mean anything"
    threshold = low_precision_threshold(*run_on(BFLOAT16, close))
    again = score(*run_on(BFLOAT16, close), threshold)
    assert again.exact.all() and (again.num_correct == 1).all() and (again.margin > 0).all()


def test_only_close_rows_are_scored_again(close: Close) -> None:
    low, high = score(*run_on(BFLOAT16, close)), score(*run_on(FLOAT32, close))
    threshold = float(np.median(np.abs(low.margin)))
    mixed = score(*run_on(BFLOAT16, close), threshold)
    near = np.abs(low.margin) < threshold
    assert near.sum() == 100
    assert np.array_equal(mixed.margin[~near], low.margin[~near])
    assert mixed.margin[near] == pytest.approx(high.margin[near], abs=1e-6)
    assert not np.allclose(low.margin[near], high.margin[near], atol=1e-6)
    assert np.array_equal(mixed.exact, np.where(near, high.exact, low.exact))


def test_the_threshold_is_twice_the_largest_difference(close: Close) -> None:
    decoder, problems, keys = close
    assert low_precision_threshold(*run_on(FLOAT32, close)) == 0.0
    differences = []
    for rows in groups_of_tokens(problems, keys, module.TOKENS_A_BATCH["cpu"]):
        scored = torch.from_numpy(rows.is_answer)
        seqs = module.sequences(rows, "cpu")
        with torch.no_grad():
            high = decoder(seqs)[scored]
            with torch.autocast("cpu", torch.bfloat16):
                low = decoder(seqs)[scored]
        differences.append(float((low - high).abs().max()))
    threshold = low_precision_threshold(*run_on(BFLOAT16, close))
    assert threshold == pytest.approx(2 * max(differences), rel=1e-3)
    assert threshold > 0


@pytest.mark.parametrize("other", [0.0, float("nan")])
@pytest.mark.parametrize("value", [1.0, float("inf"), float("nan")])
def test_only_finite_logits_answer(
    value: float, other: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every right token has the logit `value` and the last of the vocabulary has `other`."""

    def logits(runner: object, rows: Rows) -> Tensor:
        right = F.one_hot(torch.from_numpy(rows.targets[rows.is_answer]), len(Vocabulary())).bool()
        result = torch.zeros(right.shape).masked_fill(right, value)
        result[:, -1] = other
        return result

    monkeypatch.setattr(module, "answer_logits", logits)
    outcome = score(Runner(varied("nope"), FLOAT32), *problems_of(0, 6))
    assert outcome.exact.tolist() == [value == 1.0 and other == 0.0] * 6


# ---- the grid ------------------------------------------------------------------------------

GRID_BUCKET = Bucket("addition", 2, 0, "evaluation")
PER_CELL = 11
SEEN = SeenProblems(Bucket("addition", 1, 0, "train"), 30)


def empty() -> Grid:
    return Grid.empty(
        "rope",
        preset="mini",
        seed=0,
        axes=digit_pairs(1, 2),
        budget=Budget(**BUDGET),
        evaluation=Evaluation.of(GRID_BUCKET, PER_CELL),
    )


def scored(decoder: Decoder, hardware: Hardware = FLOAT32, **options: Any) -> Grid:
    options = {"grid": empty(), "save": lambda grid: None, "seen": SEEN, **options}
    grid: Grid = options["grid"]
    try:
        score_grid(Runner(decoder, hardware), GRID_BUCKET, **options)
    except Stopped:
        options["save"](grid)
    return grid


def test_the_grid_counts_what_is_decoded(trained: Decoder) -> None:
    grid = scored(trained)
    problems, keys = GRID_BUCKET.problems(0, PER_CELL * 4), GRID_BUCKET.keys(0, PER_CELL * 4)
    answers = greedy(trained, problems, keys)
    exact, total = np.zeros((2, 2), int), np.zeros((2, 2), int)
    for own, (_, true, _), (a, b) in zip(
        answers, rows_of(problems), problems.axis_lengths.tolist(), strict=True
    ):
        total[a - 1, b - 1] += 1
        exact[a - 1, b - 1] += own == true
    assert np.array_equal(grid.total, total) and (total == PER_CELL).all()
    assert np.array_equal(grid.exact, exact) and 0 < exact.sum() < 4 * PER_CELL
    assert grid.seen is not None and grid.seen_exact is not None
    assert np.array_equal(grid.seen, [[SEEN(problems).sum(), 0], [0, 0]]) and grid.seen[0, 0] > 0
    known = take(problems, np.flatnonzero(SEEN(problems)))
    known_keys = keys[SEEN(problems)]
    right = [row.first_wrong == -1 for row in looped(trained, known, known_keys)]
    assert grid.seen_exact.sum() == sum(right)
    wrong = [row.first_wrong for row in looped(trained, problems, keys) if row.first_wrong != -1]
    assert grid.first_wrong_sum.sum() == sum(wrong)
    assert grid.blocks_done == PER_CELL
    assert grid.scoring == {"dtype": "float32", "threshold": 0.0}


@pytest.mark.parametrize("hardware", [BFLOAT16, cpu(threads=2)], ids=str)
def test_a_grid_that_is_stopped_at_once_gets_further_each_time(
    trained: Decoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hardware: Hardware
) -> None:
    """Also while the threshold is measured, and within a block, whose parts it counts once."""
    monkeypatch.setattr(grid_module, "ROWS_A_CHUNK", 10)  # two blocks of four pairs
    monkeypatch.setitem(module.TOKENS_A_BATCH, "cpu", 20)
    expected = scored(trained, hardware)
    assert (expected.scoring["threshold"] > 0) == (hardware.dtype == torch.bfloat16)
    monkeypatch.setattr(module, "_ROUND", 0.0)  # a round has a group for each thread
    file, seen, rows = tmp_path / "grid.json", list[tuple[float, int, int]](), [0]
    empty().save(file)
    while not (grid := Grid.load(file)).complete:
        probed = grid.scoring.get("probed", 1e9) if grid.scoring else -1.0
        seen.append((probed, grid.blocks_done, grid.chunk_rows))
        scored(
            trained,
            hardware,
            grid=grid,
            save=lambda grid: grid.save(file),
            progress=rows.append,
            should_stop=lambda: True,
        )
    assert seen == sorted(set(seen)) and len(seen) > 10
    assert rows == sorted(set(rows)) and rows[-1] == 4 * PER_CELL
    assert grid.content() == expected.content()


def test_the_rest_of_a_grid_on_another_machine_has_its_own_threshold(
    trained: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.TOKENS_A_BATCH, "cpu", 20)
    part = scored(trained, should_stop=lambda: True)
    assert 0 < part.num_scored < 4 * PER_CELL
    whole = scored(trained, BFLOAT16, grid=part)
    assert whole.complete and whole.scoring["dtype"] == "float32, bfloat16"
    assert whole.scoring["threshold"] == scored(trained, BFLOAT16).scoring["threshold"] > 0


def test_a_signal_stops_before_the_next_group(trained: Decoder) -> None:
    stopper, saved = Stopper(), list[int]()
    stopper.signal = 15
    grid = scored(trained, save=lambda grid: saved.append(grid.num_scored), should_stop=stopper)
    assert saved == [0] and grid.num_scored == 0


# ---- memory runs out -----------------------------------------------------------------------


def limit_rows(patch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Let forwards of more than `most` rows fail; return the rows of the others as they come."""
    forward, sizes = Decoder.forward, []

    def limited(self: Decoder, seqs: Sequences, *rest: Any) -> Tensor:
        if len(seqs.final_length) > most:
            raise RuntimeError("could not create a primitive")
        sizes.append(len(seqs.final_length))
        return forward(self, seqs, *rest)

    patch.setattr(Decoder, "forward", limited)
    return sizes


@pytest.mark.parametrize("hardware", [BFLOAT16, cpu(threads=2)], ids=str)
def test_smaller_groups_give_the_same_grid(
    trained: Decoder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hardware: Hardware,
) -> None:
    expected = scored(trained, hardware)
    sizes = limit_rows(monkeypatch, 3)
    grid = scored(trained, hardware)
    assert max(sizes) <= 3 and np.array_equal(grid.exact, expected.exact)
    assert np.array_equal(grid.first_wrong_sum, expected.first_wrong_sum)
    notes = capsys.readouterr().err.splitlines()
    assert all("memory" in note for note in notes)
    assert 0 < len(notes) < 6  # a finer cut is kept
    limit_rows(monkeypatch, 0)
    with pytest.raises(Failure, match="memory"):
        scored(trained, hardware)
