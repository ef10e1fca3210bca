"""Exports a trained run for `transformers` or for lm-evaluation-harness."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
    form: str,
    *,
    extrapolation: NamePart | None = None,
    out: Path | None = None,
    per_cell: int | None = None,
    fresh: bool = False,
) -> Path:
    """Write the run in `folder`, with an extrapolation at test time, in one of FORMATS; returns the
    folder written. Of problems, the first `per_cell` of each pair of lengths (None: as the grid).

    Raises UsageError for an unknown format, a run that is not finished, an encoding that cannot be
    exported, or an `out` that holds something else.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    record = trained_record(folder)
    name = Name(record.name.encoding, extrapolation)
    if form == "lm-eval":
        return _export_problems(record, out, per_cell, fresh)
    out = out or _default_folder(record.preset, slug(str(name)), f"seed-{record.seed}")
    with exported(out, _facts(name, record), fresh) as place:
        _write_model(place, folder, name, record)
    return out


def _export_problems(
    record: RunRecord, out: Path | None, per_cell: int | None, fresh: bool
) -> Path:
    """Export the problems of a run's grid, the same for all runs of a preset."""
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
    with exported(out, facts, fresh) as place:
        write_tasks(place, bucket, config.trained_digits, count)
    return out


def _write_model(place: Path, folder: RunFolder, name: Name, record: RunRecord) -> None:
    decoder, _ = trained_decoder(folder, name, record)
    version = own_version()
    model = Model(
        name=name,
        task=record.config.task,
        sizes=asdict(decoder.config),
        setting=asdict(setting_for(record.config)),
        version=version,
    )
    write_folder(place, model)
    # Buffers that an encoding computes from its setting are in no checkpoint, but in the export.
    tensors = {**decoder.state_dict(), **dict(decoder.named_buffers())}
    named = {PREFIX + key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
    try:
        save_file(named, place / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:  # a full disk
        raise Failure(f"cannot write {place / WEIGHTS}: {error}") from error
    write_text(place / "README.md", model_card(folder, name, record, decoder, version))


def _facts(name: Name, record: RunRecord) -> dict[str, Any]:
    return {
        "format": "transformers",
        "encoding": str(name),
        "preset": record.preset,
        "seed": record.seed,
        "config_sha256": record.config.sha256,
        "trained_with": record.version,
    }


def _default_folder(*words: str) -> Path:
    """A folder in `exports` whose name is a Python name too: transformers imports code by it."""
    return Path("exports") / re.sub(r"\W", "_", "-".join(words))
