"""A change of frequencies is refused where it means nothing or would change nothing."""

import pytest
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.encoding import State
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import Rotary, rotation
from tape_arith.models.sequences import Sequences
from tests.models.small import setting


class OwnAngles(Rotary):
    """Overrides `start` without asking `cos_sin`."""

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        angles = index[..., None, None] * self.frequencies().to(x.dtype)
        return rotation(angles.cos(), angles.sin())


@pytest.mark.parametrize("change", ["yarn", "yarn:ramp=paper", "ntk", "ntk-dynamic", "pi"])
@pytest.mark.parametrize("name", ["rand-rope", "bipe"])
def test_positions_that_do_not_grow_with_the_length(name: str, change: str) -> None:
    with pytest.raises(UsageError, match="cannot act on"):
        build(f"{name}+{change}", setting())


@pytest.mark.parametrize("name", ["rope", "xpos", "pope", "tape", "tape-heads", "abacus+rope"])
def test_builtin_starts_are_accepted(name: str) -> None:
    assert build(f"{name}+pi", setting())


def test_a_start_of_its_own_that_ignores_the_change() -> None:
    from tape_arith.models.extrapolations.pi import PI

    assert "nothing would change" in (PI().why_unsupported(OwnAngles(setting())) or "")
    assert PI().why_unsupported(Rotary(setting())) is None
