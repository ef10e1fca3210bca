"""Every backend of attention, for what each encoding needs of it, forward and backward.

Rows are full: T tokens each, no padding. FLOPs are the useful ones, the keys up to each query, so
that a backend that computes the whole square and throws half away is seen to do so. On a CPU one
thread computes, as each does in training.

Legend: B batch, T tokens, H heads, K head dim.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import Measurement, Options, interleaved, not_measured
from tape_arith.arith.bench.sizes import training_config
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.build import blueprint
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.flops import causal
from tape_arith.models import backends
from tape_arith.models.backends.backend import Backend, Needs
from tape_arith.models.flops import MatMul
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.backends import backend_names
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import Name, parse
from tape_arith.models.sequences import Sequences

STAGE = "attention"
TAKES = frozenset({"encodings", "preset", "settings", "lengths", "attention"})

#: Tokens of the longest rows in training and test of the presets.
LENGTHS = {"cpu": (28, 64, 124), "cuda": (64, 124, 244)}
QUICK_LENGTHS = (8,)
#: B x T, about: a group of a batch.
TOKENS = {"cpu": 4_096, "cuda": 32_768}
QUICK_TOKENS = 24
REPEATS, QUICK_REPEATS = 50, 2
#: Seconds that one measured stretch takes: on a GPU several steps, for to launch a short one and to
#: wait for it takes as long as the step.
AT_LEAST = {"cpu": 0.0, "cuda": 0.02}
EAGER = "eager"
INTERPRETER = "TRITON_INTERPRET"


def measure(options: Options) -> Iterator[Measurement]:
    """For each need and each of --lengths (in tokens), each backend's time and FLOP/s."""
    hardware = replace(detect(), threads=1)
    config = training_config(options, hardware)
    lengths = options.lengths or (QUICK_LENGTHS if options.quick else LENGTHS[hardware.device])
    groups = grouped(options.names(), config)
    share = replace(options, seconds=options.seconds / (len(groups) * len(lengths)))
    for needs, who in groups.items():
        if needs.bias == "scores":
            yield not_measured(STAGE, who, "s", "attention of their own: see `bench train`")
            continue
        able: list[str] = []
        for name in wanted(options.attention):
            reason = lacking(backends.load(name), needs, hardware)
            if reason is None:
                able.append(name)
            else:
                yield not_measured(STAGE, f"{who}: {name}", "s", f"{name} {reason}")
        for length in lengths:
            yield from compared(able, needs, who, length, config, hardware, share)


def grouped(encodings: Sequence[Name], config: Config) -> dict[Needs, str]:
    """What attention must do, and which encodings ask for just that; no encodings: all."""
    chosen = encodings or [parse(name) for name in known_names("encoding")]
    found: dict[Needs, list[str]] = {}
    for name in chosen:
        needs = blueprint(config, name).pe.needs
        found.setdefault(needs, []).append(str(name))
    return {needs: named(who) for needs, who in found.items()}


def named(who: Sequence[str]) -> str:
    """Names for a line that has to stay short.

    >>> named(["rope"]), named(["nope", "p-rope", "rope", "xpos"])
    ('rope', 'nope, p-rope and 2 more')
    """
    few, rest = who[:2], len(who) - 2
    return "/".join(who) if rest < 1 else f"{', '.join(few)} and {rest} more"


def compared(
    able: Sequence[str],
    needs: Needs,
    who: str,
    length: int,
    config: Config,
    hardware: Hardware,
    options: Options,
) -> Iterator[Measurement]:
    """All backends that are `able` in turns, on the same numbers; what they take is held against
    eager's."""
    label = f"{who}, {length} tokens"
    tokens = QUICK_TOKENS if options.quick else TOKENS[hardware.device]
    rows = max(1, tokens // length)
    steps: dict[str, Callable[[], object]] = {}
    for name in able:
        try:
            steps[name] = step_of(backends.load(name), needs, rows, length, config, hardware)
        except (UsageError, NotImplementedError, RuntimeError) as error:
            # A kernel may refuse a length, or find no room for it.
            yield not_measured(STAGE, f"{label}: {name}", "s", " ".join(str(error).split()))
    times = interleaved(
        steps,
        device=hardware.device,
        repeats=QUICK_REPEATS if options.quick else REPEATS,
        seconds=options.seconds,
        at_least=AT_LEAST[hardware.device],
    )
    flops = useful_flops(needs, rows, length, config)
    limit = limits.product_limit(hardware, options.quick)
    shape = f"{rows} rows, {config.num_heads} heads of {config.head_dim}, {hardware.dtype_name}"
    for name, timing in times.items():
        yield Measurement(
            STAGE,
            f"{label}: {name}",
            timing.median,
            "s",
            times[EAGER].median if EAGER in times else None,
            EAGER if EAGER in times else None,
            f"forward and backward; {asked(needs)}; {shape}",
            timing.spread,
            timing.repeats,
        )
        rate, spread = timing.rate(flops)
        yield Measurement(
            STAGE,
            f"{label}: {name}, useful FLOPs",
            rate,
            "FLOP/s",
            limit.rate,
            limit.name,
            spread=spread,
            repeats=timing.repeats,
        )


def wanted(request: str) -> list[str]:
    """Eager first, then the backend asked for, or all. Errors: UsageError for an unknown one."""
    if request != "auto":
        backends.load(request)
    others = backend_names() if request == "auto" else [request]
    return list(dict.fromkeys([EAGER, *others]))


def lacking(backend: Backend, needs: Needs, hardware: Hardware) -> str | None:
    """Why `backend` cannot be measured, as the end of a sentence; None where it can. What only
    Triton's interpreter could run is not: its time says nothing of a kernel."""
    interpreting = os.environ.pop(INTERPRETER, None)
    try:
        return backend.why_unsupported(needs, hardware)
    finally:
        if interpreting is not None:
            os.environ[INTERPRETER] = interpreting


def asked(needs: Needs) -> str:
    """What attention must do, in words.

    >>> asked(Needs()), asked(Needs(values=3)), asked(Needs(bias="learned"))
    ('v', 'v and 2 more', 'v, learned bias')
    """
    more = f" and {needs.values - 1} more" if needs.values > 1 else ""
    return f"v{more}" + ("" if needs.bias == "none" else f", {needs.bias} bias")


def step_of(
    backend: Backend, needs: Needs, rows: int, length: int, config: Config, hardware: Hardware
) -> Callable[[], object]:
    """Forward and backward of `backend` on rows of `length` tokens; called once already, so that
    what it refuses or compiles is behind it. Errors: what the backend raises.

    q, k and v come in the type of the products, as in a model; what an encoding gathers along
    with v, and its bias, in float32.
    """
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, generator=generator).to(hardware.device, dtype)

    heads = (rows, length, config.num_heads, config.head_dim)
    wide = (*heads[:3], needs.query * config.head_dim)
    q, k, v = (random(*shape, dtype=hardware.dtype) for shape in (wide, wide, heads))
    values = (v, *(random(*heads) for _ in range(needs.values - 1)))
    bias = None if needs.bias == "none" else random(1, config.num_heads, length, length)
    learned = [bias] if bias is not None and needs.bias == "learned" else []
    leaves = [tensor.requires_grad_() for tensor in (q, k, *values, *learned)]
    count = torch.arange(rows, device=hardware.device)
    tokens = torch.zeros(rows, length, dtype=torch.int64, device=hardware.device)
    seqs = Sequences(tokens, torch.full_like(count, length), count)

    def forward() -> tuple[Tensor, ...]:
        with hardware.autocast():
            return backend(q, k, values, seqs, bias=bias)

    gradients = [torch.ones_like(heads) for heads in forward()]

    def step() -> object:
        return torch.autograd.grad(forward(), leaves, gradients)

    step()
    return step


def useful_flops(needs: Needs, rows: int, length: int, config: Config) -> int:
    """FLOPs of forward and backward: the scores and each value, over the keys up to each query."""
    width = config.num_heads * config.head_dim
    product = MatMul(causal([length] * rows).pairs * width)
    return (needs.query + needs.values) * product.training
