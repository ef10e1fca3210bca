"""The update of each weight, against AdamW written out (Loshchilov & Hutter 2019, arXiv
1711.05101, Algorithm 2) in float64, for every encoding; the schedule of its learning rate."""

import pytest
import torch
from torch import Tensor

from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.runs.config import Config, Schedule
from tape_arith.arith.training import step
from tape_arith.arith.training.step import trained_parameters
from tape_arith.arith.training.trainer import Trainer
from tests.helpers.small_training import SMALL, kinds_first, perturbed, small, trainer

NAMES = [
    *known_names("encoding"),
    *("tape:form=non-equivariant", "tape:form=vector", "tape:context=no-attention"),
    *("tape:context=no-mlp", "tape:start=learned", "tape-heads:context=no-attention"),
    *("tape-heads:start=learned", "abacus+fire"),
]
STEPS = 3


def naive(
    before: Tensor, gradients: list[Tensor], rates: list[float], decay: float, config: Config
) -> Tensor:
    """Return a tensor after as many steps as there are gradients."""
    weight, first, second = before.double(), torch.zeros(()), torch.zeros(())
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        first = config.beta1 * first + (1 - config.beta1) * gradient.double()
        second = config.beta2 * second + (1 - config.beta2) * gradient.double() ** 2
        mean = first / (1 - config.beta1**t)
        size = (second / (1 - config.beta2**t)).sqrt()
        weight = weight - rate * decay * weight - rate * mean / (size + config.epsilon)
    return weight


def wrong_weights(trainer: Trainer) -> set[str]:
    """Return the names of weights that are off by more than a thousandth of their way, or whose
    gradient is laid out in another way, which the fused kernels do not take."""
    config = trainer.config
    perturbed(trainer.decoder)
    trainer.decoder.pe.after_step()
    vars(trainer.decoder.pe)["after_step"] = lambda: None  # which clamps what has a range
    parameters = trained_parameters(trainer.decoder)
    wishes = {id(p): wish for p, wish in trainer.decoder.pe.parameter_groups()}
    before = {name: p.detach().clone() for name, p in parameters.items()}
    gradients: dict[str, list[Tensor]] = {name: [] for name in parameters}
    factors, wrong = [], set[str]()
    for trainer.step in range(STEPS):
        problems, keys = trainer.batches.problems(trainer.step)
        answers = int((problems.lengths - problems.prompt_lengths).sum())
        loss = trainer.accumulate_gradient(problems, keys, answers)
        latest = {name: p.grad.double() for name, p in parameters.items() if p.grad is not None}
        assert latest.keys() == parameters.keys()
        layouts = {name: p.grad.stride() for name, p in parameters.items() if p.grad is not None}
        wrong |= {name for name, p in parameters.items() if layouts[name] != p.stride()}
        norm = float(sum(gradient.square().sum() for gradient in latest.values())) ** 0.5
        for name, gradient in latest.items():
            gradients[name].append(gradient * min(1.0, config.clip / norm))
        factors.append(trainer.schedule.factor(trainer.step))
        trainer.update_parameters(loss)
    for name, p in parameters.items():
        wish = wishes.get(id(p), {})
        decay = wish.get("weight_decay", config.weight_decay if p.ndim > 1 else 0.0)
        rate = config.learning_rate * wish.get("lr_factor", 1.0)
        right = naive(before[name], gradients[name], [rate * f for f in factors], decay, config)
        distance = float((p.detach() - right).norm() / (right - before[name]).norm())
        if not distance <= 1e-3:
            wrong.add(name)
    return wrong


@pytest.mark.parametrize("name", kinds_first(NAMES))
def test_a_step_is_adamw(name: str) -> None:
    assert not wrong_weights(trainer(SMALL, name))


def test_a_gradient_in_another_layout_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused kernel takes the numbers of a transposed gradient in the wrong order."""
    monkeypatch.setattr(step, "_match_layout", lambda parameter, piece: piece)
    for name, transposed in (("tape", "w1"), ("tape-heads", "wu")):
        assert wrong_weights(trainer(SMALL, name)) == {f"pe.layers.0.{transposed}"}


# ---- the schedule --------------------------------------------------------------------------


def test_the_schedule_of_the_recipe() -> None:
    schedule = small(steps=1000, warmup=0.1, cooldown=0.1).schedule()
    assert schedule == Schedule(1000, 100, 100) and schedule.cooldown_start == 900
    factors = [schedule.factor(step) for step in range(1000)]
    assert factors[:100] == pytest.approx([(step + 1) / 100 for step in range(100)])
    assert set(factors[100:900]) == {1.0}
    # The first step of the cool-down is the last at the full rate; none is at 0.
    assert factors[900:] == pytest.approx([left / 100 for left in range(100, 0, -1)])
    constant = small(steps=7, warmup=0.0, cooldown=0.0).schedule()
    assert {constant.factor(step) for step in range(7)} == {1.0}


def test_an_extension_keeps_the_warmup_and_moves_the_cooldown() -> None:
    first = small(steps=100, cooldown=0.1).schedule()
    extended = small(steps=400, cooldown=0.1).schedule(first_steps=100)
    assert extended.warmup_steps == first.warmup_steps == 10
    assert extended.cooldown_steps == 40 and extended.cooldown_start == 360
    before = range(first.cooldown_start)
    assert [first.factor(step) for step in before] == [extended.factor(step) for step in before]
    assert first.factor(95) < extended.factor(95) == 1
