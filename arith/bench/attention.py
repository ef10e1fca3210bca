"""Time each attention backend, forward and backward, for the needs of each encoding.

Rows are full: T tokens each, no padding. Only useful FLOPs count (keys up to each query), so a
backend that computes the whole square and discards half has a lower rate. On a CPU one thread
computes, like each thread in training.

Legend: B batch, T tokens, H heads, K head dim.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import Options, Result, time_interleaved
from tape_arith.arith.decoders.build import blueprint
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.config import Config
from tape_arith.models.attention import Backend, Needs
from tape_arith.models.backends import BACKENDS, load_backend
from tape_arith.models.encoding import MatMul
from tape_arith.models.flops import causal_workload
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.sequences import Sequences

#: The lengths, in tokens, of the presets' longest rows in training and test.
_LENGTHS = {"cpu": (28, 64, 124), "cuda": (64, 124, 244)}
#: Approximate B x T, as in one group of a batch.
_TOKENS = {"cpu": 4_096, "cuda": 32_768}
_QUICK_LENGTHS, _QUICK_TOKENS = (8,), 24
_SECONDS = 0.02
"""Minimum timed seconds per backend and round. A short GPU step costs less than synchronizing, so
several are timed together."""
_EAGER = "eager"


def measure(options: Options) -> Iterator[Result]:
    """Measure each backend for each encoding's needs and each of --lengths (in tokens)."""
    hardware = replace(detect(), threads=1)
    config = options.config(hardware)
    lengths = options.lengths or (_QUICK_LENGTHS if options.quick else _LENGTHS[hardware.device])
    choice = options.compute.attention
    names = list(dict.fromkeys([_EAGER, *(BACKENDS if choice == "auto" else [choice])]))
    groups: dict[Needs, list[str]] = {}
    for encoding in options.names("rope", "fire", "tape"):
        groups.setdefault(blueprint(config, encoding).needs, []).append(str(encoding))
    seconds = options.seconds / (len(groups) * len(lengths))
    for needs, encodings in groups.items():
        for length in lengths:
            label = f"{'/'.join(encodings)}, {length} tokens"
            if needs.bias == "scores":
                reason = "attention of its own: `bench train`"
                yield Result("attention", label, None, "s", note=reason)
            else:
                yield from _compare(names, needs, label, length, config, hardware, seconds)


def _compare(
    names: Sequence[str],
    needs: Needs,
    label: str,
    length: int,
    config: Config,
    hardware: Hardware,
    seconds: float,
) -> Iterator[Result]:
    """Measure backends in turn on the same inputs, and compare them with eager."""
    quick = seconds == 0
    rows = max(1, (_QUICK_TOKENS if quick else _TOKENS[hardware.device]) // length)
    steps: dict[str, Callable[[int], object]] = {}
    for name in names:
        backend = load_backend(name)
        try:
            if reason := backend.why_unsupported(needs, hardware):
                raise UsageError(f"{name} {reason}")
            steps[name] = _make_step(backend, needs, rows, length, config, hardware)
        except Exception as error:
            # A kernel may refuse a length or lack memory for it; Triton's errors share no base.
            note = " ".join(str(error).split())
            yield Result("attention", f"{label}: {name}", None, "s", note=note)
    times = time_interleaved(steps, seconds, fill=0.0 if quick else _SECONDS)
    limit = limits.product_limit(hardware, quick)
    note = (
        f"forward and backward; {needs.values} values, bias: {needs.bias}; {rows} rows, "
        f"{config.num_heads} heads of {config.head_dim}, {hardware.dtype_name}"
    )
    eager: Result | None = None
    for name, each in times.items():
        line = Result.of("attention", f"{label}: {name}", each, "s", note=note)
        eager = line if name == _EAGER else eager
        yield line if eager is None else line.against(eager, _EAGER)
        rates = [_useful_flops(needs, rows, length, config) / duration for duration in each]
        name = f"{label}: {name}, useful FLOPs"
        yield Result.of("attention", name, rates, "FLOP/s").against(limit)


def _make_step(
    backend: Backend, needs: Needs, rows: int, length: int, config: Config, hardware: Hardware
) -> Callable[[int], object]:
    """Return a function that runs `backend` forward and backward on rows of `length` tokens.

    It has been called once, so kernels are compiled, or have refused. q, k and v have the dtype of
    the products, as in a model; an encoding's bias and its other gathered values are in float32.
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
    """Count FLOPs of scores and values, forward and backward, over the keys up to each query."""
    width = config.num_heads * config.head_dim
    product = MatMul(causal_workload([length] * rows).pairs * width)
    return (needs.query + needs.values) * product.training
