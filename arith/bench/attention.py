"""Each backend of attention, for what each encoding needs of it, forward and backward.

Rows are full: T tokens each, no padding. FLOPs are the useful ones, the keys up to each query, so
that a backend that computes the whole square and throws half away shows it. On a CPU one thread
computes, as each does in training.

Legend: B batch, T tokens, H heads, K head dim.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import Options, Result, time_interleaved
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.build import blueprint
from tape_arith.arith.training.config import Config
from tape_arith.models import backends
from tape_arith.models.attention import Backend, Needs
from tape_arith.models.decoder import causal
from tape_arith.models.encoding import MatMul
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import Name, parse
from tape_arith.models.sequences import Sequences

#: Tokens of the longest rows in training and test of the presets.
_LENGTHS = {"cpu": (28, 64, 124), "cuda": (64, 124, 244)}
_QUICK_LENGTHS = (8,)
#: B x T, about: a group of a batch.
_TOKENS = {"cpu": 4_096, "cuda": 32_768}
_QUICK_TOKENS = 24
_ROUNDS, _QUICK_ROUNDS = 50, 3
_FILL, _QUICK_FILL = 0.02, 1e-9
"""Seconds of each backend in a round: on a GPU several steps, for a short one takes less time than
to wait for it."""
_EAGER = "eager"


def measure(options: Options) -> Iterator[Result]:
    """Measure each backend for each need and each of --lengths, in tokens."""
    hardware = replace(detect(), threads=1)
    config = options.training_config(hardware)
    lengths = options.lengths or (_QUICK_LENGTHS if options.quick else _LENGTHS[hardware.device])
    groups = _group_by_needs(options.names(), config)
    share = replace(options, seconds=options.seconds / (len(groups) * len(lengths)))
    choice = options.compute.attention
    names = list(dict.fromkeys([_EAGER, *(backends.BACKENDS if choice == "auto" else [choice])]))
    for needs, encodings in groups.items():
        if needs.bias == "scores":
            reason = "attention of their own: `bench train`"
            yield Result("attention", encodings, None, "s", note=reason)
            continue
        usable = []
        for name in names:
            reason_against = _why_unmeasured(backends.load(name), needs, hardware)
            if reason_against is None:
                usable.append(name)
            else:
                note = f"{name} {reason_against}"
                yield Result("attention", f"{encodings}: {name}", None, "s", note=note)
        for length in lengths:
            label = f"{encodings}, {length} tokens"
            yield from _compare(usable, needs, label, length, config, hardware, share)


def _why_unmeasured(backend: Backend, needs: Needs, hardware: Hardware) -> str | None:
    """Return a reason as the end of a sentence; None if `backend` is measured."""
    # Nor is a kernel that only Triton's interpreter could run: its time says nothing of a GPU's.
    interpreting = os.environ.pop("TRITON_INTERPRET", None)
    try:
        return backend.why_unsupported(needs, hardware)
    finally:
        if interpreting is not None:
            os.environ["TRITON_INTERPRET"] = interpreting


def _group_by_needs(encodings: Sequence[Name], config: Config) -> dict[Needs, str]:
    """Return the needs of `encodings` (all, if empty), each with the encodings that have them."""
    groups: dict[Needs, list[str]] = {}
    for name in encodings or [parse(name) for name in known_names("encoding")]:
        groups.setdefault(blueprint(config, name).needs, []).append(str(name))
    return {
        needs: "/".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
        for needs, names in groups.items()
    }


def _compare(
    names: Sequence[str],
    needs: Needs,
    label: str,
    length: int,
    config: Config,
    hardware: Hardware,
    options: Options,
) -> Iterator[Result]:
    """Measure backends in turn, on the same numbers and beside eager."""
    rows = max(1, (_QUICK_TOKENS if options.quick else _TOKENS[hardware.device]) // length)
    steps: dict[str, Callable[[int], object]] = {}
    for name in names:
        try:
            steps[name] = _make_step(backends.load(name), needs, rows, length, config, hardware)
        except (UsageError, NotImplementedError, RuntimeError) as error:
            # A kernel may refuse a length, or find no room for it.
            note = " ".join(str(error).split())
            yield Result("attention", f"{label}: {name}", None, "s", note=note)
    times = time_interleaved(
        steps,
        most=_QUICK_ROUNDS if options.quick else _ROUNDS,
        seconds=options.seconds,
        fill=_QUICK_FILL if options.quick else _FILL,
    )
    flops = _useful_flops(needs, rows, length, config)
    limit = limits.product_limit(hardware, options.quick)
    work = f"forward and backward; {needs.values} values, bias: {needs.bias}"
    sizes = f"{rows} rows, {config.num_heads} heads of {config.head_dim}, {hardware.dtype_name}"
    eager: float | None = None
    for name, seconds in times.items():
        line = Result.of("attention", f"{label}: {name}", seconds, "s", note=f"{work}; {sizes}")
        eager = line.value if name == _EAGER else eager
        yield line if eager is None else replace(line, limit=eager, limit_name=_EAGER)
        rates = [flops / each for each in seconds]
        line = Result.of("attention", f"{label}: {name}, useful FLOPs", rates, "FLOP/s")
        yield replace(line, limit=limit.rate, limit_name=limit.name)


def _make_step(
    backend: Backend, needs: Needs, rows: int, length: int, config: Config, hardware: Hardware
) -> Callable[[int], object]:
    """Return forward and backward of `backend` on rows of `length` tokens.

    It has been called once, so that it is compiled or has refused. q, k and v come in the type of
    the products, as in a model; what an encoding gathers along with v, and its bias, in float32.
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

    def step(_: int) -> object:
        return torch.autograd.grad(forward(), leaves, gradients)

    step(0)
    return step


def _useful_flops(needs: Needs, rows: int, length: int, config: Config) -> int:
    """Count forward and backward: the scores and each value, over the keys up to each query."""
    width = config.num_heads * config.head_dim
    product = MatMul(causal([length] * rows).pairs * width)
    return (needs.query + needs.values) * product.training
