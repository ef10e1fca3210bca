"""Our training beside that of transformers' Llama and of x-transformers, on the same problems.

Equal: layers, width, heads, a gated MLP with GELU, pre-norm RMSNorm, rotations of whole heads, no
biases, untied output, the problems of each step, cross-entropy on the answer tokens, AdamW (fused)
and the number of threads. Peers train on one padded batch, which torch's threads share; so does
ours, once, to show what comes from where. "As the suite trains" is the code of `tape-arith train`:
it makes its problems, takes them in groups of like lengths, a thread each (on a GPU: packed, blocks
compiled), and clips the gradient, none of which the peers' time holds.

Different: x-transformers keeps a bias in its gate; ours takes logits, in float32, and the last
MLP of answer tokens alone. Peers get no mask of the padding, which causal attention on right-padded
rows does not need. They are compiled (whole, by torch.compile) only with --compile; ours is on a
GPU too. --attention is ours alone.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.benchmark import set_torch_threads

from tape_arith.arith.bench.measure import (
    Options,
    Result,
    describe_threads,
    steps_of,
    time_trainings,
)
from tape_arith.arith.bench.train import MOST_TURNS, QUICK_TURNS, Candidate, warm_up
from tape_arith.arith.data.rows import Rows, pad
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.tasks.task import SIZE
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.step import summed_loss
from tape_arith.models.build import prepare, raise_graph_limit
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import parse

_ROOM = 2048
"""The longest sequence that the peers make room for: nothing is learned of it."""


class _Peer(NamedTuple):
    """A package's decoder in one of its settings, built of the package and the sizes."""

    package: str
    name: str
    build: Callable[[Any, Config], nn.Module]


class _Contender(NamedTuple):
    """Something that trains; `train` takes the number of a step."""

    name: str
    parameters: int
    train: Callable[[int], object]
    note: str
    package: str = ""


def _llama(package: Any, config: Config, attention: str) -> nn.Module:
    sizes = package.LlamaConfig(
        vocab_size=SIZE,
        hidden_size=config.hidden_size,
        intermediate_size=config.mlp_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_heads,
        head_dim=config.head_dim,
        max_position_embeddings=_ROOM,
        tie_word_embeddings=False,
        hidden_act="gelu",
        use_cache=False,
        attn_implementation=attention,
    )
    model: nn.Module = package.LlamaForCausalLM(sizes)
    return model


def _x_transformer(package: Any, config: Config, flash: bool) -> nn.Module:
    layers = package.Decoder(
        dim=config.hidden_size,
        depth=config.num_layers,
        heads=config.num_heads,
        attn_dim_head=config.head_dim,
        verbose=False,
        rotary_pos_emb=True,
        rotary_emb_dim=config.head_dim,
        use_rmsnorm=True,
        ff_glu=True,
        ff_mult=config.mlp_size / config.hidden_size,
        ff_no_bias=True,
        attn_flash=flash,
    )
    model: nn.Module = package.TransformerWrapper(
        num_tokens=SIZE, max_seq_len=_ROOM, use_abs_pos_emb=False, attn_layers=layers
    )
    return model


#: Each package in two settings, since which is faster depends on the machine.
_PEERS = (
    _Peer("transformers", "Llama, sdpa", partial(_llama, attention="sdpa")),
    _Peer("transformers", "Llama, eager", partial(_llama, attention="eager")),
    _Peer("x-transformers", "Decoder, attn_flash", partial(_x_transformer, flash=True)),
    _Peer("x-transformers", "Decoder, no attn_flash", partial(_x_transformer, flash=False)),
)


def _import(package: str) -> tuple[Any, str]:
    """Return a package and its version. Raises ImportError if it is not installed."""
    return import_module(package.replace("-", "_")), version(package)


def measure(options: Options) -> Iterator[Result]:
    """Measure real tokens a second of all, in turn; then ours beside each peer's best."""
    hardware = detect(*options.compute)
    config = options.training_config(hardware)
    contenders = [_as_the_suite_trains(config, hardware), _on_one_batch(config, hardware)]
    peers: list[_Contender] = []
    for peer in _PEERS:
        try:
            peers.append(_contender(peer, config, hardware))
        except ImportError:
            reason = f"{peer.package} is not installed (pip install {peer.package})"
            yield Result("peers", f"{peer.package} {peer.name}", None, "tokens/s", note=reason)
    rates = _rates([*contenders, *peers], config, hardware, options)
    lines: dict[str, Result] = {}
    for each in [*peers, *contenders]:
        more = each.parameters - contenders[0].parameters
        note = f"{each.note}, {each.parameters:,} parameters" + (f" ({more:+,})" if more else "")
        name = f"{each.name}: real tokens"
        lines[each.name] = Result.of("peers", name, rates[each.name], "tokens/s", note=note)
        yield lines[each.name]
    speed = {name: line.value or 0.0 for name, line in lines.items()}
    for own in contenders:
        for package in dict.fromkeys(peer.package for peer in peers):
            settings = [peer.name for peer in peers if peer.package == package]
            best = max(settings, key=speed.__getitem__)
            name = f"{own.name} / {best.removeprefix(package).strip()}"
            yield Result("peers", name, speed[own.name], "tokens/s", speed[best], best)


def _rates(
    contenders: Sequence[_Contender], config: Config, hardware: Hardware, options: Options
) -> dict[str, list[float]]:
    """Measure real tokens a second of each turn: inputs, padding excluded."""
    if hardware.compiles:
        raise_graph_limit(len(contenders), blocks=config.num_layers)
    for contender in contenders:
        warm_up(contender.train, hardware)
    turns = time_trainings(
        {contender.name: contender.train for contender in contenders},
        most=QUICK_TURNS if options.quick else MOST_TURNS // 2,
        seconds=options.seconds,
    )
    return {
        name: [
            sum(_real_tokens(config, step) for step in steps_of(turn)) / seconds
            for turn, seconds in enumerate(times)
        ]
        for name, times in turns.items()
    }


def _as_the_suite_trains(config: Config, hardware: Hardware) -> _Contender:
    """Return a contender that takes the steps of `tape-arith train --pe rope`."""
    candidate = Candidate.of(parse("rope"), config, hardware)
    trainer = candidate.trainer
    groups = len(list(trainer.groups(*trainer.batches.problems(0))))
    place = "" if hardware.device == "cuda" else f" on {describe_threads(hardware)}"
    note = f"{hardware.dtype_name}, {groups} groups{place}, "
    note += f"{100 * candidate.padding([0]):.0f} % padding{_compiled(hardware)}"
    parameters = trainer.decoder.num_parameters()
    return _Contender("ours, as the suite trains", parameters, candidate.train, note)


def _on_one_batch(config: Config, hardware: Hardware) -> _Contender:
    """Return a contender that trains our decoder on the peers' batch."""
    decoder = prepare(decoder_for(config, parse("rope"), seed=0), hardware)

    def loss(rows: Rows) -> Tensor:
        return summed_loss(decoder, rows, hardware.device) / len(rows.answers)

    train = _padded_training(decoder, loss, config, hardware)
    note = _describe(hardware, config) + _compiled(hardware)
    return _Contender("ours, one padded batch", decoder.num_parameters(), train, note)


def _compiled(hardware: Hardware) -> str:
    return ", blocks compiled" if hardware.compiles else ""


def _contender(peer: _Peer, config: Config, hardware: Hardware) -> _Contender:
    """Return a peer that trains. Raises ImportError if its package is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own use of torch
        package, number = _import(peer.package)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = peer.build(package, config).to(hardware.device)
    compiled = hardware.compiled is True
    if compiled:
        model.compile(dynamic=True if hardware.device == "cpu" else None)

    def loss(rows: Rows) -> Tensor:
        arrays = (rows.inputs, rows.answers, rows.targets[rows.is_answer])
        tokens, answers, targets = (torch.from_numpy(array).to(hardware.device) for array in arrays)
        output = model(tokens)
        logits = getattr(output, "logits", output).flatten(0, 1).index_select(0, answers)
        return F.cross_entropy(logits.float(), targets)

    train = _padded_training(model, loss, config, hardware)
    count = sum(parameter.numel() for parameter in model.parameters())
    note = f"{_describe(hardware, config)}, version {number}" + (", compiled" if compiled else "")
    return _Contender(f"{peer.package} {peer.name}", count, train, note, peer.package)


def _padded_training(
    model: nn.Module,
    loss: Callable[[Rows], Tensor],
    config: Config,
    hardware: Hardware,
) -> Callable[[int], object]:
    """Return forward, backward and AdamW on one padded batch, shared by torch's threads."""
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )

    def train(step: int) -> Tensor:
        with set_torch_threads(max(torch.get_num_threads(), hardware.threads)):
            with hardware.autocast():
                value = loss(_padded_batch(config, step))
            value.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return value.detach()

    return train


@lru_cache(maxsize=8)
def _padded_batch(config: Config, step: int) -> Rows:
    """Return the problems of a step of the suite as one padded batch in their order."""
    bucket = config.bucket(0)
    first, last = step * config.batch_size, (step + 1) * config.batch_size
    problems, keys = bucket.problems(first, last), bucket.keys(first, last)
    return pad(problems, keys, np.arange(config.batch_size))


def _real_tokens(config: Config, step: int) -> int:
    rows = _padded_batch(config, step)
    return int((rows.prompt_lengths + rows.answer_tokens - 1).sum())


def _describe(hardware: Hardware, config: Config) -> str:
    """Describe a step on one padded batch."""
    rows = _padded_batch(config, 0)
    padding = 1 - _real_tokens(config, 0) / rows.inputs.size
    batch = f"{hardware.dtype_name}, 1 batch of {len(rows.inputs)} x {rows.inputs.shape[1]}"
    shared = "" if hardware.device == "cuda" else f" shared by {describe_threads(hardware)}"
    return f"{batch}{shared}, {100 * padding:.0f} % padding"
