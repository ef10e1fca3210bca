"""Check that the gradients of an encoding are right, and that every parameter has one."""

from math import isfinite

import torch
from torch import Tensor

from tape_arith.arith.contracts.examples import TRAINED_LENGTH, decoder_for, example_batch
from tape_arith.arith.registry.names import Name

# The step of finite differences, and their relative error beside a gradient in float64.
_STEP, GRADIENT_TOLERANCE = 1e-7, 1e-5


def check_no_dead_parameter(name: Name | str) -> None:
    """Every parameter moves the logits, except those that the encoding calls inert.

    Usually: a module of __init__ whose result is thrown away; a detach() or item() on the way; an
    update in the last layer, which is never read. `inert` names parameters without effect that the
    paper's formula has.
    """
    # Beyond the trained length, to reach parameters that act only on long distances; in training,
    # because that is where they are learned.
    decoder = decoder_for(name).train()
    logits = decoder(example_batch(2 * TRAINED_LENGTH))
    generator = torch.Generator().manual_seed(3)
    target = torch.randn(logits.shape, generator=generator, dtype=logits.dtype)
    (logits * target).sum().backward()
    for path, parameter in decoder.named_parameters():
        largest = 0.0 if parameter.grad is None else float(parameter.grad.abs().max())
        assert isfinite(largest), f"{path} gets a gradient that is not finite"
        inert = path.startswith("pe.") and path.endswith(decoder.pe.inert)
        assert largest > 1e-9 or inert, f"{path} gets no gradient"


def check_gradient(name: Name | str) -> None:
    """Gradients are those of the logits: of finite differences of all parameters together.

    Usually: a detach(), item() or no_grad() on one of several ways; a backward of its own with a
    slip.
    """
    decoder, seqs = decoder_for(name).train(), example_batch(2 * TRAINED_LENGTH)
    generator = torch.Generator().manual_seed(4)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=like.dtype)

    logits = decoder(seqs)
    target, parameters = noise(logits), [*decoder.parameters()]
    (logits * target).sum().backward()
    direction = [noise(parameter) for parameter in parameters]
    rise = sum(
        float((parameter.grad * step).sum())
        for parameter, step in zip(parameters, direction, strict=True)
        if parameter.grad is not None
    )

    def moved(by: float) -> float:
        with torch.no_grad():
            for parameter, step in zip(parameters, direction, strict=True):
                parameter.add_(by * step)
            return float((decoder(seqs) * target).sum())

    # From one step ahead to one step behind.
    difference = (moved(_STEP) - moved(-2 * _STEP)) / (2 * _STEP)
    error = abs(rise - difference) / abs(difference)
    assert error <= GRADIENT_TOLERANCE, (
        f"the logits change by {difference:.8g} where their gradient says {rise:.8g}"
    )
