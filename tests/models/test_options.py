"""Options that encodings refuse, each in one line that says what is right, and ends of tables."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tape_arith.models.encoding import State
from tape_arith.models.encodings.abacus import Abacus
from tape_arith.models.encodings.coupling import Coupling
from tape_arith.models.errors import UsageError
from tape_arith.models.extrapolations.rescaling import PI
from tape_arith.models.families.learned_table import PlaceTable
from tape_arith.models.families.rotary import Rotary, rotation
from tape_arith.models.sequences import Sequences
from tests.helpers.small_decoders import NUMBERINGS, build, digits, packed_digits, setting

NOT_SCALED = (
    *("nope", "t5", "shaw", "learned", "learned-offset", "abacus", "coupling", "rand-rope"),
    *("rand-fire", "fox", "cope", "path", "selective-rope", "tape:start=learned", "canon", "wall"),
)
RESCALINGS = ("pi", "ntk", "ntk-dynamic", "yarn", "yarn:ramp=paper")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        *(
            (f"{name}+{numbering}", "randomized")
            for name in ("rope", "fire", "tape", "abacus+rope")
            for numbering in NUMBERINGS
        ),
        *((f"aug-{name}", "aug-") for name in NOT_SCALED),
        # Positions that do not grow with the length.
        *((f"{name}+{e}", "act on") for name in ("rand-rope", "bipe", "repo") for e in RESCALINGS),
    ],
)
def test_changes_of_indices_that_do_nothing_are_refused(name: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        build(name, setting(num_heads=4, head_dim=16))


def test_odd_sizes_are_refused() -> None:
    names = ("rope", "rope-partial", "p-rope", "xpos", "pope", "selective-rope", "tape", "hybrid")
    for name in (*names, "repo"):
        with pytest.raises(UsageError, match="even head_dim"):
            build(name, setting(head_dim=7))
    with pytest.raises(UsageError, match="hidden_size"):
        build("sinusoidal", setting(hidden_size=15))


class OwnAngles(Rotary):
    """Overrides `start` without asking `cos_sin`."""

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        angles = index[..., None, None] * self.frequencies().to(x.dtype)
        return rotation(angles.cos(), angles.sin())


def test_a_start_of_its_own_that_ignores_the_change_is_refused() -> None:
    assert "nothing would" in (PI().why_unsupported(OwnAngles(setting())) or "")
    names = ("rope", "rope-partial", "p-rope", "xpos", "pope", "tape", "tape-heads", "hybrid")
    for name in names:
        pe = build(name, setting(head_dim=16)).train()
        assert PI().why_unsupported(pe) is None
        assert pe.training and getattr(pe, "rescaling", 0) is None  # as it was


# ---- the ends of tables ------------------------------------------------------------------------


@pytest.mark.parametrize("other", [1, 40])
@pytest.mark.parametrize("pe", [Abacus(setting(), k=3), Coupling(setting(), s=3)])
def test_the_end_of_a_place_table(pe: PlaceTable, other: int) -> None:
    """A number that is too long is refused; what fits, however long the sequence, is not."""
    last = len(pe.table) - 1
    fits = last - pe.low
    pe.eval()
    assert int(pe.indices(digits("1" * fits + "+" + "2" * other)).max()) == last
    with pytest.raises(UsageError, match=rf"index {last + 1},.* {last}:"):
        pe.indices(digits("1" * (fits + 1) + "+" + "2" * other))


@pytest.mark.parametrize("kind", [Abacus, Coupling])
def test_lengths_that_fit_are_not_read_off_the_device(
    kind: type[Abacus | Coupling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tested sequence fits for its shape alone; `int(tensor)` would wait for a GPU."""

    def wait(self: Tensor) -> int:
        raise AssertionError("a tensor was read")

    pe = kind(setting())
    monkeypatch.setattr(Tensor, "__int__", wait)
    for seqs in (digits("1" * 51), packed_digits("1" * 51, "2" * 51)):
        pe.train().indices(seqs)
        pe.eval().indices(seqs)
    with pytest.raises(AssertionError, match="read"):
        pe.eval().indices(digits("1" * 99))


@pytest.mark.parametrize("name", ["learned", "learned-offset", "rand-learned:l_max=52"])
def test_the_end_of_a_learned_table(name: str) -> None:
    """The last row is used; past it a sequence is refused. Many short ones are not a long one."""
    pe = build(name, setting()).eval()

    def added(seqs: Sequences) -> Tensor:
        return pe.embed(torch.zeros(*seqs.tokens.shape, 24), pe.indices(seqs), seqs)

    longest = torch.tensor([52])
    added(replace(digits("1" * 52), final_length=longest))
    added(packed_digits("1" * 7, "2" * 27, "3" * 26))
    with pytest.raises(UsageError, match=r"index 5\d.*52"):
        added(replace(digits("1" * 50), offset=3, final_length=longest))
    if "rand" not in name:
        with pytest.raises(UsageError, match=r"index 52.* 52"):
            added(replace(digits("1" * 53), final_length=longest))
