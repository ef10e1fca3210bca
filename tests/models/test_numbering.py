"""What numbers randomized positions anew at test time: plain, even, another draw."""

from itertools import pairwise

import pytest
import torch

from tape_arith.models import contract
from tape_arith.models.build import build
from tape_arith.models.errors import UsageError
from tape_arith.models.families.randomized import Randomized, random_subset
from tape_arith.models.names.locate import known_names
from tape_arith.models.sequences import Sequences
from tests.models.encodings.test_bias import setting
from tests.models.encodings.test_randomized import NAMES, plain
from tests.models.small import NUMBERINGS


def numbers(name: str, finals: list[int], length: int, l_max: int = 104) -> list[list[int]]:
    pe = build(name, setting()).eval()
    assert isinstance(pe, Randomized) and pe.l_max == l_max
    seqs = contract.example_batch(length, rows=len(finals))
    seqs = Sequences(seqs.tokens, torch.tensor(finals), seqs.key)
    found: list[list[int]] = pe.indices(seqs).tolist()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_plain_is_the_plain_twin(name: str) -> None:
    decoder, seqs = contract.decoder_for(f"{name}+plain"), contract.example_batch()
    twin = plain(decoder, name)
    assert torch.equal(contract.forward(decoder, seqs), contract.forward(twin, seqs))


@pytest.mark.parametrize("numbering", NUMBERINGS)
@pytest.mark.parametrize("name", NAMES)
def test_training_never_sees_it(name: str, numbering: str) -> None:
    changed, usual = contract.decoder_for(f"{name}+{numbering}"), contract.decoder_for(name)
    seqs = contract.example_batch()
    change = contract.forward(changed, seqs) - contract.forward(usual, seqs)
    assert float(change.abs().amax((1, 2)).min()) > 0.01
    ours, theirs = (contract.forward(d.train(), seqs) for d in (changed, usual))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("l_max", [52, 60, 104, 1001])
def test_even_is_the_middle_of_equal_parts(l_max: int) -> None:
    finals = [1, 2, 20, 33, 52]
    found = numbers(f"rand-rope:l_max={l_max}+even", finals, 52, l_max)
    for n, row in zip(finals, found, strict=True):
        assert row[:n] == [int((t + 0.5) * l_max / n) for t in range(n)]
        assert all(a < b for a, b in pairwise(row[:n]))
        assert min(row) >= 0 and max(row) < l_max


def test_another_draw_is_another_subset() -> None:
    finals = [20, 33, 52]
    draws = [
        numbers(f"rand-rope{with_}", finals, 52) for with_ in ("", "+redraw", "+redraw:draw=2")
    ]
    for k, n in enumerate(finals):
        rows = [draw[k][:n] for draw in draws]
        assert len({tuple(row) for row in rows}) == 3
        for row in rows:
            assert row == sorted(set(row)) and row[0] >= 0 and row[-1] < 104
    assert draws[1] == numbers("rand-rope+redraw:draw=1", finals, 52)


def test_draws_are_uniform_and_independent() -> None:
    """Of 4,000 keys: every number is taken equally often, and two draws share as many as chance
    has them share."""
    keys, n, l_max = torch.arange(4000), 20, 104
    first, second = (random_subset(keys, torch.full((4000,), n), l_max, d)[:, :n] for d in (0, 3))
    expected, spread = 4000 * n / l_max, (4000 * n / l_max * (1 - n / l_max)) ** 0.5
    counts = torch.bincount(second.flatten(), minlength=l_max)
    assert float((counts - expected).abs().max()) < 5 * spread
    shared = (first[:, :, None] == second[:, None, :]).sum((1, 2)).double()
    # Hypergeometric: mean n^2 / l_max.
    variance = n * n / l_max * (1 - n / l_max) * (l_max - n) / (l_max - 1)
    assert abs(float(shared.mean()) - n * n / l_max) < 5 * (variance / 4000) ** 0.5


@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_it_needs_randomized_positions(numbering: str) -> None:
    for name in ("rope", "fire", "tape", "abacus+rope"):
        with pytest.raises(UsageError, match=r"numbers randomized positions anew; .* has none"):
            build(f"{name}+{numbering}", setting())
    build(f"abacus+rand-rope+{numbering}", setting())


@pytest.mark.parametrize("draw", [0, -1, 2**32])
def test_draws_are_counted_from_one(draw: int) -> None:
    with pytest.raises(UsageError, match=f"redraw: draw must be from 1 to 4294967295, not {draw}"):
        build(f"rand-rope+redraw:draw={draw}", setting())


def test_every_numbering_is_tested_here() -> None:
    able = []
    for name in known_names("extrapolation"):
        try:
            build(f"rand-fire+{name}", setting())
        except UsageError:
            continue
        able.append(name)
    assert able == sorted(NUMBERINGS)
