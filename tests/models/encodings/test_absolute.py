"""What is added to token embeddings: sines, learned tables, and tables with a random start.

Legend: B batch, T tokens, D hidden.
"""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from tape_arith.models import contract
from tape_arith.models.build import build
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.encodings.learned_offset import LearnedOffset
from tape_arith.models.errors import UsageError
from tape_arith.models.families.learned_table import LearnedTable
from tape_arith.models.sequences import Sequences
from tests.models.encodings.test_bias import setting

ABSOLUTE = ["sinusoidal", "learned:rows=3100", "learned-offset:rows=3100"]


def rows(count: int, length: int, final_length: int | None = None) -> Sequences:
    """Rows of zeros, each with another key."""
    tokens = torch.zeros(count, length, dtype=torch.int64)
    bound = torch.full((count,), final_length or length)
    return Sequences(tokens, bound, torch.arange(count) + 7)


def added(pe: PositionalEncoding, seqs: Sequences, dtype: torch.dtype = torch.float64) -> Tensor:
    """What `pe` gives for token embeddings of zero: [B or 1, T, D]."""
    x = torch.zeros(*seqs.tokens.shape, pe.setting.hidden_size, dtype=dtype)
    return pe.embed(x, pe.indices(seqs), seqs).detach()


@pytest.mark.parametrize("name", ABSOLUTE)
def test_a_shift_of_all_indices_is_seen(name: str) -> None:
    decoder, seqs = contract.decoder_for(name), contract.example_batch(40)
    shifted = contract.forward(decoder, dataclasses.replace(seqs, offset=11))
    assert float((shifted - contract.forward(decoder, seqs)).abs().max()) > 0.01


@pytest.mark.parametrize("name", ABSOLUTE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_positions_are_never_bfloat16(name: str, dtype: torch.dtype) -> None:
    """There 3000 and 3001 are one number."""
    pe = build(name, setting()).to(dtype).eval()
    with torch.autocast("cpu", torch.bfloat16):
        table = added(pe, dataclasses.replace(rows(1, 2), offset=3000), dtype)
    assert table.dtype == dtype
    assert float((table[0, 0] - table[0, 1]).abs().max()) > 0.01


# ---- sinusoidal --------------------------------------------------------------------------------


def test_sines_and_cosines() -> None:
    table = added(build("sinusoidal", setting()), rows(1, 50))[0]
    for t in (0, 1, 49):
        for k in range(8):
            angle = t / 10000 ** (2 * k / 16)
            assert table[t, k].item() == pytest.approx(math.sin(angle), abs=1e-13)
            assert table[t, k + 8].item() == pytest.approx(math.cos(angle), abs=1e-13)


def test_token_embeddings_are_scaled() -> None:
    pe = build("sinusoidal", setting())
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    seqs = rows(2, 9)
    assert torch.allclose(pe.embed(x, pe.indices(seqs), seqs), 4 * x + added(pe, seqs))


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(UsageError, match="even hidden_size, not 15"):
        build("sinusoidal", dataclasses.replace(setting(), hidden_size=15))


# ---- learned -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["learned", "learned-offset"])
def test_past_the_table(name: str) -> None:
    pe = build(name, setting()).eval()
    assert isinstance(pe, LearnedTable) and len(pe.table) == 52
    assert added(pe, rows(2, 52)).shape == (2, 52, 16)
    packed = Sequences(
        torch.zeros(1, 60, dtype=torch.int64),
        torch.tensor([7, 53]),
        torch.tensor([0, 1]),
        starts=torch.tensor([0, 7, 60], dtype=torch.int32),
        longest=53,
    )
    for seqs in (rows(2, 53), dataclasses.replace(rows(2, 50), offset=3), packed):
        with pytest.raises(UsageError, match=r"index 52 .* of 52 rows") as caught:
            added(pe, seqs)
        assert "\n" not in str(caught.value)
    # Many short sequences, packed, are not a long one.
    starts = torch.tensor([0, 7, 34, 60], dtype=torch.int32)
    short = dataclasses.replace(
        packed, starts=starts, longest=27, final_length=torch.full((3,), 27), key=torch.arange(3)
    )
    assert torch.equal(added(pe, short)[0, 34:36], pe.table[:2].double())


@pytest.mark.parametrize("name", ["learned", "learned-offset"])
def test_a_table_that_tests_would_run_past(name: str) -> None:
    with pytest.raises(UsageError, match=r"rows=51 is less than .* 52 tokens; choose rows >= 52"):
        build(f"{name}:rows=51", setting())


def test_what_learned_never_trains() -> None:
    """The rows beyond the trained length: it is expected to fail there."""
    pe = build("learned", setting())
    assert isinstance(pe, LearnedTable)
    seqs = rows(2, 28)
    pe.embed(torch.zeros(2, 28, 16), pe.indices(seqs), seqs).sum().backward()
    assert pe.table.grad is not None
    assert bool((pe.table.grad[:28] > 0).all()) and not pe.table.grad[28:].any()


@pytest.mark.parametrize("name", ["learned", "learned-offset", "rand-learned"])
def test_tables(name: str) -> None:
    pe = build(name, dataclasses.replace(setting(), max_length=500))
    assert isinstance(pe, LearnedTable)
    assert [id(p) for p, _ in pe.parameter_groups()] == [id(pe.table)]
    assert all(options["weight_decay"] == 0 for _, options in pe.parameter_groups())
    assert float(pe.table.detach().std()) == pytest.approx(0.02, rel=0.1)


# ---- learned-offset ----------------------------------------------------------------------------


def offset_of(pe: PositionalEncoding, seqs: Sequences) -> Tensor:
    """The index of each row's first token."""
    return pe.indices(seqs)[:, 0]


def test_a_random_start_in_training_alone() -> None:
    pe = build("learned-offset", setting())
    plain = torch.arange(20)[None]
    assert torch.equal(pe.eval().indices(rows(4, 20)), plain)
    index = pe.train().indices(rows(400, 20))
    assert bool((index.diff(dim=1) == 1).all())
    assert len(index[:, 0].unique()) > 20
    # The key decides, not torch's generator.
    assert torch.equal(index, pe.indices(rows(400, 20)))


def test_starts_are_even_and_stay_in_the_table() -> None:
    """0 .. 52 - 20 = 32, each as likely as the next."""
    pe = build("learned-offset", setting()).train()
    counts = offset_of(pe, rows(6600, 15, final_length=20)).bincount(minlength=33)
    assert len(counts) == 33
    expected = 6600 / 33
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert chi_squared < 32 + 5 * math.sqrt(2 * 32)


def test_a_sequence_as_long_as_the_table_starts_at_its_beginning() -> None:
    pe = build("learned-offset", setting()).train()
    for bound in (52, 60):
        assert not offset_of(pe, rows(20, 50, final_length=bound)).any()


def test_every_row_of_the_table_is_trained() -> None:
    pe = build("learned-offset", setting()).train()
    assert isinstance(pe, LearnedOffset)
    seqs = rows(400, 28)
    pe.embed(torch.zeros(400, 28, 16), pe.indices(seqs), seqs).sum().backward()
    assert pe.table.grad is not None and bool((pe.table.grad > 0).all())


def test_padding_and_packing_move_no_start() -> None:
    pe = build("learned-offset", setting()).train()
    short, long = rows(3, 20, final_length=20), rows(3, 52, final_length=20)
    index = pe.indices(long)
    assert torch.equal(pe.indices(short), index[:, :20])
    assert int(index.max()) <= 51
    packed = dataclasses.replace(
        short,
        tokens=short.tokens.flatten()[None],
        starts=torch.tensor([0, 20, 40, 60], dtype=torch.int32),
        longest=20,
    )
    assert torch.equal(pe.indices(packed)[0], pe.indices(short).flatten())


def test_at_test_time_it_is_learned() -> None:
    learned, offset = (build(name, setting()).eval() for name in ("learned", "learned-offset"))
    offset.load_state_dict(learned.state_dict())
    assert torch.equal(added(learned, rows(2, 40)), added(offset, rows(2, 40)))
