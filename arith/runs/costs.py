"""Parameters and FLOPs that an encoding adds, computed from its code."""

from dataclasses import dataclass
from functools import lru_cache

from tape_arith.arith.runs.build import blueprint, training_bucket
from tape_arith.arith.runs.presets import load_preset
from tape_arith.arith.runs.user_encodings import user_errors
from tape_arith.arith.tasks.task import load_task
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.flops import useful_training_flops
from tape_arith.models.encoding import Workload
from tape_arith.models.names.parse import Name

PRESET = "paper-40"
SAMPLE = 4_096
"""Problems whose lengths give the mean tokens of a training within half a percent."""


@dataclass(frozen=True)
class Cost:
    """Parameters of an encoding, and FLOPs per token of the matrix products that it adds to a
    forward over the longest trained sequence."""

    parameters: int
    flops_a_token: float


def cost(name: Name, config: Config | None = None) -> Cost:
    """The cost at the size of `config` or the paper's. Raises Failure if a user's code fails."""
    config = config or load_preset(PRESET)
    pe = blueprint(config, name).pe
    tokens = load_task(config.task).longest(config.trained_digits)
    extent = Workload(tokens=tokens, pairs=tokens**2, distances=tokens**2)
    with user_errors(name.encoding):
        flops = sum(product.forward for product in pe.products(extent))
    return Cost(sum(p.numel() for p in pe.parameters()), flops / tokens)


@lru_cache(maxsize=256)
def training_flops_a_token(name: Name, config: Config) -> float:
    """Return the useful FLOPs of training per input token, over the first problems of seed 0."""
    decoder = blueprint(config, name).decoder
    problems = training_bucket(config, 0).problems(0, SAMPLE)
    lengths = (problems.lengths - 1).tolist()
    answers = int((problems.lengths - problems.prompt_lengths).sum())
    with user_errors(name.encoding):
        flops = useful_training_flops(decoder.config, decoder.pe, lengths, answers)
    return flops / sum(lengths)
