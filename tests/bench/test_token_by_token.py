"""The yardstick finds what the one pass finds, reads as it says, on rows of the whole grid."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tape_arith.arith.bench.token_by_token import cell_of, decoded, lattice, sampled, token_by_token
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.scoring.score import score
from tape_arith.arith.tasks.task import Problems, concatenate
from tape_arith.arith.tasks.vocabulary import EOS
from tape_arith.models.decoder import Decoder
from tape_arith.models.names.parse import parse
from tape_arith.models.sequences import Sequences
from tests.helpers.small_training import cpu, perturbed, small

CONFIG = small(trained_digits=3, tested_digits=6)
BUCKET = Bucket("addition", 6, 0, "evaluation")
CELLS = [(1, 1), (2, 5), (6, 6)]


def varied(name: str) -> Decoder:
    """A decoder whose answers vary."""
    return perturbed(decoder_for(CONFIG, parse(name), 0).eval(), 0.4)


def answered(decoder: Decoder, problems: Problems, keys: NDArray[np.int64]) -> Problems:
    """The same prompts with the decoder's own greedy answers in place of the right ones, some of
    them then changed in one place, some cut short before their end."""
    tokens, lengths = [], []
    ends = np.cumsum(problems.lengths)
    for row, end in enumerate(ends):
        prompt = problems.tokens[end - problems.lengths[row] : end][: problems.prompt_lengths[row]]
        answer: list[int] = []
        width = int(problems.final_lengths[row] - problems.prompt_lengths[row])
        while len(answer) < width and EOS not in answer:
            seqs = Sequences(
                torch.tensor([[*prompt.tolist(), *answer]]),
                torch.tensor([int(problems.final_lengths[row])]),
                torch.tensor([int(keys[row])]),
            )
            with torch.no_grad():
                answer.append(int(decoder(seqs)[0, -1].argmax()))
        if row % 3 == 1:
            answer[row % len(answer)] = 4 + (answer[row % len(answer)] + 3) % 10
        if row % 6 == 2:
            answer = answer[: max(1, len(answer) // 2)]
        tokens.append(np.array([*prompt.tolist(), *answer], dtype=np.uint8))
        lengths.append(len(tokens[-1]))
    return problems._replace(tokens=np.concatenate(tokens), lengths=np.array(lengths))


@pytest.mark.parametrize("name", ["rope", "tape", "fire", "rand-rope"])
def test_the_yardstick_finds_what_one_pass_finds(name: str) -> None:
    decoder = varied(name)
    samples = [
        (answered(decoder, problems, keys), keys) for problems, keys in sampled(BUCKET, CELLS, 6)
    ]
    problems = concatenate([one for one, _ in samples])
    keys = np.concatenate([each for _, each in samples])
    by_pass = score(decoder, problems, keys, cpu()).exact
    cells = [cell_of(*sample, "cpu") for sample in samples]
    by_loop = np.concatenate(decoded(decoder, cells, cpu()))
    assert np.array_equal(by_loop, by_pass)
    assert 0 < by_loop.sum() < len(by_loop)
    threads = np.concatenate(decoded(decoder, cells, cpu(threads=2)))
    assert np.array_equal(threads, by_loop)


def test_the_loop_reads_the_whole_sequence_for_each_token() -> None:
    seen: list[tuple[int, ...]] = []

    class Stub(torch.nn.Module):
        """Answers 7 for ever."""

        def forward(self, seqs: Sequences) -> torch.Tensor:
            seen.append(tuple(seqs.tokens.shape))
            logits = torch.zeros(*seqs.tokens.shape, 19)
            logits[..., 7] = 1.0
            return logits

    ((problems, keys),) = sampled(BUCKET, [(2, 3)], 5)
    cell = cell_of(problems, keys, "cpu")
    assert not token_by_token(Stub(), cell, cpu()).any()  # type: ignore[arg-type]
    prompt, longest = 7, int(problems.lengths.max()) - 7
    assert seen == [(5, prompt + place) for place in range(longest)]


def test_the_loop_ends_when_all_rows_have_ended() -> None:
    calls: list[int] = []

    class Ended(torch.nn.Module):
        def forward(self, seqs: Sequences) -> torch.Tensor:
            calls.append(1)
            logits = torch.zeros(*seqs.tokens.shape, 19)
            logits[..., EOS] = 1.0
            return logits

    ((problems, keys),) = sampled(BUCKET, [(4, 4)], 3)
    assert not token_by_token(Ended(), cell_of(problems, keys, "cpu"), cpu()).any()  # type: ignore[arg-type]
    assert len(calls) == 1


@pytest.mark.parametrize(("digits", "sides"), [(80, 8), (80, 5), (80, 2), (6, 2), (16, 4)])
def test_the_sample_is_spread_over_the_grid(digits: int, sides: int) -> None:
    cells = lattice(digits, sides)
    assert len(set(cells)) == sides**2
    lengths = np.array(cells)
    assert lengths.min() >= 1 and lengths.max() <= digits
    # Each of sides x sides equal parts holds one cell; on average it is the grid's middle.
    parts = {tuple(part) for part in np.ceil(lengths * sides / digits).astype(int).tolist()}
    assert len(parts) == sides**2
    assert abs(lengths.mean() - (digits + 1) / 2) <= 1


def test_sampled_rows_are_of_the_evaluation_set() -> None:
    _, (problems, keys) = sampled(BUCKET, [(1, 1), (2, 5)], 4)
    assert problems.operand_lengths.tolist() == [[2, 5]] * 4
    whole = BUCKET.problems(0, 4 * BUCKET.num_pairs)
    places = [i for i, cell in enumerate(whole.operand_lengths.tolist()) if cell == [2, 5]]
    ends = np.cumsum(whole.lengths)
    expected = [whole.tokens[ends[i] - whole.lengths[i] : ends[i]] for i in places]
    assert np.array_equal(problems.tokens, np.concatenate(expected))
    assert np.array_equal(keys, BUCKET.keys(0, 4 * BUCKET.num_pairs)[places])
