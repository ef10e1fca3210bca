"""Training steps of each encoding beside rope's, and beside this machine's matrix products.

Only real tokens count, padding does not, and of FLOPs only what a step needs
(arith/training/flops.py: the causal half of attention; logits and the last block's MLP for the
answer alone). Encodings take a few steps each in turn, on the same problems, so that a machine that
is busy slows all alike.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from torch.profiler import ProfilerActivity, profile

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import (
    Measurement,
    Options,
    Timing,
    as_compiled,
    not_measured,
    once,
    steps_in_turn,
)
from tape_arith.arith.bench.memory import peak_memory
from tape_arith.arith.bench.sizes import training_config
from tape_arith.arith.runs.build import decoder_for, training_bucket
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.flops import useful_training_flops
from tape_arith.arith.training.schedule import Schedule
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.compile import raise_graph_limit
from tape_arith.models.encoding import PositionalLayer
from tape_arith.models.hardware import Hardware, datasheet, detect
from tape_arith.models.names.parse import Name, parse

STAGE = "train"
TAKES = frozenset({"encodings", "preset", "settings", "lengths", "attention", "compiled"})

TURNS, QUICK_TURNS = 67, 1
PROFILED_STEPS = 3

#: What a step's time is divided among, by the names of torch's operations and of a GPU's kernels;
#: the first that fits.
CLASSES = (
    ("optimizer", "adam|multi_tensor|_foreach|vector_norm"),
    (
        "attention kernels",
        # The kernels of `fused` are named so, and those that FlexAttention is compiled to.
        "scaled_dot_product|flash|fmha|flex_attention|_attention|triton_tem|"
        "^(forward|backward(_queries|_keys)?)_kernel$",
    ),
    (
        "matrix products",
        r"::(mm|bmm|addmm|baddbmm|addmv_?|mv|dot)$|gemm|nvjet|cutlass|xmma|cublas|mkldnn",
    ),
    ("softmax and loss", "softmax|nll_loss|cross_entropy"),
    ("norm", "norm|rsqrt"),
    ("activation", "gelu|sigmoid|silu|tanh|softplus|relu"),
    (
        "copies and casts",
        "copy|::to$|clone|::cat$|stack|index|gather|scatter|slice|select|[Mm]em(cpy|set)|zero|fill|"
        "empty|embedding|contiguous|unbind|split|chunk|expand|view|transpose|permute|reshape",
    ),
    ("elementwise", "^aten::|triton|elementwise|reduce"),
)

OTHER = "other"


@dataclass
class Contender:
    """An encoding with a training of its own, and the memory that its first steps took."""

    name: Name
    trainer: Trainer
    memory: tuple[int | None, int | None] = (None, None)

    def train(self, step: int) -> None:
        """Step number `step` of training, by the code that trains."""
        self.trainer.step = step
        self.trainer.train_step()

    def tokens(self, step: int) -> int:
        """Real tokens of step number `step`."""
        problems, _ = self.trainer.batch(step)
        return int(problems.lengths.sum())

    def useful_flops(self, step: int) -> int:
        """What step number `step` needs."""
        problems, _ = self.trainer.batch(step)
        answers = int((problems.lengths - problems.prompt_lengths).sum())
        decoder = self.trainer.decoder
        lengths = (problems.lengths - 1).tolist()
        return useful_training_flops(decoder.config, decoder.pe, lengths, answers)

    def padding(self, steps: Iterable[int]) -> float:
        """The share of what is computed in these steps that is no real token."""
        real = computed = 0
        for step in steps:
            problems, keys = self.trainer.batch(step)
            real += int((problems.lengths - 1).sum())
            computed += sum(rows.inputs.size for rows in self.trainer.groups(problems, keys))
        return 1 - real / computed


def measure(options: Options) -> Iterator[Measurement]:
    """For each of --lengths (the longest operand trained on, in digits), each encoding's step."""
    hardware = detect(options.compute)
    config = training_config(options, hardware)
    names = list(dict.fromkeys([parse("rope"), *options.names("rope", "fire", "tape")]))
    several = options.lengths or (config.trained_digits,)
    for digits in several:
        sizes = replace(
            config,
            trained_digits=digits,
            tested_digits=max(config.tested_digits, digits),
        )
        label = f", {digits} digits" if len(several) > 1 else ""
        share = replace(options, seconds=options.seconds / len(several))
        yield from compared(names, sizes, hardware, share, label)


def compared(
    names: Sequence[Name], config: Config, hardware: Hardware, options: Options, label: str = ""
) -> Iterator[Measurement]:
    """The lines of each of `names`, the first of which is what the others are compared with."""
    contenders = [contender(name, config, hardware) for name in names]
    compile_all(contenders, hardware)
    taken = steps_in_turn(
        {each.name: each.train for each in contenders},
        device=hardware.device,
        turns=QUICK_TURNS if options.quick else TURNS,
        seconds=0.6 * options.seconds,
    )
    first = contenders[0]
    reference = Timing.of(taken[first.name])
    for each in contenders:
        yield from lines(each, taken[each.name], config, hardware, options, label)
        timing = Timing.of(taken[each.name])
        yield Measurement(
            STAGE,
            f"{each.name}{label}: a step",
            timing.median,
            "s",
            reference.median,
            f"{first.name}'s step",
            f"attention by {attention_of(each.trainer)}" + as_compiled(hardware),
            timing.spread,
            timing.repeats,
        )


def warm_up(train: Callable[[int], object], hardware: Hardware) -> None:
    """Take the first steps of a training before the clock starts: blocks are compiled in them."""
    for step in range(5 if hardware.compiles else 1):
        train(step)


def compile_all(contenders: Collection[Contender], hardware: Hardware) -> None:
    """Where they are compiled, compile them all, so that none has lost its graphs to another: who
    is compiled takes the place of those before."""
    if not hardware.compiles:
        return
    layers = max(each.trainer.config.num_layers for each in contenders)
    raise_graph_limit(len(contenders), blocks=layers)
    for each in contenders:
        warm_up(each.train, hardware)


def contender(name: Name, config: Config, hardware: Hardware) -> Contender:
    """A training that has taken its first steps, and the memory that it took."""
    with peak_memory(hardware.device) as peak:
        each = Contender(name, trainer_for(name, config, hardware))
        warm_up(each.train, hardware)
    each.memory = peak.before, peak.bytes
    return each


def trainer_for(name: Name, config: Config, hardware: Hardware) -> Trainer:
    """A training as a run makes it, of seed 0, on problems that are made as needed."""
    decoder = decoder_for(config, Name(name.encoding), seed=0)
    bucket = training_bucket(config, seed=0)
    schedule = Schedule.of(config.steps, config.steps, config.warmup, config.cooldown)
    return Trainer(decoder, bucket, bucket, config, schedule, hardware)


def lines(
    each: Contender,
    seconds: Sequence[float],
    config: Config,
    hardware: Hardware,
    options: Options,
    label: str,
) -> Iterator[Measurement]:
    """Tokens and FLOPs a second, padding, memory, and where the time goes."""
    tokens = [each.tokens(step) / time for step, time in enumerate(seconds)]
    flops = [each.useful_flops(step) / time for step, time in enumerate(seconds)]
    name = f"{each.name}{label}"
    rate = Timing.of(tokens)
    sizes = (
        f"{each.trainer.decoder.num_parameters():,} parameters, to {config.trained_digits} digits, "
        f"batch {config.batch_size}, {hardware.dtype_name}"
    )
    yield Measurement(
        STAGE,
        f"{name}: real tokens",
        rate.median,
        "tokens/s",
        note=sizes,
        spread=rate.spread,
        repeats=rate.repeats,
    )
    rate, limit = Timing.of(flops), limits.product_limit(hardware, options.quick)
    yield Measurement(
        STAGE,
        f"{name}: useful FLOPs",
        rate.median,
        "FLOP/s",
        limit.rate,
        limit.name,
        "by formula, on real tokens",
        rate.spread,
        rate.repeats,
    )
    if hardware.device == "cuda":
        yield mfu(name, rate, hardware)
    yield Measurement(STAGE, f"{name}: padding", 100 * each.padding(range(len(seconds))), "%")
    yield memory_line(name, each, hardware)
    yield where_it_goes(name, each, hardware, 1 if options.quick else PROFILED_STEPS)


def mfu(name: str, flops: Timing, hardware: Hardware) -> Measurement:
    """Useful FLOP/s beside the datasheet's; their ratio is the MFU."""
    rate = datasheet(hardware.name)
    if rate is None:
        return not_measured(STAGE, f"{name}: MFU", "FLOP/s", f"no datasheet of {hardware.name}")
    return Measurement(
        STAGE, f"{name}: MFU", flops.median, "FLOP/s", rate, f"datasheet of {hardware.name}"
    )


def memory_line(name: str, each: Contender, hardware: Hardware) -> Measurement:
    """What the first steps took: on a GPU, tensors alone; elsewhere, the whole process."""
    before, most = each.memory
    what = f"{name}: peak memory"
    if before is None or most is None:
        return not_measured(STAGE, what, "B", "the system does not tell")
    if hardware.device == "cuda":
        return Measurement(STAGE, what, float(most - before), "B", note="torch's tensors")
    return Measurement(
        STAGE, what, float(most), "B", note=f"the whole process, {before / 1e6:,.0f} MB before"
    )


def where_it_goes(name: str, each: Contender, hardware: Hardware, steps: int) -> Measurement:
    """The share of matrix products in a step on one thread, or on the GPU; the rest in the note.

    By torch's profiler, which slows a step by a little: what is no operation of torch (Python,
    waiting, the profiler itself) is "other".
    """
    what = f"{name}: matrix products' share"
    if hardware.compiles and hardware.device == "cpu":
        return not_measured(STAGE, what, "%", "products of a compiled block pass the profiler by")
    shares = profiled(each.trainer, hardware, steps)
    products = shares.pop("matrix products", 0.0)
    rest = sorted(shares.items(), key=lambda item: -item[1])
    on = "the GPU" if hardware.device == "cuda" else "1 thread"
    return Measurement(
        STAGE,
        what,
        100 * products,
        "%",
        note=f"of {steps} steps on {on}; "
        + ", ".join(f"{what} {100 * share:.0f} %" for what, share in rest if share >= 0.005),
    )


def profiled(trainer: Trainer, hardware: Hardware, steps: int) -> dict[str, float]:
    """The share of each of CLASSES in the time of `steps` steps, with "data" and "other"; 0..1."""
    before, on_gpu = trainer.hardware, hardware.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    trainer.hardware = replace(hardware, threads=1)

    def make_batches() -> None:
        for step in range(trainer.step, trainer.step + steps):
            for _ in trainer.groups(*trainer.batch(step)):
                pass

    def train() -> None:
        for _ in range(steps):
            trainer.train_step()

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it writes to stderr otherwise
    try:
        data = once(make_batches)
        # There is one cycle; told to keep no events of others, torch 2.11 warns of losing them.
        with profile(activities=activities, acc_events=True) as profiler:
            whole = once(train, hardware.device)
    finally:
        trainer.hardware = before
    shares: dict[str, float] = {}
    for event in profiler.key_averages():
        if on_gpu != (event.device_type.name == "CUDA"):
            continue
        micro = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        shares[class_of(event.key)] = shares.get(class_of(event.key), 0.0) + 1e-6 * micro / whole
    if not on_gpu:  # there the next batch is made while the GPU computes
        shares["data"] = data / whole
    others = 1 - sum(share for name, share in shares.items() if name != OTHER)
    return {**shares, OTHER: max(0.0, others)}


def class_of(operation: str) -> str:
    """Which of CLASSES an operation of torch, or a kernel, belongs to.

    >>> class_of("aten::bmm"), class_of("aten::_softmax_backward_data"), class_of("aten::mul")
    ('matrix products', 'softmax and loss', 'elementwise')
    """
    return next((name for name, pattern in CLASSES if re.search(pattern, operation)), OTHER)


def attention_of(trainer: Trainer) -> str:
    """The backend that computes attention."""
    layer = cast(PositionalLayer, trainer.decoder.pe.layers[0])
    return layer.attention.name
