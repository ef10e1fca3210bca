"""What a step does to each weight, against AdamW written out (Loshchilov & Hutter 2019, arXiv
1711.05101, Algorithm 2) in float64, for every encoding."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tape_arith.arith.training import step
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.step import trained
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.names.locate import known_names
from tests.helpers.small_training import SMALL, perturbed, trainer

MORE = (
    "tape:form=non-equivariant",
    "tape:form=vector",
    "tape:context=no-attention",
    "tape:context=no-mlp",
    "tape:start=learned",
    "tape-heads:context=no-attention",
    "tape-heads:start=learned",
    "abacus+fire",
)
STEPS = 3


def naive(
    before: Tensor, gradients: list[Tensor], rates: list[float], decay: float, config: Config
) -> Tensor:
    """One tensor after as many steps as there are gradients, entry by entry in its own order."""
    weight, first, second = before.double(), torch.zeros(()), torch.zeros(())
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        first = config.beta1 * first + (1 - config.beta1) * gradient.double()
        second = config.beta2 * second + (1 - config.beta2) * gradient.double() ** 2
        mean = first / (1 - config.beta1**t)
        size = (second / (1 - config.beta2**t)).sqrt()
        weight = weight - rate * decay * weight - rate * mean / (size + config.epsilon)
    return weight


def off(trainer: Trainer) -> Iterator[tuple[str, float]]:
    """By name, how far each weight is from the naive one, as a part of the way it has gone."""
    config = trainer.config
    perturbed(trainer.decoder)
    trainer.decoder.pe.after_step()
    vars(trainer.decoder.pe)["after_step"] = lambda: None  # which clamps what has a range
    parameters = dict(trained(trainer.decoder))
    wishes = {id(p): wish for p, wish in trainer.decoder.pe.parameter_groups()}
    before = {name: p.detach().clone() for name, p in parameters.items()}
    gradients: dict[str, list[Tensor]] = {name: [] for name in parameters}
    factors = []
    for trainer.step in range(STEPS):
        problems, keys = trainer.batches.problems(trainer.step)
        answers = int((problems.lengths - problems.prompt_lengths).sum())
        loss = trainer.accumulated(problems, keys, answers)
        found = {name: p.grad.double() for name, p in parameters.items() if p.grad is not None}
        norm = float(sum(gradient.square().sum() for gradient in found.values())) ** 0.5
        for name, gradient in found.items():
            gradients[name].append(gradient * min(1.0, config.clip / norm))
        factors.append(trainer.schedule.factor(trainer.step))
        trainer.updated(loss)
    for name, p in parameters.items():
        wish = wishes.get(id(p), {})
        decay = wish.get("weight_decay", config.weight_decay if p.ndim > 1 else 0.0)
        rate = config.learning_rate * wish.get("lr_factor", 1.0)
        right = naive(before[name], gradients[name], [rate * f for f in factors], decay, config)
        yield name, float((p.detach() - right).norm() / (right - before[name]).norm())


@pytest.mark.parametrize("name", [*known_names("encoding"), *MORE])
def test_a_step_is_adamw(name: str) -> None:
    far = {what: distance for what, distance in off(trainer(SMALL, name)) if not distance <= 1e-3}
    assert not far


def test_a_gradient_in_another_layout_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: the fused kernel takes the numbers of a transposed gradient in the wrong order."""
    monkeypatch.setattr(step, "match_layout", lambda parameter, piece: piece)
    for name, transposed in (("tape", "w1"), ("tape-heads", "wu")):
        far = {what for what, distance in off(trainer(SMALL, name)) if not distance <= 1e-3}
        assert far == {f"pe.layers.0.{transposed}"}


@pytest.mark.parametrize("name", [*known_names("encoding"), *MORE])
def test_gradients_lie_as_their_weights_do(name: str) -> None:
    """What CUDA's fused kernel asks for, strides of axes of one entry included."""
    made = trainer(SMALL, name)
    problems, keys = made.batches.problems(0)
    made.accumulated(problems, keys, 1)
    for what, p in trained(made.decoder):
        assert p.grad is not None and p.grad.stride() == p.stride(), what
