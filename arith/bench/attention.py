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
from tape_arith.models.backends import BACKENDS
from tape_arith.models.decoder import causal
from tape_arith.models.encoding import MatMul
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import Name, parse
from tape_arith.models.sequences import Sequences

STAGE = "attention"
OPTIONS = frozenset({"encodings", "preset", "settings", "lengths", "attention"})

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
_INTERPRETER = "TRITON_INTERPRET"


def measure(options: Options) -> Iterator[Result]:
    """For each need and each of --lengths (in tokens), each backend's time and FLOP/s."""
    hardware = replace(detect(), threads=1)
    config = options.training_config(hardware)
    lengths = options.lengths or (_QUICK_LENGTHS if options.quick else _LENGTHS[hardware.device])
    groups = group_by_needs(options.names(), config)
    share = replace(options, seconds=options.seconds / (len(groups) * len(lengths)))
    for needs, encodings in groups.items():
        if needs.bias == "scores":
            yield Result.missing(STAGE, encodings, "s", "attention of their own: `bench train`")
            continue
        able: list[str] = []
        for name in _requested(options.attention):
            reason = why_unmeasured(backends.load(name), needs, hardware)
            if reason is None:
                able.append(name)
            else:
                yield Result.missing(STAGE, f"{encodings}: {name}", "s", f"{name} {reason}")
        for length in lengths:
            label = f"{encodings}, {length} tokens"
            yield from _compare(able, needs, label, length, config, hardware, share)


def group_by_needs(encodings: Sequence[Name], config: Config) -> dict[Needs, str]:
    """The needs of `encodings` (all, if empty), each with the encodings that have them."""
    groups: dict[Needs, list[str]] = {}
    for name in encodings or [parse(name) for name in known_names("encoding")]:
        groups.setdefault(blueprint(config, name).needs, []).append(str(name))
    return {needs: _abbreviate(names) for needs, names in groups.items()}


def _abbreviate(names: Sequence[str]) -> str:
    """Names for a line that has to stay short.

    >>> _abbreviate(["rope"]), _abbreviate(["nope", "p-rope", "rope", "xpos"])
    ('rope', 'nope, p-rope and 2 more')
    """
    few, rest = names[:2], len(names) - 2
    return "/".join(names) if rest < 1 else f"{', '.join(few)} and {rest} more"


def _compare(
    able: Sequence[str],
    needs: Needs,
    label: str,
    length: int,
    config: Config,
    hardware: Hardware,
    options: Options,
) -> Iterator[Result]:
    """All backends that are `able`, in turn, on the same numbers and beside eager."""
    tokens = _QUICK_TOKENS if options.quick else _TOKENS[hardware.device]
    rows = max(1, tokens // length)
    steps: dict[str, Callable[[int], object]] = {}
    for name in able:
        try:
            steps[name] = make_step(backends.load(name), needs, rows, length, config, hardware)
        except (UsageError, NotImplementedError, RuntimeError) as error:
            # A kernel may refuse a length, or find no room for it.
            yield Result.missing(STAGE, f"{label}: {name}", "s", " ".join(str(error).split()))
    taken = time_interleaved(
        steps,
        most=_QUICK_ROUNDS if options.quick else _ROUNDS,
        seconds=options.seconds,
        fill=_QUICK_FILL if options.quick else _FILL,
    )
    flops = useful_flops(needs, rows, length, config)
    limit = limits.product_limit(hardware, options.quick)
    shape = f"{rows} rows, {config.num_heads} heads of {config.head_dim}, {hardware.dtype_name}"
    eager: float | None = None
    for name, seconds in taken.items():
        line = Result.of(
            STAGE,
            f"{label}: {name}",
            seconds,
            "s",
            note=f"forward and backward; {_describe(needs)}; {shape}",
        )
        eager = line.value if name == _EAGER else eager
        yield line if eager is None else replace(line, limit=eager, limit_name=_EAGER)
        yield Result.of(
            STAGE,
            f"{label}: {name}, useful FLOPs",
            [flops / each for each in seconds],
            "FLOP/s",
            limit=limit.rate,
            limit_name=limit.name,
        )


def _requested(request: str) -> list[str]:
    """Eager first, then the backend of --attention, or all. Raises UsageError if it is unknown."""
    if request != "auto":
        backends.load(request)
    others = BACKENDS if request == "auto" else [request]
    return list(dict.fromkeys([_EAGER, *others]))


def why_unmeasured(backend: Backend, needs: Needs, hardware: Hardware) -> str | None:
    """Why `backend` is not measured, as the end of a sentence; None if it is.

    A kernel that only Triton's interpreter could run is not: its time says nothing of a GPU's.
    """
    interpreting = os.environ.pop(_INTERPRETER, None)
    try:
        return backend.why_unsupported(needs, hardware)
    finally:
        if interpreting is not None:
            os.environ[_INTERPRETER] = interpreting


def _describe(needs: Needs) -> str:
    """What attention must do, in words.

    >>> _describe(Needs()), _describe(Needs(values=3)), _describe(Needs(bias="learned"))
    ('v', 'v and 2 more', 'v, learned bias')
    """
    more = f" and {needs.values - 1} more" if needs.values > 1 else ""
    return f"v{more}" + ("" if needs.bias == "none" else f", {needs.bias} bias")


def make_step(
    backend: Backend, needs: Needs, rows: int, length: int, config: Config, hardware: Hardware
) -> Callable[[int], object]:
    """Forward and backward of `backend` on rows of `length` tokens; already called once, so that
    it has been compiled or has refused. Raises what the backend raises.

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

    def step(_: int) -> object:
        return torch.autograd.grad(forward(), leaves, gradients)

    step(0)
    return step


def useful_flops(needs: Needs, rows: int, length: int, config: Config) -> int:
    """FLOPs of forward and backward: the scores and each value, over the keys up to each query."""
    width = config.num_heads * config.head_dim
    product = MatMul(causal([length] * rows).pairs * width)
    return (needs.query + needs.values) * product.training
