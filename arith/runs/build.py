"""From a run's config to its decoder, its problems, its trainer and its empty grid."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.data.dataset import Dataset
from tape_arith.arith.errors import UsageError
from tape_arith.arith.machine import available_memory
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.user_encodings import check_user_encoding, is_builtin, user_errors
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.scoring.limits import check_size
from tape_arith.arith.tasks.task import load_task
from tape_arith.arith.tasks.vocabulary import DIGIT_ZERO, EOS, SIZE, token
from tape_arith.arith.terminal import say
from tape_arith.arith.training.batches import Source
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.distributed import SINGLE, ProcessGroup
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.attention import Needs
from tape_arith.models.backends import AUTO, AttentionChoice, choose
from tape_arith.models.build import Blueprint, build_decoder
from tape_arith.models.compile import check_compiler
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import Setting
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import Name, NamePart, parse, source_hashes


def check_trainable(config: Config, name: Name, compute: AttentionChoice = AUTO) -> None:
    """Check, before anything is written, that a run can be trained and scored here.

    Raises UsageError if it cannot, Failure if the code of a user's encoding fails at this size.
    """
    _check_width(config)
    Bucket(config.task, config.tested_digits, config.evaluation_seed, EVALUATION)
    check_user_encoding(name.encoding)
    resolve_attention(detect(*compute), blueprint(config, name).needs)


def _check_width(config: Config) -> None:
    """Raises UsageError unless the heads together are as wide as the decoder."""
    hidden, heads, width = config.hidden_size, config.num_heads, config.head_dim
    if heads * width == hidden:
        return
    right = [
        f"{key}={hidden // given}"
        for key, given in (("num_heads", width), ("head_dim", heads))
        if hidden % given == 0
    ]
    raise UsageError(
        f"num_heads x head_dim = {heads * width} is not hidden_size={hidden}: set "
        f"{' or '.join([*right, f'hidden_size={heads * width}'])}"
    )


def resolve_attention(hardware: Hardware, needs: Needs) -> Hardware:
    """Replace "auto" in `hardware` by the attention backend for `needs`.

    Raises UsageError if the requested one does not support them, or blocks cannot be compiled.
    """
    check_compiler(hardware)
    backend = choose(hardware.attention, needs, hardware)
    return replace(hardware, attention=backend.name)


def setting_for(config: Config) -> Setting:
    """What an encoding may know of task and size: the preset's, however far it is scored.

    What [BOS] training puts in front counts: the longest sequence trained on is so much longer,
    and a tested problem may have as many in front of it, in studies of what they change.
    """
    task = load_task(config.task)
    return Setting(
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        trained_length=task.longest(config.trained_digits) + config.leading_bos,
        max_length=task.longest(config.tested_digits) + config.leading_bos,
        digit_ids=tuple(range(DIGIT_ZERO, DIGIT_ZERO + 10)),
        separator_ids=(token(task.symbol), token("=")),
        end_id=EOS,
    )


def sizes_for(config: Config) -> DecoderConfig:
    return DecoderConfig(
        vocabulary_size=SIZE,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        mlp_size=config.mlp_size,
    )


def decoder_for(config: Config, name: Name, seed: int) -> Decoder:
    """Build a fresh decoder; `@only-positional-from` freezes all but its encoding."""
    decoder = build_decoder(sizes_for(config), name, setting_for(config), seed)
    origin = name.encoding.origin
    if origin is not None and origin.only_positional:
        decoder.requires_grad_(False)
        decoder.pe.requires_grad_(True)
    return decoder


def blueprint(config: Config, name: Name) -> Blueprint:
    """The decoder of `decoder_for` without memory for its weights; built once in a process.

    A user's encoding gets memory all the same, since its constructor may read a number off a
    tensor. The decoder around it must fit into the free memory first, for `config` may come with a
    run and ask for any size. Raises UsageError if it does not, Failure if the user's code fails.
    """
    if is_builtin(name.encoding):
        return _blueprint(config, name, ())
    num_bytes = _blueprint(config, parse("nope"), ()).num_bytes
    free, _ = available_memory()
    if num_bytes > free:
        raise UsageError(
            f"a decoder for {name.encoding} takes {num_bytes:,} bytes without it, and {free:,} are "
            "free: take a smaller size"
        )
    return _blueprint(config, name, tuple(sorted(source_hashes(name.encoding).items())))


@lru_cache(maxsize=64)
def _blueprint(config: Config, name: Name, user_files: tuple[tuple[str, str], ...]) -> Blueprint:
    with user_errors(name.encoding):
        sizes, setting = sizes_for(config), setting_for(config)
        return Blueprint.of(sizes, name, setting, real_encoding=bool(user_files))


def training_bucket(config: Config, seed: int) -> Bucket:
    """The problems that a run of `seed` is trained on."""
    return Bucket(config.task, config.trained_digits, seed, "train")


def empty_grid(
    record: RunRecord, bucket: Bucket, problems_per_cell: int, extrapolation: NamePart | None = None
) -> Grid:
    """What a run scores on the first problems of `bucket`, before any is scored."""
    # Before they are made, for their hash.
    check_size(bucket.max_digits, problems_per_cell, record.config.trained_digits)
    split = {} if bucket.split == EVALUATION else {"split": bucket.split}
    return Grid.empty(
        record.encoding,
        extrapolation=str(extrapolation) if extrapolation else None,
        preset=record.preset,
        seed=record.seed,
        trained_digits=record.config.trained_digits,
        budget=record.budget,
        evaluation={
            "task": bucket.task,
            "version": bucket.version,
            **split,
            "seed": bucket.seed,
            "max_digits": bucket.max_digits,
            "problems_per_cell": problems_per_cell,
            "sha256": bucket.sha256(problems_per_cell * bucket.num_pairs),
        },
        settings=record.settings,
    )


def open_training_data(
    path: Path, config: Config, seed: int, began_on: str | None = None
) -> Dataset:
    """Open the dataset at `path`.

    Raises UsageError unless it holds the problems that the run would make itself and has the hash
    `began_on`, if that is given.
    """
    dataset, bucket = Dataset(path), training_bucket(config, seed)
    if dataset.bucket != bucket:
        given = dataset.bucket
        raise UsageError(
            f"{path} holds {given.task} to {given.max_digits} digits of seed {given.seed}, and "
            f"this run trains on {bucket.task} to {bucket.max_digits} digits of seed "
            f"{bucket.seed}: leave --data out, or give `tape-arith generate` the preset, settings "
            "and seed of this run"
        )
    if dataset.manifest.count != config.num_problems:
        raise UsageError(
            f"{path} holds {dataset.manifest.count:,} problems and this run takes "
            f"{config.num_problems:,}"
        )
    if began_on not in (None, dataset.manifest.sha256):
        raise UsageError(
            f"{path} is not the dataset that the run began on ({dataset.manifest.sha256[:12]}, not "
            f"{began_on[:12]}): give that one, or leave --data out and the problems are made anew"
        )
    return dataset


def build_trainer(
    record: RunRecord, options: TrainOptions, processes: ProcessGroup = SINGLE
) -> Trainer:
    """Build the trainer of a run, at step 0.

    Raises UsageError if the run did not begin on `options.data`, or if `options.compute` cannot
    do what its encoding needs.
    """
    config, seed, origin = record.config, record.seed, record.init_from
    decoder = decoder_for(config, record.name, seed)
    hardware = resolve_attention(detect(*options.compute), decoder.needs)
    bucket = training_bucket(config, seed)
    source: Source = bucket
    if options.data is not None:
        source = open_training_data(options.data, config, seed, record.data)
    return Trainer(
        decoder,
        source,
        bucket,
        config,
        record.schedule,
        hardware,
        curves=options.curves,
        on_nonfinite=record.on_nonfinite,
        skip=0 if origin is None else origin.problems,
        tell=say if processes.first else lambda line: None,
        processes=processes,
    )
