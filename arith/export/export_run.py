"""Exports a trained run for `transformers` or for lm-evaluation-harness."""

import re
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.errors import Failure, unknown
from tape_arith.arith.export.folder import exported
from tape_arith.arith.export.hub_folder import PREFIX, WEIGHTS, Model, write_folder
from tape_arith.arith.export.lm_eval import write_tasks
from tape_arith.arith.export.model_card import model_card
from tape_arith.arith.files import write_text
from tape_arith.arith.runs.build import setting_for
from tape_arith.arith.runs.folder import RunFolder, slug
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.weights import trained_decoder, trained_record
from tape_arith.arith.scoring.limits import check_size
from tape_arith.arith.version import own_version
from tape_arith.models.names.parse import Name, NamePart

FORMATS = ("transformers", "lm-eval")


def export_run(
    folder: RunFolder,
    format: str,
    *,
    extrapolation: NamePart | None = None,
    out: Path | None = None,
    per_cell: int | None = None,
    fresh: bool = False,
) -> Path:
    """Write the run in `folder` in one of FORMATS; return the folder written.

    A model gets `extrapolation` at test time; of problems, the first `per_cell` of each pair of
    lengths are written (None: as many as in the grid).

    Raises UsageError for an unknown format, a run that is not finished, an encoding that cannot be
    exported, or an `out` that holds something else.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    record = trained_record(folder)
    name = Name(record.name.encoding, extrapolation)
    if format == "lm-eval":
        return _export_problems(record, out, per_cell, fresh)
    out = out or _default_folder(record.preset, slug(str(name)), f"seed-{record.seed}")
    facts = {
        "format": "transformers",
        "encoding": str(name),
        "preset": record.preset,
        "seed": record.seed,
        "config_sha256": record.config.sha256,
        "trained_with": record.version,
    }
    with exported(out, facts, fresh) as target:
        _write_model(target, folder, name, record)
    return out


def _export_problems(
    record: RunRecord, out: Path | None, per_cell: int | None, fresh: bool
) -> Path:
    """Write the problems of a run's grid, the same for all runs of a preset."""
    config = record.config
    count = per_cell or config.problems_per_cell
    check_size(config.tested_digits, count, config.trained_digits)
    bucket = Bucket(config.task, config.tested_digits, config.evaluation_seed, EVALUATION)
    facts = {
        "format": "lm-eval",
        "task": bucket.task,
        "task_version": bucket.version,
        "trained_digits": config.trained_digits,
        "max_digits": bucket.max_digits,
        "problems_per_cell": count,
        "sha256": bucket.sha256(count * bucket.num_pairs),
    }
    out = out or _default_folder(record.preset, bucket.task, "lm-eval")
    with exported(out, facts, fresh) as target:
        write_tasks(target, bucket, config.trained_digits, count)
    return out


def _write_model(target: Path, folder: RunFolder, name: Name, record: RunRecord) -> None:
    decoder, _ = trained_decoder(folder, name, record)
    version = own_version()
    model = Model(
        name=name,
        task=record.config.task,
        sizes=asdict(decoder.config),
        setting=asdict(setting_for(record.config)),
        version=version,
    )
    write_folder(target, model)
    # A checkpoint omits the buffers that an encoding computes from its setting; an export has them.
    tensors = {**decoder.state_dict(), **dict(decoder.named_buffers())}
    named = {PREFIX + key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
    try:
        save_file(named, target / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:  # a full disk
        raise Failure(f"cannot write {target / WEIGHTS}: {error}") from error
    write_text(target / "README.md", model_card(folder, name, record, decoder, version))


def _default_folder(*words: str) -> Path:
    """Return a folder in `exports` named as a Python identifier: transformers imports it."""
    return Path("exports") / re.sub(r"\W", "_", "-".join(words))
