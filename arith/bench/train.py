"""Compare training steps of each encoding with rope's and with this machine's matrix products.

Only real tokens count, no padding, and only the FLOPs that a step needs (`step_flops`:
the causal half of attention; logits and the last block's MLP for the answer alone). Encodings take
turns on the same problems, so that a busy machine slows them equally.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

import torch

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import TURN, Options, Result, rates, time_trainings
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.decoders.cost import step_flops
from tape_arith.arith.machine import datasheet
from tape_arith.arith.registry.names import Name, parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.compiling import raise_graph_limit
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.runner import Runner

_FIRST_STEPS = 5
"""Number of untimed steps in which blocks are compiled: enough for groups of all shapes."""


class Candidate:
    """An encoding with its own trainer, as a run with seed 0 makes it.

    `memory` is the peak memory of tensors on a GPU in the first steps, in bytes; 0 on a CPU.
    """

    def __init__(self, name: Name, config: Config, hardware: Hardware) -> None:
        on_gpu = hardware.device == "cuda"
        before = torch.cuda.memory_allocated() if on_gpu else 0
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self.name = name
        decoder = decoder_for(config, Name(name.encoding), seed=0)
        self.trainer = Trainer(Runner(decoder, hardware), config.bucket(0), config)
        warm_up([self.train], hardware)
        self.memory = torch.cuda.max_memory_allocated() - before if on_gpu else 0

    def train(self, step: int) -> None:
        """Take step number `step` as a run does."""
        self.trainer.step = step
        self.trainer.train_step()

    def tokens(self, step: int) -> int:
        """Count the real tokens of a step."""
        problems, _ = self.trainer.batches.problems(step)
        return int(problems.lengths.sum())

    def useful_flops(self, step: int) -> int:
        """Count the FLOPs that a step needs."""
        problems, _ = self.trainer.batches.problems(step)
        return step_flops(self.trainer.decoder, problems)

    def padding(self, steps: Iterable[int]) -> float:
        """Return the fraction of padding among all tokens computed in these steps."""
        real = computed = 0
        for step in steps:
            problems, keys = self.trainer.batches.problems(step)
            real += int((problems.lengths - 1).sum())
            computed += sum(rows.inputs.size for rows in self.trainer.groups(problems, keys))
        return 1 - real / computed


def measure(options: Options) -> Iterator[Result]:
    """Measure a step of each encoding for each of --lengths (digits of the longest operand)."""
    hardware = detect(*options.compute)
    config = options.config(hardware)
    names = list(dict.fromkeys([parse("rope"), *options.names("rope", "fire", "tape")]))
    lengths = options.lengths or (config.trained_digits,)
    for digits in lengths:
        tested = max(config.tested_digits, digits)
        sizes = config.with_settings({"trained_digits": digits, "tested_digits": tested})
        label = f", {digits} digits" if len(lengths) > 1 else ""
        # One encoding at a time in all forms, because each CUDA graph keeps its memory.
        forms = [(name, _forms(hardware)) for name in names if hardware.recorded]
        seconds = 0.6 * options.seconds / max(1, len(options.lengths)) / (1 + len(forms))
        usual = {f"{name}{label}": Candidate(name, sizes, hardware) for name in names}
        yield from _compare(usual, seconds, options.quick)
        del usual
        for name, ways in forms:
            yield from _compare(
                {f"{name}, {way}{label}": Candidate(name, sizes, ways[way]) for way in ways},
                seconds,
                options.quick,
            )


def _forms(hardware: Hardware) -> dict[str, Hardware]:
    """List the forms of a step, from the one with the most launches on."""
    blocks = replace(hardware, recorded=False)
    return {
        "not compiled": replace(blocks, compiled=False),
        "blocks compiled": blocks,
        "one CUDA graph": hardware,
    }


def _compare(candidates: dict[str, Candidate], seconds: float, quick: bool) -> Iterator[Result]:
    """Yield the results of each of `candidates`, compared with the first."""
    most = max(candidates.values(), key=lambda each: each.trainer.hardware.compiled).trainer
    hardware, config = most.hardware, most.config
    trainings = {name: each.train for name, each in candidates.items()}
    warm_up([*trainings.values()], hardware, blocks=config.num_layers)
    turns = time_trainings(trainings, seconds)
    limit = limits.product_limit(hardware, quick)
    peak = datasheet(hardware.name) if hardware.device == "cuda" else None
    first: dict[str, Result] = {}
    for name, each in candidates.items():
        times, trainer = turns[name], each.trainer
        form = f"attention by {trainer.hardware.attention}"
        form += (", blocks compiled" if trainer.hardware.compiled else "") + trainer.graph
        memory = f", peak memory {each.memory / 1e9:.2f} GB" if each.memory else ""
        sizes = (
            f"{trainer.decoder.num_parameters():,} parameters, to {config.trained_digits} digits, "
            f"batch {config.batch_size}, {hardware.dtype_name}, "
            f"{100 * each.padding(range(TURN * len(times))):.0f} % padding"
        )
        step = [time / TURN for time in times]
        for quantity, values, unit, note in (
            ("a step", step, "s", f"{form}{memory}"),
            ("real tokens", rates(each.tokens, times), "tokens/s", sizes),
        ):
            line = Result.of("train", f"{name}: {quantity}", values, unit, note=note)
            yield line.against(first.setdefault(quantity, line), f"{next(iter(candidates))}'s")
        useful = rates(each.useful_flops, times)
        note = "by formula, on real tokens"
        if peak is not None:
            share = 100 * median(useful) / peak
            note += f"; MFU {share:.1f} % of the datasheet of {hardware.name}"
        yield Result.of("train", f"{name}: useful FLOPs", useful, "FLOP/s", note=note).against(
            limit
        )


def warm_up(
    trainings: Sequence[Callable[[int], object]], hardware: Hardware, blocks: int = 0
) -> None:
    """Take the first steps of trainings, in which blocks are compiled, before the clock starts.

    torch drops the graphs of one decoder for the next, unless its limit allows all graphs.
    """
    if hardware.compiled and blocks:
        raise_graph_limit(len(trainings), blocks=blocks)
    for train in trainings:
        for step in range(_FIRST_STEPS if hardware.compiled else 1):
            train(step)
