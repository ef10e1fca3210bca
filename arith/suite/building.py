"""From a run's config to its decoder, its problems and its weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from arith.data.bucket import EVALUATION, Bucket
from arith.data.dataset import Dataset
from arith.data.task import load_task
from arith.data.vocabulary import DIGIT_ZERO, EOS, SIZE, token
from arith.errors import Failure, UsageError
from arith.scoring.grid import Grid, check_size
from arith.suite.checkup.machine import available_memory
from arith.suite.folders import RunFolder
from arith.suite.foreign import all_ours, blaming, vet
from arith.suite.record import FIRST_TASK_VERSION, RunRecord
from arith.training import checkpoint
from arith.training.config import Config
from models import catalog
from models.backends import choose
from models.build import build, build_decoder
from models.catalog import Name, Part
from models.decoder import Decoder, DecoderConfig
from models.encoding import Setting
from models.hardware import Hardware, detect


def check(config: Config, name: Name, attention: str = "auto") -> None:
    """Refuse, before anything is written, what could not be trained and scored here.

    Errors: UsageError; Failure where an encoding of somebody else's fails at this size.
    """
    Bucket(config.task, config.tested_digits, config.evaluation_seed, EVALUATION)
    vet(name.encoding)
    settled(detect(attention), on_paper(config, name))


def settled(hardware: Hardware, decoder: Decoder) -> Hardware:
    """`hardware` with the backend of attention that `decoder` is to use, in place of "auto".

    Errors: UsageError where the one asked for cannot do what the encoding needs.
    """
    backend = choose(hardware.attention, decoder.pe.needs, hardware)
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


def decoder_for(config: Config, name: Name, seed: int) -> Decoder:
    """A fresh decoder of the config's size that holds the encoding `name`; where that says so,
    only the encoding's own parameters will be trained."""
    sizes = DecoderConfig(
        vocabulary_size=SIZE,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        mlp_size=config.mlp_size,
    )
    decoder = build_decoder(sizes, name, setting_for(config), seed)
    origin = name.encoding.origin
    if origin is not None and origin.only_positional:
        decoder.requires_grad_(False)
        decoder.pe.requires_grad_(True)
    return decoder


def on_paper(config: Config, name: Name) -> Decoder:
    """The decoder of `decoder_for`, to be looked at: without memory for its weights.

    Somebody else's encoding is built for real all the same, for its constructor may read a number
    off a tensor, or keep a tensor for the decoder that is trained: first the decoder around it must
    be no larger than the memory that is free, for `config` may come with a run and say any size.

    Errors: UsageError where it is larger; Failure where that encoding cannot be built.
    """
    with torch.device("meta"):
        if all_ours(name.encoding):
            return decoder_for(config, name, seed=0)
        decoder = decoder_for(config, catalog.parse("nope"), seed=0)
    needed = sum(weight.nbytes for weight in decoder.parameters())
    free, _ = available_memory()
    if needed > free:
        raise UsageError(
            f"a decoder for {name.encoding} takes {needed:,} bytes without it, and {free:,} are "
            "free: take a smaller size"
        )
    with blaming(name.encoding), torch.random.fork_rng(devices=[]):
        decoder.pe = build(name, setting_for(config))
    return decoder


def training_bucket(config: Config, seed: int) -> Bucket:
    """The problems that a run of `seed` is trained on."""
    return Bucket(config.task, config.trained_digits, seed, "train")


def unchanged(path: Path, record: RunRecord) -> None:
    """Errors: UsageError where the run at `path` is of problems that this installation does not
    make, or of an encoding whose file is another now: it could neither go on nor be scored as what
    was trained."""
    task = load_task(record.config.task)
    if record.task_version != task.version:
        raise UsageError(
            f"{path} was trained on version {record.task_version} of {task.name}, and this "
            f"tape-arith makes version {task.version}: go on with tape-arith {record.version}, or "
            "train it anew, with --fresh or into another folder with --out"
        )
    try:
        encoding = catalog.parse(record.encoding).encoding
        now = catalog.sources(encoding)
        places = [catalog.place("encoding", part.name) for part in encoding.parts]
    except UsageError as error:
        raise UsageError(f"{path} was trained with {record.encoding}: {error}") from None
    for part in now.keys() - record.sources.keys():
        raise Failure(f"{path}/run.json names {part} without its SHA-256: nothing of it is run")
    for place in places:
        # To read somebody's run must not be to run what came along with it.
        if place.file is not None and place.file.resolve().is_relative_to(path.resolve()):
            raise Failure(f"{path} brings its own code ({place}): nothing of it is run")
    for part, sha256 in record.sources.items():
        if now.get(part) != sha256:
            raise UsageError(
                f"{path} was trained with another {part} (SHA-256 {sha256[:12]}, now "
                f"{now.get(part, 'none')[:12]}): put that one back, or remove the folder and train "
                "it anew"
            )


def trained_record(folder: RunFolder) -> RunRecord:
    """The record of a run that can be scored. Errors: UsageError where it is not trained to its end
    or began on another version of the task."""
    record = folder.record()
    unchanged(folder.path, record)
    if not folder.finished():
        raise UsageError(
            f"{folder.path} is not trained to its end: `tape-arith train {folder.path}`"
        )
    return record


def trained_decoder(
    folder: RunFolder, name: Name, record: RunRecord, attention: str = "auto"
) -> tuple[Decoder, Hardware]:
    """The decoder of a trained run with its final weights, on the device where it computes; `name`
    is the run's encoding, or with what is added to it at test time."""
    hardware = detect(attention)
    tensors = final_weights(folder, record, hardware.device)
    # A record may ask for more memory than there is; the weights are no larger than their file.
    fitting(on_paper(record.config, name), tensors, folder.final)
    decoder = decoder_for(record.config, name, record.seed)
    hardware = settled(hardware, decoder)
    load_weights(decoder, tensors, folder.final)
    return decoder.to(hardware.device), hardware


def empty_grid(
    record: RunRecord, bucket: Bucket, problems_per_cell: int, extrapolation: Part | None = None
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


def dataset_of(path: Path, config: Config, seed: int, began_on: str | None = None) -> Dataset:
    """The dataset at `path`, which must be what the run would make itself, and the one of hash
    `began_on` where the run began on one. Errors: UsageError."""
    dataset, bucket = Dataset(path), training_bucket(config, seed)
    if dataset.bucket != bucket:
        there, here = dataset.bucket, bucket
        raise UsageError(
            f"{path} holds {there.task} to {there.max_digits} digits of seed {there.seed}, and "
            f"this run trains on {here.task} to {here.max_digits} digits of seed {here.seed}: "
            f"generate that with --seed {here.seed}, or leave --data out"
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


def identity(record: RunRecord) -> dict[str, Any]:
    """What a checkpoint must say to belong to a run."""
    return {
        "encoding": record.encoding,
        "seed": record.seed,
        "task_version": record.task_version,
        "config_sha256": record.config.sha256,
    }


def load_state(
    path: Path, record: RunRecord, device: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A checkpoint of this run. Errors: Failure where it is of another."""
    decoder = on_paper(record.config, catalog.parse(record.encoding))
    # Adam keeps two numbers for each weight.
    weights = 3 * sum(weight.nbytes for weight in decoder.state_dict().values())
    tensors, facts = checkpoint.load(path, device, weights + checkpoint.MOST_HEADER)
    facts = {"task_version": FIRST_TASK_VERSION, **facts}
    for key, value in identity(record).items():
        if facts.get(key) != value:
            raise Failure(f"{path} belongs to another run: {key} is {facts.get(key)}, not {value}")
    return tensors, facts


def final_weights(folder: RunFolder, record: RunRecord, device: str) -> dict[str, Tensor]:
    """Those of a trained run. Errors: Failure, which says how to get them back where they are
    damaged."""
    try:
        tensors, facts = load_state(folder.final, record, device)
    except checkpoint.Corrupt as error:
        again = "the last steps" if folder.before_cooldown.exists() else "the run"
        mend = f"remove it, then `tape-arith train {folder.path}` takes {again} again"
        raise checkpoint.Corrupt(f"{error}: {mend}") from error
    if facts.get("step") != record.config.steps:
        raise Failure(
            f"{folder.final} is of step {facts.get('step')}, and the run is trained for "
            f"{record.config.steps}: remove it, then `tape-arith train {folder.path}`"
        )
    return tensors


def fitting(decoder: Decoder, tensors: dict[str, Tensor], path: Path) -> None:
    """Errors: Failure where a checkpoint's tensors have not the shapes and types of `decoder`'s, or
    hold what is not finite."""

    def told(tensor: Tensor) -> str:
        return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"

    right = {f"model/{name}": told(tensor) for name, tensor in decoder.state_dict().items()}
    found = {name: told(tensor) for name, tensor in tensors.items()}
    for name in sorted(right.keys() | found.keys()):
        if right.get(name) != found.get(name):
            raise Failure(
                f"{path} does not fit the run's decoder: {name} is {found.get(name, 'missing')}, "
                f"not {right.get(name, 'of it')}"
            )
        if not tensors[name].isfinite().all():
            raise Failure(f"{path} holds weights that are not finite: {name}")


def load_weights(decoder: Decoder, tensors: dict[str, Tensor], path: Path) -> None:
    """Put a checkpoint into `decoder`. Errors: Failure where it does not fit."""
    weights = {name.removeprefix("model/"): tensor for name, tensor in tensors.items()}
    try:
        decoder.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise Failure(f"{path} does not fit the run's decoder: {reason}") from error
