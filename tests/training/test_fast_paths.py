"""The backward passes written for CPUs give the losses of the plain formulas over 200 steps."""

import pytest
import torch

from tests.helpers.small_training import small, trainer


def losses(name: str, steps: int) -> torch.Tensor:
    """In float64, where rounding cannot grow into a difference within so many steps."""
    one = trainer(small(steps=steps), name)
    one.decoder.double()
    return torch.stack([one.train_step()[0] for _ in range(steps)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nope", "rope", "tape", "tape-heads"])
def test_loss_curves_agree_over_200_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = losses(name, 200)
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)
    plain = losses(name, 200)
    assert float(fast[-20:].mean()) < 0.97 * float(fast[:20].mean())  # it learns
    torch.testing.assert_close(fast, plain, rtol=1e-6, atol=1e-6)
