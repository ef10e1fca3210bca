"""Count what an encoding and a training cost, and choose the preset that suits this machine."""

from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import torch

from tape_arith.arith.compare.labels import display_names
from tape_arith.arith.data.rows import prepend_bos
from tape_arith.arith.decoders.build import blueprint, user_errors
from tape_arith.arith.errors import Failure
from tape_arith.arith.grids.facts import About
from tape_arith.arith.registry.names import Name, declared_kinds, parse, told_tested_length
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.terminal import say
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import Workload
from tape_arith.models.flops import useful_training_flops
from tape_arith.models.hardware import detect
from tape_arith.models.other_model import OtherModel

SAMPLE = 4_096
"""Number of problems whose mean length is that of a whole training within half a percent."""


@dataclass(frozen=True)
class Cost:
    """Parameters of an encoding, and FLOPs that it adds per token of a forward pass.

    FLOPs are those of matrix products, over the longest training sequence. Of a model, parameters
    are all that it has, and its FLOPs are not known.
    """

    parameters: int
    flops_a_token: float | None


def cost(name: Name, config: Config | None = None) -> Cost:
    """Return the cost of an encoding at the size of `config`, by default that of paper-40.

    Raises Failure if a user's code fails.
    """
    config = config or load_preset("paper-40")
    decoder = blueprint(config, name)
    pe = decoder.pe
    if isinstance(decoder, OtherModel):
        return Cost(decoder.num_parameters(), None)
    tokens = config.bucket(0).longest + config.leading_bos
    extent = Workload(tokens=tokens, pairs=tokens**2, distances=tokens**2)
    with user_errors(name.encoding):
        flops = sum(product.forward for product in pe.products(extent))
    return Cost(sum(p.numel() for p in pe.parameters()), flops / tokens)


def about(name: Name, config: Config) -> About:
    """Describe a trained encoding for its record; without costs if its code cannot count them."""
    name = Name(name.encoding)
    papers = [location.declaration().paper for location in name.locations()]
    facts = About(
        label=display_names([str(name)])[str(name)],
        kinds=list(filter(None, declared_kinds(name.encoding))),
        papers=list(dict.fromkeys(filter(None, papers))),
        told_tested_length=told_tested_length(name.encoding),
    )
    try:
        size = cost(name, config)
        known = size.flops_a_token is not None
        training = training_flops_a_token(name, config) if known else None
    except Failure as error:
        say(f"note: {error}: its parameters and FLOPs are not recorded")
        return facts
    return replace(facts, **asdict(size), training_flops_a_token=training)


def _first_problems(config: Config) -> Problems:
    """Return the first SAMPLE training problems of seed 0, with their leading [BOS]."""
    bucket = config.bucket(0)
    return prepend_bos(bucket.problems(0, SAMPLE), bucket.keys(0, SAMPLE), config.leading_bos)


@lru_cache(maxsize=64)
def training_tokens(config: Config) -> int:
    """Estimate the input tokens of a training from the mean length of its first problems."""
    lengths = _first_problems(config).lengths - 1
    return round(float(lengths.mean()) * config.batch_size * config.steps)


def training_flops(config: Config, name: Name | None = None) -> float:
    """Estimate the useful FLOPs of a training; None: of nope, since no encoding adds much."""
    return training_flops_a_token(name or parse("nope"), config) * training_tokens(config)


@lru_cache(maxsize=256)
def training_flops_a_token(name: Name, config: Config) -> float:
    """Return the useful training FLOPs per input token, averaged over the first problems.

    Those of a model are not known: for it they are those of a plain decoder, as an estimate.
    """
    decoder = blueprint(config, name)
    problems = _first_problems(config)
    with user_errors(name.encoding):
        flops = step_flops(decoder, problems)
    return flops / int((problems.lengths - 1).sum())


def step_flops(decoder: Decoder, problems: Problems) -> int:
    """Count the useful FLOPs of a training step on `problems`."""
    lengths = (problems.lengths - 1).tolist()
    answers = int((problems.lengths - problems.prompt_lengths).sum())
    return useful_training_flops(decoder.config, decoder.pe, lengths, answers)


@lru_cache(maxsize=64)
def grid_tokens(config: Config, split: str) -> int:
    """Count the tokens of all problems of a grid, extrapolated from its first block."""
    bucket = config.evaluation_bucket(split)
    block = bucket.problems(0, bucket.num_cells)
    return int(block.lengths.sum()) * config.problems_per_cell


_EFFICIENCY = 0.5
"""Upper bound of the training speed as a fraction of the speed of plain matrix products."""


def default_preset() -> tuple[str, str]:
    """Return the preset that suits this machine, and a line that says why.

    The training time on a CPU is estimated from the speed of plain matrix products.
    """
    from torch.utils.benchmark import Timer

    hardware, size = detect(), 1024
    if hardware.device == "cuda":
        return "paper-40", f"preset paper-40: there is a GPU ({hardware.name})"
    timer = Timer("a @ a", globals={"a": torch.ones(size, size, dtype=hardware.dtype)})
    rate = 2.0 * size**3 / timer.blocked_autorange(min_run_time=0.2).median * hardware.threads
    days = training_flops(load_preset("paper-40")) / (_EFFICIENCY * rate) / 86_400
    return "mini", (
        f"preset mini: there is no GPU, and paper-40 would take at least {days:.1f} days of "
        "training here (--preset chooses)"
    )
