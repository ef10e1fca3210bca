"""Training steps of each encoding beside rope's, and beside this machine's matrix products.

Only real tokens count, padding does not, and of FLOPs only those that a step needs
(arith/training/flops.py: the causal half of attention; logits and the last block's MLP for the
answer alone). Encodings take turns on the same problems, so that a machine that is busy slows all
alike.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import (
    TURN,
    Options,
    Result,
    describe_compiled,
    steps_of,
    time_trainings,
)
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.runs.datasets import training_bucket
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.build import raise_graph_limit
from tape_arith.models.decoder import useful_training_flops
from tape_arith.models.encoding import PositionalLayer
from tape_arith.models.hardware import Hardware, datasheet, detect
from tape_arith.models.names.parse import Name, parse

STAGE = "train"
OPTIONS = frozenset({"encodings", "preset", "settings", "lengths", "attention", "compiled"})

MOST_TURNS, QUICK_TURNS = 67, 1
_FIRST_STEPS = 5
"""Steps in which blocks are compiled, for groups of all shapes."""


@dataclass
class Candidate:
    """An encoding with a training of its own; `memory` in bytes on a GPU."""

    name: Name
    trainer: Trainer
    memory: int | None = None

    def train(self, step: int) -> None:
        """Take step number `step` by the code that trains."""
        self.trainer.step = step
        self.trainer.train_step()

    def tokens(self, step: int) -> int:
        """Real tokens of a step."""
        problems, _ = self.trainer.batches.problems(step)
        return int(problems.lengths.sum())

    def useful_flops(self, step: int) -> int:
        """FLOPs that a step needs."""
        problems, _ = self.trainer.batches.problems(step)
        answers = int((problems.lengths - problems.prompt_lengths).sum())
        decoder = self.trainer.decoder
        lengths = (problems.lengths - 1).tolist()
        return useful_training_flops(decoder.config, decoder.pe, lengths, answers)

    def padding(self, steps: Iterable[int]) -> float:
        """The share of computed tokens in these steps that are padding."""
        real = computed = 0
        for step in steps:
            problems, keys = self.trainer.batches.problems(step)
            real += int((problems.lengths - 1).sum())
            computed += sum(rows.inputs.size for rows in self.trainer.groups(problems, keys))
        return 1 - real / computed

    @property
    def attention(self) -> str:
        """The backend that computes attention."""
        layer = cast(PositionalLayer, self.trainer.decoder.pe.layers[0])
        return layer.attention.name


def measure(options: Options) -> Iterator[Result]:
    """For each of --lengths (the longest operand trained on, in digits), each encoding's step."""
    hardware = detect(*options.compute)
    config = options.training_config(hardware)
    names = list(dict.fromkeys([parse("rope"), *options.names("rope", "fire", "tape")]))
    lengths = options.lengths or (config.trained_digits,)
    share = replace(options, seconds=options.seconds / len(lengths))
    for digits in lengths:
        tested = max(config.tested_digits, digits)
        sizes = replace(config, trained_digits=digits, tested_digits=tested)
        label = f", {digits} digits" if len(lengths) > 1 else ""
        yield from compare(names, sizes, hardware, share, label)


def compare(
    names: Sequence[Name], config: Config, hardware: Hardware, options: Options, label: str = ""
) -> Iterator[Result]:
    """The lines of each of `names`, beside the first of them."""
    candidates = prepare_candidates(names, config, hardware)
    taken = time_trainings(
        {each.name: each.train for each in candidates},
        most=QUICK_TURNS if options.quick else MOST_TURNS,
        seconds=0.6 * options.seconds,
    )
    first = f"{names[0]}{label}"
    limit = limits.product_limit(hardware, options.quick)
    peers: dict[str, float | None] = {}
    for each in candidates:
        seconds, name = taken[each.name], f"{each.name}{label}"
        tokens = [sum(map(each.tokens, steps_of(turn))) for turn in range(len(seconds))]
        flops = [sum(map(each.useful_flops, steps_of(turn))) for turn in range(len(seconds))]
        padding = each.padding(range(TURN * len(seconds)))
        rates = [count / time for count, time in zip(tokens, seconds, strict=True)]
        useful = [count / time for count, time in zip(flops, seconds, strict=True)]

        def beside_first(
            what: str, values: Sequence[float], unit: str, note: str, name: str = name
        ) -> Result:
            line = Result.of(STAGE, f"{name}: {what}", values, unit, note=note)
            limit = peers.setdefault(what, line.value)
            return replace(line, limit=limit, limit_name=f"{first}'s")

        yield beside_first(
            "a step",
            [time / TURN for time in seconds],
            "s",
            f"attention by {each.attention}{describe_compiled(hardware)}",
        )
        yield beside_first("real tokens", rates, "tokens/s", _describe(each, padding))
        if each.memory is not None:
            yield beside_first("peak memory", [each.memory], "B", "torch's tensors on the GPU")
        yield Result.of(
            STAGE,
            f"{name}: useful FLOPs",
            useful,
            "FLOP/s",
            limit=limit.rate,
            limit_name=limit.name,
            note="by formula, on real tokens",
        )
        if hardware.device == "cuda":
            yield mfu(name, useful, hardware)


def prepare_candidates(
    names: Sequence[Name], config: Config, hardware: Hardware
) -> list[Candidate]:
    """Trainings that have taken their first steps, in which blocks are compiled."""
    candidates = [_prepare(name, config, hardware) for name in names]
    if hardware.compiles:
        # A decoder that is compiled takes the place of the one before, until there is room for all.
        raise_graph_limit(len(names), blocks=config.num_layers)
        for each in candidates:
            warm_up(each.train, hardware)
    return candidates


def _prepare(name: Name, config: Config, hardware: Hardware) -> Candidate:
    on_gpu, before = hardware.device == "cuda", 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    candidate = Candidate(name, trainer_for(name, config, hardware))
    warm_up(candidate.train, hardware)
    if on_gpu:
        candidate.memory = torch.cuda.max_memory_allocated() - before
    return candidate


def warm_up(train: Callable[[int], object], hardware: Hardware) -> None:
    """Take the first steps of a training before the clock starts."""
    for step in range(_FIRST_STEPS if hardware.compiles else 1):
        train(step)


def trainer_for(name: Name, config: Config, hardware: Hardware) -> Trainer:
    """A training as a run makes it, of seed 0, on problems that are made as needed."""
    decoder = decoder_for(config, Name(name.encoding), seed=0)
    bucket = training_bucket(config, seed=0)
    return Trainer(decoder, bucket, config, hardware)


def _describe(candidate: Candidate, padding: float) -> str:
    config, decoder = candidate.trainer.config, candidate.trainer.decoder
    return (
        f"{decoder.num_parameters():,} parameters, to {config.trained_digits} digits, batch "
        f"{config.batch_size}, {candidate.trainer.hardware.dtype_name}, "
        f"{100 * padding:.0f} % padding"
    )


def mfu(name: str, rates: Sequence[float], hardware: Hardware) -> Result:
    """Useful FLOP/s beside the datasheet's; their ratio is the MFU."""
    peak, what = datasheet(hardware.name), f"{name}: MFU"
    if peak is None:
        return Result.missing(STAGE, what, "FLOP/s", f"no datasheet of {hardware.name}")
    datasheet_name = f"datasheet of {hardware.name}"
    return Result.of(STAGE, what, rates, "FLOP/s", limit=peak, limit_name=datasheet_name)
