"""Runs that begin from the final weights of another run instead of drawing their own."""

from dataclasses import replace

import numpy as np
import torch

from tape_arith.arith.data.rows import pad
from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import sha256
from tape_arith.arith.runs.build import decoder_for, training_bucket
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import InitFrom, RunRecord
from tape_arith.arith.runs.weights import final_weights, identity, trained_decoder
from tape_arith.arith.scoring.score import answer_logits
from tape_arith.arith.terminal import say
from tape_arith.arith.training import checkpoint
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.build import prepare
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.names.parse import Name, Origin

ALIKE = (
    *("task", "trained_digits"),
    *("num_layers", "hidden_size", "num_heads", "head_dim", "mlp_size"),
)
"""Settings that a run shares with the one that it begins from."""
# Held-out problems over which the first logits are compared with the other run's.
PROBE_PROBLEMS = 32
PLAIN = Hardware("cpu", torch.float32)


def named(name: Name, source: RunRecord, only_positional: bool) -> Name:
    """`name` begun from a run of `source`: tape@from=rope. Errors: UsageError where it says
    already that it begins elsewhere."""
    origin = Origin(source.name.encoding, only_positional)
    if name.encoding.origin not in (None, origin):
        raise UsageError(f"{name.encoding} does not begin from a run of {source.encoding}")
    return replace(name, encoding=replace(name.encoding, origin=origin))


def beginning(
    folder: RunFolder, source: RunRecord, config: Config, name: Name, seed: int
) -> InitFrom:
    """What the record says of the finished run in `folder`, of which `source` is the record.

    Errors: UsageError where a run of `config`, `name` and `seed` cannot begin from it.
    """
    for key in ALIKE:
        ours, theirs = getattr(config, key), getattr(source.config, key)
        if ours != theirs:
            raise UsageError(
                f"{folder.path} has {key}={theirs} and the new run {ours}: begin from a run of the "
                "same sizes and task"
            )
    if seed != source.seed:
        raise UsageError(
            f"{folder.path} is of seed {source.seed}, not {seed}: each seed begins from a run of "
            "its own, or seeds would not be independent runs"
        )
    decoder = decoder_for(config, name, seed)
    if not any(parameter.requires_grad for parameter in decoder.parameters()):
        raise UsageError(
            f"{name.encoding.own} has no parameters of its own: leave --only-positional out"
        )
    take_weights(decoder, folder, source, name)
    before = source.init_from
    trained = source.config.steps * source.config.batch_size
    return InitFrom(
        encoding=source.encoding,
        seed=source.seed,
        config_sha256=source.config.sha256,
        steps=source.config.steps + (before.steps if before else 0),
        problems=trained + (before.problems if before else 0),
        weights_sha256=sha256(folder.final),
    )


def take_weights(decoder: Decoder, folder: RunFolder, source: RunRecord, name: Name) -> list[str]:
    """Put the final weights of a run into `decoder`; the names of the parameters that keep their
    initial values, which only the encoding has. Errors: UsageError where some have no place."""
    tensors = final_weights(folder, source, "cpu")
    weights = {key.removeprefix("model/"): tensor for key, tensor in tensors.items()}
    places = decoder.state_dict()
    for key, tensor in weights.items():
        if key not in places or places[key].shape != tensor.shape:
            raise UsageError(
                f"{name.encoding.own} has no place for {key} of {folder.path} "
                f"({source.encoding}): begin from an encoding whose parameters it has"
            )
        places[key].copy_(tensor)
    return [key for key, _ in decoder.named_parameters() if key not in weights]


def write_first_state(folder: RunFolder, record: RunRecord, source: RunFolder) -> None:
    """Write the state before the first step of a run that begins from `source`; tell how far its
    logits are from those of `source`."""
    config, name, there = record.config, record.name, source.record()
    decoder = decoder_for(config, name, record.seed)
    new = take_weights(decoder, source, there, name)
    bucket = training_bucket(config, record.seed)
    state, facts = Trainer(decoder, bucket, bucket, config, record.schedule, PLAIN).state()
    checkpoint.save(folder.latest, state, facts | identity(record))
    other, _ = trained_decoder(source, there.name, there)
    parameters = dict(decoder.named_parameters())
    say(
        f"{record.encoding} begins from {source.path} ({there.config.steps:,} steps): "
        f"{sum(parameters[key].numel() for key in new):,} new parameters; its first logits differ "
        f"by {logit_difference(decoder, other, record):.2g} at most, over {PROBE_PROBLEMS} problems"
    )


def logit_difference(one: Decoder, other: Decoder, record: RunRecord) -> float:
    """The largest difference between the logits of two decoders, in float32, over held-out problems
    of the trained lengths."""
    bucket = replace(training_bucket(record.config, record.seed), split="held-out")
    problems, keys = bucket.problems(0, PROBE_PROBLEMS), bucket.keys(0, PROBE_PROBLEMS)
    rows = pad(problems, keys, np.arange(PROBE_PROBLEMS))
    first, second = (
        answer_logits(prepare(decoder.eval().cpu(), PLAIN), rows, PLAIN) for decoder in (one, other)
    )
    return float((first - second).abs().max())
