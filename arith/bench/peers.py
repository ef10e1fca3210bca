"""Compare our training with that of transformers' Llama and x-transformers, on the same problems.

Equal: layers, width, heads, a gated MLP with GELU, pre-norm RMSNorm, rotations of whole heads, no
biases, untied output, the problems of each step, cross-entropy on the answer tokens, AdamW (fused)
and the number of threads. Peers train on one padded batch, which torch's threads share; one line
measures our decoder in the same way. The line "as the suite trains" measures `tape-arith train`: it
makes its problems, splits them into groups of like lengths, one per thread (on a GPU: packs them
and compiles blocks), and clips the gradient. The peers' times include none of this work.

Different: x-transformers keeps a bias in its gate; ours computes logits (in float32) and the last
MLP for answer tokens alone. Peers get no padding mask, since causal attention on right-padded rows
needs none. They are compiled (as a whole, by torch.compile) only with --compile; ours is compiled
on a GPU without it too. --backend affects ours alone.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.benchmark import set_torch_threads

from tape_arith.arith.bench.measure import Options, Result, describe_threads, rates, time_trainings
from tape_arith.arith.bench.train import Candidate, warm_up
from tape_arith.arith.data.rows import Rows, pad
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.tasks.families.tokens import Vocabulary
from tape_arith.arith.training.step import summed_loss
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.runner import Runner

_ROOM = 2048
"""The longest sequence that the peers allow; it adds no parameters."""


class _Peer(NamedTuple):
    """A package's decoder in one setting; `build` takes the imported package and the sizes."""

    package: str
    name: str
    build: Callable[[Any, Config], nn.Module]


class _Contender(NamedTuple):
    """A model with its training; `train` takes one step, given its number."""

    name: str
    parameters: int
    train: Callable[[int], object]
    note: str


def _llama(package: Any, config: Config, attention: str) -> Any:
    return package.LlamaForCausalLM(
        package.LlamaConfig(
            vocab_size=len(Vocabulary()),
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
    )


def _x_transformer(package: Any, config: Config, flash: bool) -> Any:
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
    return package.TransformerWrapper(
        num_tokens=len(Vocabulary()), max_seq_len=_ROOM, use_abs_pos_emb=False, attn_layers=layers
    )


#: Each package in two settings, since the machine decides which one is faster.
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
    """Measure real tokens per second of all in turn; compare ours with each package's best."""
    hardware = detect(*options.compute)
    config = options.config(hardware)
    if (config.norm, config.loops, config.attention_scale) != ("pre", 1, "plain"):
        reason = (
            "peers have pre-norm, no loops and plain scores: leave norm, loops and "
            "attention_scale out to compare"
        )
        yield Result("peers", "peers", None, "tokens/s", note=reason)
        return
    own_contenders = [_as_the_suite_trains(config, hardware), _on_one_batch(config, hardware)]
    peers: dict[str, list[_Contender]] = {}
    for peer in _PEERS:
        try:
            contender = _contender(peer, config, hardware, options.compute.compiled is True)
            peers.setdefault(peer.package, []).append(contender)
        except ImportError:
            reason = f"{peer.package} is not installed (pip install {peer.package})"
            yield Result("peers", f"{peer.package} {peer.name}", None, "tokens/s", note=reason)
    contenders = [*chain(*peers.values()), *own_contenders]
    warm_up([each.train for each in contenders], hardware, blocks=config.num_layers)
    turns = time_trainings({each.name: each.train for each in contenders}, options.seconds)
    lines: dict[str, Result] = {}
    for each in contenders:
        speeds = rates(partial(_real_tokens, config), turns[each.name])
        note = f"{each.note}, {each.parameters:,} parameters"
        name = f"{each.name}: real tokens"
        lines[each.name] = Result.of("peers", name, speeds, "tokens/s", note=note)
        yield lines[each.name]
    for own in own_contenders:
        for package, settings in peers.items():
            best = max((each.name for each in settings), key=lambda name: lines[name].value or 0.0)
            name = f"{own.name} / {best.removeprefix(package).strip()}"
            ratio = Result("peers", name, lines[own.name].value, "tokens/s")
            yield ratio.against(lines[best], best)


def _as_the_suite_trains(config: Config, hardware: Hardware) -> _Contender:
    """Return a contender that takes the steps of `tape-arith train --pe rope`."""
    candidate = Candidate(parse("rope"), config, hardware)
    note = (
        f"{hardware.dtype_name}, groups of like lengths on {describe_threads(hardware)}, "
        f"{100 * candidate.padding([0]):.0f} % padding{_compiled(hardware)}"
    )
    parameters = candidate.trainer.decoder.num_parameters()
    return _Contender("ours, as the suite trains", parameters, candidate.train, note)


def _on_one_batch(config: Config, hardware: Hardware) -> _Contender:
    """Return a contender that trains our decoder on the peers' batch."""
    runner = Runner(decoder_for(config, parse("rope"), seed=0), hardware)

    def loss(rows: Rows) -> Tensor:
        return summed_loss(runner, rows) / len(rows.answers)

    name = "ours, one padded batch"
    return _padded_contender(name, runner.decoder, loss, config, hardware, _compiled(hardware))


def _compiled(hardware: Hardware) -> str:
    return ", blocks compiled" if hardware.compiled else ""


def _contender(
    peer: _Peer, config: Config, hardware: Hardware, compiled: bool = False
) -> _Contender:
    """Return a peer that trains. Raises ImportError if its package is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the package's use of torch
        package, number = _import(peer.package)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = peer.build(package, config).to(hardware.device)
    note = f", version {number}"
    if compiled:
        model.compile(dynamic=True if hardware.device == "cpu" else None)
        note += ", compiled"

    def loss(rows: Rows) -> Tensor:
        arrays = (rows.inputs, rows.answers, rows.targets[rows.is_answer])
        tokens, answers, targets = (torch.from_numpy(array).to(hardware.device) for array in arrays)
        output = model(tokens)
        logits = getattr(output, "logits", output).flatten(0, 1).index_select(0, answers)
        return F.cross_entropy(logits.float(), targets)

    return _padded_contender(f"{peer.package} {peer.name}", model, loss, config, hardware, note)


def _padded_contender(
    name: str,
    model: nn.Module,
    loss: Callable[[Rows], Tensor],
    config: Config,
    hardware: Hardware,
    note: str,
) -> _Contender:
    """Return a contender that trains `model` on padded batches, with torch's threads and AdamW."""
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

    count, width = _padded_batch(config, 0).inputs.shape
    note = (
        f"{hardware.dtype_name}, 1 batch of {count} x {width} on {describe_threads(hardware)}, "
        f"{100 * (1 - _real_tokens(config, 0) / (count * width)):.0f} % padding{note}"
    )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return _Contender(name, parameters, train, note)


@lru_cache(maxsize=8)
def _padded_batch(config: Config, step: int) -> Rows:
    """Return the suite's problems of one step, in order, as one padded batch."""
    bucket = config.bucket(0)
    first, last = step * config.batch_size, (step + 1) * config.batch_size
    problems, keys = bucket.problems(first, last), bucket.keys(first, last)
    return pad(problems, keys, np.arange(config.batch_size))


def _real_tokens(config: Config, step: int) -> int:
    """Count the inputs of a step, padding excluded."""
    rows = _padded_batch(config, step)
    return int((rows.prompt_lengths + rows.answer_tokens - 1).sum())
