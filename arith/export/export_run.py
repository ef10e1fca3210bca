"""A trained run in other people's formats: for `transformers`, for lm-evaluation-harness."""

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
from tape_arith.arith.export.lm_eval import guide, write_tasks
from tape_arith.arith.export.model_card import card
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
    """Write the run in `folder`, with what is added at test time, in one of FORMATS; where it is.
    Of its problems the first `per_cell` of each pair of lengths, those of its grid where None.

    Errors: UsageError for an unknown format, a run that is not finished, an encoding that cannot be
    exported, a place that holds something else.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    record = trained_record(folder)
    name = Name(record.name.encoding, extrapolation)
    if form == "lm-eval":
        return _problems(record, out, per_cell, fresh)
    out = out or Path("exports") / _plain(f"{record.preset}-{slug(str(name))}-seed-{record.seed}")
    with exported(out, _facts(name, record), fresh) as place:
        _for_transformers(place, folder, name, record)
    return out


def _problems(record: RunRecord, out: Path | None, per_cell: int | None, fresh: bool) -> Path:
    """The problems of a run's grid: the same for all runs of a preset."""
    config = record.config
    count = per_cell or config.problems_per_cell
    check_size(config.tested_digits, count, config.trained_digits)
    bucket = Bucket(config.task, config.tested_digits, config.evaluation_seed, EVALUATION)
    sha256 = bucket.sha256(count * bucket.num_pairs)
    facts = {
        "format": "lm-eval",
        "task": bucket.task,
        "task_version": bucket.version,
        "trained_digits": config.trained_digits,
        "max_digits": bucket.max_digits,
        "problems_per_cell": count,
        "sha256": sha256,
    }
    out = out or Path("exports") / _plain(f"{record.preset}-{bucket.task}-lm-eval")
    with exported(out, facts, fresh) as place:
        group = write_tasks(place, bucket, config.trained_digits, count)
        write_text(place / "README.md", guide(group, bucket, count, sha256))
    return out


def _for_transformers(place: Path, folder: RunFolder, name: Name, record: RunRecord) -> None:
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
    # Buffers that an encoding makes of its setting are in no checkpoint of ours; there they are.
    tensors = {**decoder.state_dict(), **dict(decoder.named_buffers())}
    named = {PREFIX + key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
    try:
        save_file(named, place / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:  # how it reports a full disk
        raise Failure(f"cannot write {place / WEIGHTS}: {error}") from error
    write_text(place / "README.md", card(folder, name, record, decoder, version))


def _facts(name: Name, record: RunRecord) -> dict[str, Any]:
    return {
        "format": "transformers",
        "encoding": str(name),
        "preset": record.preset,
        "seed": record.seed,
        "config_sha256": record.config.sha256,
        "trained_with": record.version,
    }


def _plain(name: str) -> str:
    """A folder's name that is a Python name too: transformers imports code by it."""
    return re.sub(r"\W", "_", name)
