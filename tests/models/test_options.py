"""Options that encodings refuse, each in one line that says what is right, and ends of tables."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tape_arith.models.encoding import State
from tape_arith.models.encodings.abacus import Abacus
from tape_arith.models.encodings.coupling import Coupling
from tape_arith.models.errors import UsageError
from tape_arith.models.extrapolations import PI
from tape_arith.models.families.learned_table import PlaceTable
from tape_arith.models.families.rotary import Rotary, rotation
from tape_arith.models.sequences import Sequences
from tests.helpers.small_decoders import NUMBERINGS, build, digits, packed_digits, setting

NOT_SCALED = (
    *("nope", "t5", "shaw", "learned", "learned-offset", "abacus", "coupling", "rand-rope"),
    *("rand-fire", "fox", "cope", "path", "selective-rope", "tape:start=learned"),
)
RESCALINGS = ("pi", "ntk", "ntk-dynamic", "yarn", "yarn:ramp=paper")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t5:max_distance=16", "t5: max_distance must be 17 or more, not 16"),
        ("hard-alibi:windowed=5", r"hard-alibi: windowed must be 1 to 4 \(heads\), not 5"),
        ("sandwich:width=7", "sandwich: width must be even and 2 or more, not 7"),
        ("shaw:kmax=0", "shaw: kmax must be 1 or more, not 0"),
        ("fire:width=0", "fire: width must be 1 or more, not 0"),
        ("fire:init_l=-1", "fire: init_l must be more than 0, not -1"),
        ("cope:positions=1", "cope: positions must be 2 or more, not 1"),
        ("path:rank=0", "path: rank must be 1 or more, not 0"),
        ("dape:base=rope", "alibi"),
        ("rope-partial:fraction=1.5", "fraction must be in"),
        ("p-rope:p=0.01", "keep a frequency"),
        ("xpos:scale_base=0", "scale_base must be more than 0"),
        ("abacus:k=-1", "abacus: k must be 0 or more, not -1"),
        ("coupling:s=0", "coupling: s must be 1 or more, not 0"),
        ("bipe:rows=0", "bipe: rows must be 1 or more, not 0"),
        ("bipe:k=-1", "bipe: k must be 0 or more, not -1"),
        ("learned:rows=51", r"rows=51 is less than .* 52 tokens; choose rows >= 52"),
        ("tape:context=no-mlp:width=12", "tape: width=12 does nothing with context=no-mlp"),
        ("tape:context=no-mlp:form=non-equivariant", "context=no-mlp has none"),
        ("tape-heads:clamp=-0.5", "tape-heads: clamp must be above 0, or 0 for none, not -0.5"),
        ("tape:start=fourier:base=50", "tape: base=50 does nothing with start=fourier"),
        *((f"{name}:base=1", "base must be more than 1, not 1") for name in ("rope", "tape")),
        ("tape:form=flat", "one of tensor, non-equivariant, vector"),
        ("tape-heads:form=vector", "unknown option of tape-heads 'form'"),
        # Parts that cannot be joined.
        ("rope+fire", r"^'fire\+rope': fire and rope each define attention"),
        ("abacus+rope+tape", "rope and tape each define attention"),
        ("abacus+nope", r"^'abacus\+nope': nope adds nothing"),
        ("abacus+fire+yarn", "FIRE has none"),
        # Changes at test time that have nothing to change, or whose formula does not fit.
        ("fire+ntk", "FIRE has none"),
        ("selective-rope+yarn", "SelectiveRoPE has none"),
        ("tape:start=learned+pi", "no frequencies"),
        ("tape:start=fourier+ntk", "not powers of one base"),
        ("tape-heads:start=fourier+ntk-dynamic", "not powers of one base"),
        ("tape:start=fourier+yarn", "ramp=paper"),
        ("rope-partial:fraction=0.125+ntk", "one frequency"),
        ("rope+ntk-dynamic:factor=0.5", "factor must be 1 or more"),
        *(
            (f"{name}+{numbering}", r"changes randomized positions; .* has none")
            for name in ("rope", "fire", "tape", "abacus+rope")
            for numbering in NUMBERINGS
        ),
        ("rand-rope+redraw:draw=0", "draw must be from 1 to 4294967295, not 0"),
        *((f"aug-{name}", "^aug- scales indices, .* does not compute with") for name in NOT_SCALED),
        # Positions that do not grow with the length.
        *((f"{name}+{e}", "cannot act on") for name in ("rand-rope", "bipe") for e in RESCALINGS),
    ],
)
def test_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        build(name, setting(num_heads=4, head_dim=16))
    assert "\n" not in str(caught.value)


def test_odd_sizes_are_refused() -> None:
    for name in ("rope", "rope-partial", "p-rope", "xpos", "pope", "selective-rope", "tape"):
        with pytest.raises(UsageError, match="even head_dim"):
            build(name, setting(head_dim=7))
    with pytest.raises(UsageError, match="even hidden_size, not 15"):
        build("sinusoidal", setting(hidden_size=15))


class OwnAngles(Rotary):
    """Overrides `start` without asking `cos_sin`."""

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        angles = index[..., None, None] * self.frequencies().to(x.dtype)
        return rotation(angles.cos(), angles.sin())


def test_a_start_of_its_own_that_ignores_the_change_is_refused() -> None:
    assert "nothing would change" in (PI().why_unsupported(OwnAngles(setting())) or "")
    for name in ("rope", "rope-partial", "p-rope", "xpos", "pope", "tape", "tape-heads"):
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
    with pytest.raises(UsageError, match=f"index {last + 1}, .* ends at {last}: score"):
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
    with pytest.raises(UsageError, match=r"index 5\d .* of 52 rows"):
        added(replace(digits("1" * 50), offset=3, final_length=longest))
    if "rand" not in name:
        with pytest.raises(UsageError, match=r"index 52 .* of 52 rows"):
            added(replace(digits("1" * 53), final_length=longest))
