"""Our training beside that of transformers' Llama and of x-transformers, on the same problems.

Equal: layers, width, heads, a gated MLP with GELU, pre-norm RMSNorm, rotations of whole heads, no
biases, untied output, the problems of each step, cross-entropy on the answer tokens, AdamW (fused)
and the number of threads. Peers train on one padded batch, which torch's threads share; so does
ours, once, that it may be seen what comes from where. "As the suite trains" is the code of
`tape-arith train`: it makes its problems, takes them in groups of like lengths, a thread each (on
a GPU: packed, blocks compiled), and clips the gradient, none of which the peers' time holds.

Different: x-transformers keeps a bias in its gate; ours takes logits, in float32, and the last
MLP of answer tokens alone. Peers get no mask of the padding, which causal attention on right-padded
rows does not need, but where they run as they come: in float32, with their default attention,
activation, cache, mask and AdamW. They are compiled (whole, by torch.compile) only where --compile
is asked for, and never as they come; ours is on a GPU too. --attention is ours alone.

Legend: B batch, T tokens, V vocabulary.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.arith.bench.measure import (
    Measurement,
    Options,
    Timing,
    as_compiled,
    not_measured,
    steps_in_turn,
    threads_of,
)
from tape_arith.arith.bench.peer_models import PEERS, Peer, found
from tape_arith.arith.bench.sizes import training_config
from tape_arith.arith.bench.train import Contender as Training
from tape_arith.arith.bench.train import trainer_for, warm_up
from tape_arith.arith.data.rows import Rows, pad
from tape_arith.arith.runs.build import decoder_for, training_bucket
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.step import summed_loss
from tape_arith.models.build import prepare
from tape_arith.models.compile import raise_graph_limit
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import parse

STAGE = "peers"
TAKES = frozenset({"preset", "settings", "attention", "compiled"})

TURNS, QUICK_TURNS = 34, 1


@dataclass
class Contender:
    """Something that trains. `train` takes the number of a step."""

    name: str
    parameters: int
    train: Callable[[int], object]
    note: str
    package: str = ""
    as_it_comes: bool = False


def measure(options: Options) -> Iterator[Measurement]:
    """Real tokens a second of all contenders, some steps each in turn; then ours beside each peer's
    best."""
    hardware = detect(options.compute)
    config = training_config(options, hardware)
    ours = [as_the_suite_trains(config, hardware), on_one_batch(config, hardware)]
    peers: list[Contender] = []
    for peer in PEERS:
        try:
            peers.append(peer_of(peer, config, hardware))
        except ImportError:
            why = f"{peer.package} is not installed (pip install {peer.package})"
            yield not_measured(STAGE, f"{peer.package} {peer.name}", "tokens/s", why)
    for contender in peers:
        yield Measurement(
            STAGE,
            f"{contender.name}: parameters",
            contender.parameters,
            "",
            ours[0].parameters,
            "ours",
            f"{contender.parameters - ours[0].parameters:+,}",
        )
    rates = speeds([*ours, *peers], config, hardware, options)
    for contender in [*peers, *ours]:
        rate = rates[contender.name]
        yield Measurement(
            STAGE,
            f"{contender.name}: real tokens",
            rate.median,
            "tokens/s",
            note=contender.note,
            spread=rate.spread,
            repeats=rate.repeats,
        )
    for contender in ours:
        for other in best(peers, rates):
            yield Measurement(
                STAGE,
                f"{contender.name} / {other.name.removeprefix(other.package).strip()}",
                rates[contender.name].median,
                "tokens/s",
                rates[other.name].median,
                other.name,
            )


def speeds(
    contenders: list[Contender], config: Config, hardware: Hardware, options: Options
) -> dict[str, Timing]:
    """Real tokens a second: inputs, padding excluded."""
    if hardware.compiles:
        raise_graph_limit(len(contenders), blocks=config.num_layers)
    for contender in contenders:
        warm_up(contender.train, hardware)
    taken = steps_in_turn(
        {contender.name: contender.train for contender in contenders},
        device=hardware.device,
        turns=QUICK_TURNS if options.quick else TURNS,
        seconds=options.seconds,
    )
    return {
        name: Timing.of([real_tokens(config, step) / s for step, s in enumerate(seconds)])
        for name, seconds in taken.items()
    }


def best(peers: list[Contender], rates: dict[str, Timing]) -> Iterator[Contender]:
    """Of each package the fastest of its settings, and what it is as it comes."""
    for package in dict.fromkeys(peer.package for peer in peers):
        mine = [peer for peer in peers if peer.package == package]
        chosen = [peer for peer in mine if not peer.as_it_comes]
        yield max(chosen, key=lambda peer: rates[peer.name].median)
        yield from (peer for peer in mine if peer.as_it_comes)


def as_the_suite_trains(config: Config, hardware: Hardware) -> Contender:
    """A step of `tape-arith train --pe rope`."""
    name = parse("rope")
    trainer = trainer_for(name, config, hardware)
    groups = list(trainer.groups(*trainer.batch(0)))
    tokens = sum(rows.inputs.size for rows in groups)
    padding = 1 - real_tokens(config, 0) / tokens
    each = "1 batch" if len(groups) == 1 else f"{len(groups)} groups"
    on = "" if hardware.device == "cuda" else f" on {threads_of(hardware)}"
    note = (
        f"{hardware.dtype_name}, {each}{on}, {100 * padding:.0f} % padding{as_compiled(hardware)}"
    )
    train, parameters = Training(name, trainer).train, trainer.decoder.num_parameters()
    return Contender("ours, as the suite trains", parameters, train, note)


def on_one_batch(config: Config, hardware: Hardware) -> Contender:
    """Our decoder on the peers' batch."""
    decoder = prepare(decoder_for(config, parse("rope"), seed=0), hardware)

    def loss(rows: Rows) -> Tensor:
        return summed_loss(decoder, rows, hardware.device) / len(rows.answers)

    train = padded_training(decoder, loss, config, hardware)
    note = about(hardware, config) + as_compiled(hardware)
    return Contender("ours, one padded batch", decoder.num_parameters(), train, note)


def peer_of(peer: Peer, config: Config, hardware: Hardware) -> Contender:
    """Errors: ImportError where the package is not there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own use of torch
        package, number = found(peer.package)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = peer.build(package, config).to(hardware.device)
    if peer.as_it_comes:
        hardware = hardware.in_float32()
    compiled = hardware.compiled is True and not peer.as_it_comes
    if compiled:
        model.compile(dynamic=True if hardware.device == "cpu" else None)

    def loss(rows: Rows) -> Tensor:
        tokens, where, targets, mask = (
            torch.from_numpy(array).to(hardware.device)
            for array in (
                rows.inputs,
                rows.answers,
                rows.targets[rows.is_answer],
                np.arange(rows.inputs.shape[1]) < lengths(rows)[:, None],
            )
        )
        logits = peer.logits(model, tokens, mask).flatten(0, 1).index_select(0, where)
        return F.cross_entropy(logits.float(), targets)

    name = f"{peer.package} {peer.name}" + (", as it comes" if peer.as_it_comes else "")
    train = padded_training(model, loss, config, hardware, fused=not peer.as_it_comes)
    count = sum(parameter.numel() for parameter in model.parameters())
    note = f"{about(hardware, config)}, version {number}" + (", compiled" if compiled else "")
    return Contender(name, count, train, note, peer.package, peer.as_it_comes)


def padded_training(
    model: nn.Module,
    loss: Callable[[Rows], Tensor],
    config: Config,
    hardware: Hardware,
    fused: bool = True,
) -> Callable[[int], object]:
    """Forward, backward and AdamW on one padded batch, shared by torch's threads."""
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=fused or None,
    )

    def train(step: int) -> Tensor:
        with sharing(hardware):
            with hardware.autocast():
                value = loss(padded(config, step))
            value.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return value.detach()

    return train


@contextmanager
def sharing(hardware: Hardware) -> Iterator[None]:
    """Let all threads share each of torch's operations."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before, hardware.threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=8)
def padded(config: Config, step: int) -> Rows:
    """The problems that the suite trains on in this step, as one padded batch in their order."""
    bucket = training_bucket(config, seed=0)
    first, last = step * config.batch_size, (step + 1) * config.batch_size
    problems, keys = bucket.problems(first, last), bucket.keys(first, last)
    return pad(problems, keys, np.arange(config.batch_size))


def lengths(rows: Rows) -> NDArray[np.int64]:
    """Real inputs of each row."""
    return rows.prompt_lengths + rows.answer_tokens - 1


def real_tokens(config: Config, step: int) -> int:
    return int(lengths(padded(config, step)).sum())


def about(hardware: Hardware, config: Config) -> str:
    """What a step on one padded batch is, in words."""
    rows = padded(config, 0)
    padding = 1 - real_tokens(config, 0) / rows.inputs.size
    batch = f"{hardware.dtype_name}, 1 batch of {len(rows.inputs)} x {rows.inputs.shape[1]}"
    shared = "" if hardware.device == "cuda" else f" shared by {threads_of(hardware)}"
    return f"{batch}{shared}, {100 * padding:.0f} % padding"
