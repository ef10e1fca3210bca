"""Training steps of each encoding beside rope's, and beside this machine's matrix products.

Only real tokens count, padding does not, and of FLOPs only those that a step needs
(`useful_training_flops`: the causal half of attention; logits and the last block's MLP for the
answer alone). Encodings take turns on the same problems, so that a machine that is busy slows all
alike.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import TURN, Options, Result, steps_of, time_trainings
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.build import raise_graph_limit
from tape_arith.models.decoder import useful_training_flops
from tape_arith.models.hardware import Hardware, datasheet, detect
from tape_arith.models.names.parse import Name, parse

MOST_TURNS, QUICK_TURNS = 67, 1
_FIRST_STEPS = 5
"""Steps in which blocks are compiled, for groups of all shapes."""


@dataclass
class Candidate:
    """An encoding with a training of its own, as a run makes it, of seed 0; `memory` in bytes."""

    name: Name
    trainer: Trainer
    memory: int | None = None

    @classmethod
    def of(cls, name: Name, config: Config, hardware: Hardware) -> "Candidate":
        decoder = decoder_for(config, Name(name.encoding), seed=0)
        return cls(name, Trainer(decoder, config.bucket(0), config, hardware))

    def train(self, step: int) -> None:
        """Take step number `step` by the code that trains."""
        self.trainer.step = step
        self.trainer.train_step()

    def tokens(self, step: int) -> int:
        """Count the real tokens of a step."""
        problems, _ = self.trainer.batches.problems(step)
        return int(problems.lengths.sum())

    def useful_flops(self, step: int) -> int:
        """Count the FLOPs that a step needs."""
        problems, _ = self.trainer.batches.problems(step)
        answers = int((problems.lengths - problems.prompt_lengths).sum())
        decoder = self.trainer.decoder
        lengths = (problems.lengths - 1).tolist()
        return useful_training_flops(decoder.config, decoder.pe, lengths, answers)

    def padding(self, steps: Iterable[int]) -> float:
        """Return the share of computed tokens in these steps that are padding."""
        real = computed = 0
        for step in steps:
            problems, keys = self.trainer.batches.problems(step)
            real += int((problems.lengths - 1).sum())
            computed += sum(rows.inputs.size for rows in self.trainer.groups(problems, keys))
        return 1 - real / computed


def measure(options: Options) -> Iterator[Result]:
    """Measure a step of each encoding for each of --lengths, the longest operand trained on."""
    hardware = detect(*options.compute)
    config = options.training_config(hardware)
    names = list(dict.fromkeys([parse("rope"), *options.names("rope", "fire", "tape")]))
    lengths = options.lengths or (config.trained_digits,)
    share = replace(options, seconds=options.seconds / len(lengths))
    for digits in lengths:
        tested = max(config.tested_digits, digits)
        sizes = config.with_settings({"trained_digits": digits, "tested_digits": tested})
        label = f", {digits} digits" if len(lengths) > 1 else ""
        yield from _compare(names, sizes, hardware, share, label)


def _compare(
    names: Sequence[Name], config: Config, hardware: Hardware, options: Options, label: str = ""
) -> Iterator[Result]:
    """Yield the lines of each of `names`, beside the first of them."""
    candidates = _prepare(names, config, hardware)
    turns = time_trainings(
        {each.name: each.train for each in candidates},
        most=QUICK_TURNS if options.quick else MOST_TURNS,
        seconds=0.6 * options.seconds,
    )
    limit = limits.product_limit(hardware, options.quick)
    first: dict[str, float | None] = {}
    for each in candidates:
        seconds, name = turns[each.name], f"{each.name}{label}"

        def per_second(count: Callable[[int], int], seconds: list[float] = seconds) -> list[float]:
            counts = [sum(map(count, steps_of(turn))) for turn in range(len(seconds))]
            return [n / time for n, time in zip(counts, seconds, strict=True)]

        decoder, padding = each.trainer.decoder, each.padding(range(TURN * len(seconds)))
        compiled = ", blocks compiled" if hardware.compiles else ""
        sizes = (
            f"{decoder.num_parameters():,} parameters, to {config.trained_digits} digits, batch "
            f"{config.batch_size}, {hardware.dtype_name}, {100 * padding:.0f} % padding"
        )
        attention = decoder.pe.layers[0].attention.name  # type: ignore[union-attr]
        lines = {
            "a step": (
                [time / TURN for time in seconds],
                "s",
                f"attention by {attention}{compiled}",
            ),
            "real tokens": (per_second(each.tokens), "tokens/s", sizes),
        }
        if each.memory is not None:
            lines["peak memory"] = ([each.memory], "B", "torch's tensors on the GPU")
        for quantity, (values, unit, note) in lines.items():
            line = Result.of("train", f"{name}: {quantity}", values, unit, note=note)
            beside = first.setdefault(quantity, line.value)
            yield replace(line, limit=beside, limit_name=f"{names[0]}{label}'s")
        useful = per_second(each.useful_flops)
        line = Result.of("train", f"{name}: useful FLOPs", useful, "FLOP/s")
        note = "by formula, on real tokens"
        yield replace(line, limit=limit.rate, limit_name=limit.name, note=note)
        if hardware.device == "cuda":
            yield _mfu(name, useful, hardware)


def _prepare(names: Sequence[Name], config: Config, hardware: Hardware) -> list[Candidate]:
    """Return trainings that have taken their first steps, in which blocks are compiled."""
    candidates = []
    for name in names:
        before = 0
        if hardware.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        candidates.append(Candidate.of(name, config, hardware))
        warm_up(candidates[-1].train, hardware)
        if hardware.device == "cuda":
            candidates[-1].memory = torch.cuda.max_memory_allocated() - before
    if hardware.compiles:
        # A decoder that is compiled takes the place of the one before, until there is room for all.
        raise_graph_limit(len(names), blocks=config.num_layers)
        for each in candidates:
            warm_up(each.train, hardware)
    return candidates


def warm_up(train: Callable[[int], object], hardware: Hardware) -> None:
    """Take the first steps of a training before the clock starts."""
    for step in range(_FIRST_STEPS if hardware.compiles else 1):
        train(step)


def _mfu(name: str, rates: Sequence[float], hardware: Hardware) -> Result:
    """Return useful FLOP/s beside the datasheet's; their ratio is the MFU."""
    peak = datasheet(hardware.name)
    if peak is None:
        reason = f"no datasheet of {hardware.name}"
        return Result("train", f"{name}: MFU", None, "FLOP/s", note=reason)
    line = Result.of("train", f"{name}: MFU", rates, "FLOP/s")
    return replace(line, limit=peak, limit_name=f"datasheet of {hardware.name}")
