"""Begin runs from the final weights of another run instead of random weights."""

from dataclasses import replace

import torch

from tape_arith.arith.decoders.build import DECODER_SETTINGS, blueprint, decoder_for
from tape_arith.arith.decoders.weights import final_weights, identity, save, shapes, trained_record
from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import sha256
from tape_arith.arith.lock import check_lock
from tape_arith.arith.registry.names import Name, Origin
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.record import InitFrom, RunRecord
from tape_arith.arith.runs.run import Run
from tape_arith.arith.terminal import say
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.hardware import Hardware
from tape_arith.models.runner import Runner

_SHARED_SETTINGS = ("task", "trained_digits", "trained_operands", *DECODER_SETTINGS)
"""Settings that must be equal in a run and in the run that it begins from."""


def with_origin(name: Name, source: Run, only_positional: bool) -> Name:
    """Return `name` with the run `source` as its origin, as in tape@from=rope.

    Raises UsageError if `name` already has another origin, or as `trained_record`.
    """
    record = trained_record(source)
    origin = Origin(record.name.encoding, only_positional)
    if name.encoding.origin not in (None, origin):
        raise UsageError(f"{name.encoding} does not begin from a run of {record.encoding}")
    return replace(name, encoding=replace(name.encoding, origin=origin))


def init_from_record(source: Run, config: Config, name: Name, seed: int) -> InitFrom:
    """Return the `init_from` of a new run that begins from the finished run `source`.

    Raises UsageError if a run of `config`, `name` and `seed` cannot begin from its weights.
    """
    source_record = source.record()
    for key in _SHARED_SETTINGS:
        new, old = getattr(config, key), getattr(source_record.config, key)
        if new != old:
            raise UsageError(
                f"{source.path} has {key}={old} and the new run {new}: begin from a run of the "
                "same sizes and task"
            )
    if seed != source_record.seed:
        raise UsageError(
            f"{source.path} is of seed {source_record.seed}, not {seed}: each seed begins from a "
            "run of its own, or seeds would not be independent runs"
        )
    expected = blueprint(config, name)
    origin = name.encoding.origin
    if origin is not None and origin.only_positional and not list(expected.pe.parameters()):
        raise UsageError(
            f"{name.encoding.own} has no parameters of its own: leave --only-positional out"
        )
    right = shapes(expected.state_dict())
    for key, shape in shapes(final_weights(source, source_record, "cpu")).items():
        if right.get(key) != shape:
            raise UsageError(
                f"{name.encoding.own} has no place for {key} of {source.path} "
                f"({source_record.encoding}): begin from an encoding whose parameters it has"
            )
    before = source_record.init_from
    trained = source_record.config.steps * source_record.config.batch_size
    return InitFrom(
        encoding=source_record.encoding,
        seed=source_record.seed,
        config_sha256=source_record.config.sha256,
        steps=source_record.total_steps,
        problems=trained + (before.problems if before else 0),
        weights_sha256=sha256(source.final),
    )


def write_first_state(run: Run, record: RunRecord, source: Run) -> None:
    """Write the checkpoint of step 0 for a run that begins from the weights of `source`."""
    config, source_record = record.config, source.record()
    decoder = decoder_for(config, record.name, record.seed)
    weights = final_weights(source, source_record, "cpu")
    decoder.load_state_dict(weights, strict=False)  # init_from_record has compared the shapes
    bucket = config.bucket(record.seed)
    runner = Runner(decoder, Hardware("cpu", torch.float32))
    state, facts = Trainer(runner, bucket, config).state()
    check_lock(run.path)
    save(run.latest, state, facts | identity(record))
    new = sum(p.numel() for key, p in decoder.named_parameters() if key not in weights)
    say(
        f"{record.encoding} begins from {source.path} ({source_record.config.steps:,} steps): "
        f"{new:,} new parameters"
    )
