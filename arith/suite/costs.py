"""What an encoding costs at a given size: computed from what it is, never typed in."""

from dataclasses import dataclass

import torch

from arith.data.task import load_task
from arith.suite.building import decoder_for
from arith.suite.presets import load_preset
from arith.training.config import Config
from models.catalog import parse
from models.products import Extent

PRESET = "paper-40"


@dataclass(frozen=True)
class Cost:
    """Of an encoding at one size: parameters of its own, and FLOPs a token of the matrix products
    that it adds to a forward over the longest trained sequence."""

    parameters: int
    flops_a_token: float


def cost(name: str, config: Config | None = None) -> Cost:
    """At the size of `config`, or else the paper's. Built without memory for its weights. Errors:
    UsageError for an unknown name."""
    config = config or load_preset(PRESET)
    with torch.device("meta"):
        pe = decoder_for(config, parse(name), seed=0).pe
    tokens = load_task(config.task).longest(config.trained_digits)
    extent = Extent(tokens=tokens, pairs=tokens**2, distances=tokens**2)
    flops = sum(product.forward for product in pe.products(extent))
    return Cost(sum(p.numel() for p in pe.parameters()), flops / tokens)
