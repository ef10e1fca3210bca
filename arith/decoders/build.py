"""Build the decoder of a recipe; report errors of users' encodings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np

from tape_arith.arith.contracts import task as task_contract
from tape_arith.arith.errors import USER_CODE_ERRORS, Failure, UsageError, describe_error
from tape_arith.arith.registry.load import load_classes
from tape_arith.arith.registry.names import Encoding, Name, source_hashes
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.options import AUTO, Compute
from tape_arith.arith.tasks.families.tokens import DIGIT_ZERO, EOS, PAD
from tape_arith.arith.tasks.load import load_task, task_hash
from tape_arith.models.backends import choose_backend
from tape_arith.models.build import build_decoder, meta_decoder
from tape_arith.models.compiling import check_compiler
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UndefinedEncoding
from tape_arith.models.hardware import detect
from tape_arith.models.other_model import OtherModel

DECODER_SETTINGS = tuple(f.name for f in fields(DecoderConfig) if f.name != "vocabulary_size")
"""The settings of a config that are sizes or a variant of its decoder, by the same names."""


def check_trainable(config: Config, name: Name, compute: Compute = AUTO) -> None:
    """Check, before anything is written, that a run can be trained and scored here.

    Raises UsageError if it cannot, Failure if the code of a user's encoding fails at this size.
    """
    hidden, width = config.hidden_size, config.num_heads * config.head_dim
    if width != hidden:
        heads = None if hidden % config.head_dim else f"num_heads={hidden // config.head_dim}"
        raise UsageError(
            f"num_heads x head_dim = {width} is not hidden_size={hidden}: set "
            f"{heads or f'hidden_size={width}'}"
        )
    if task := tuple(task_hash(config.task).items()):
        _check_task(config.task, task)
    config.evaluation_bucket().check_count(config.problems_per_cell)
    if sources := _sources(name.encoding):
        _check_promises(Encoding(name.encoding.parts), sources)
    hardware = detect(*compute)
    check_compiler(hardware)
    choose_backend(hardware.attention, blueprint(config, name).needs, hardware)


def setting_for(config: Config) -> Setting:
    """Return what an encoding may know about task and size; scoring longer problems keeps it.

    Both lengths include `leading_bos` tokens: training puts up to that many [BOS] in front of a
    problem, and studies of their effect put them in front of tested problems.
    """
    task, tested = load_task(config.task), config.evaluation_bucket()
    return Setting(
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        trained_length=config.bucket(0).longest + config.leading_bos,
        max_length=tested.longest + config.leading_bos,
        digit_ids=tuple(range(DIGIT_ZERO, DIGIT_ZERO + 10)),
        separator_ids=tuple(map(task.vocabulary.token, task.step_symbols + task.separators)),
        end_id=EOS,
        loops=config.loops,
        longest_number=int(task.places(np.array([tested.most]))[0]),
        trained_number=int(task.places(np.array([config.bucket(0).most]))[0]),
        ascending=task.format.order == "reversed",
        unbroken=not (task.format.hints or task.format.spaces),
        coupled=None if task.format.scratchpad else task.coupled,
        pad_id=PAD,
    )


def _sizes(config: Config) -> DecoderConfig:
    return DecoderConfig(
        vocabulary_size=len(load_task(config.task).vocabulary),
        **{name: getattr(config, name) for name in DECODER_SETTINGS},
    )


def decoder_for(config: Config, name: Name, seed: int) -> Decoder:
    """Build a decoder with new weights; `@only-positional-from` freezes all but its encoding."""
    decoder = build_decoder(_sizes(config), load_classes(name), setting_for(config), seed)
    origin = name.encoding.origin
    if origin is not None and origin.only_positional:
        decoder.requires_grad_(False)
        decoder.pe.requires_grad_(True)
    return decoder


def decoder_around(model: Callable[..., Any], config: Config) -> Decoder:
    """Return a decoder whose logits are those of `model`, a finished model or a function."""
    return OtherModel(_sizes(config), lambda setting: model, setting_for(config))


def blueprint(config: Config, name: Name) -> Decoder:
    """Return the decoder of `decoder_for` without memory for its weights; cached in this process.

    A user's encoding gets memory anyway, because its constructor may read values of tensors.
    Raises Failure if its code fails.
    """
    return _blueprint(config, name, _sources(name.encoding))


_Sources = tuple[tuple[str, str], ...]


def _sources(encoding: Encoding) -> _Sources:
    """Return the name and the file's SHA-256 of each part that is not built in."""
    return tuple(sorted(source_hashes(encoding).items()))


@lru_cache(maxsize=64)
def _blueprint(config: Config, name: Name, sources: _Sources) -> Decoder:
    with user_errors(name.encoding):
        sizes, setting = _sizes(config), setting_for(config)
        try:
            classes = load_classes(name)
            return meta_decoder(sizes, classes, setting, real_encoding=bool(sources))
        except UndefinedEncoding as error:
            raise UsageError(
                f"{name.encoding} is not defined for {config.task}: {error}; take another encoding "
                "or another format (models/README.md)"
            ) from error


@lru_cache(maxsize=64)
def _check_promises(encoding: Encoding, sources: _Sources) -> None:
    """Raise UsageError if an encoding or a model breaks a promise that results depend on."""
    from tape_arith.arith.contracts import examine

    if broken := examine.broken_promise(Name(encoding)):
        raise UsageError(
            f"{encoding} breaks a promise ({broken.check}): {broken.happened}; "
            f"`tape-arith check {encoding}` checks all promises"
        )


@lru_cache(maxsize=64)
def _check_task(task: str, sources: _Sources) -> None:
    """Raise UsageError if a user's task breaks a promise."""
    if broken := task_contract.examine(task).broken:
        raise UsageError(
            f"task {task} breaks a promise ({broken.check}: {broken.happened}); "
            f"`tape-arith check {task}` checks all promises"
        )


def as_user_error(error: BaseException, encoding: Encoding) -> Failure | None:
    """Return a Failure that names the line of the user's code at which an error arose.

    None if every part is built in, or if the error is already one line for people.
    """
    locations = [location for location in encoding.locations() if not location.is_builtin]
    if not locations or isinstance(error, UsageError | Failure | OSError):
        return None
    reason = describe_error(error, *(location.file for location in locations))[:500]
    return Failure(f"{encoding} failed: {reason}; `tape-arith check {encoding.own}` looks into it")


@contextmanager
def user_errors(encoding: Encoding) -> Iterator[None]:
    """Turn errors of a user's encoding into Failures by `as_user_error`."""
    try:
        yield
    except USER_CODE_ERRORS as error:
        failure = as_user_error(error, encoding)
        if failure is None:
            raise
        raise failure from error
