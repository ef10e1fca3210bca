"""Exports a trained run for `transformers`, with a model card, or for lm-evaluation-harness."""

import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import save_file

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.errors import Failure, unknown
from tape_arith.arith.export.citations import bibtex, cited_papers
from tape_arith.arith.export.folder import exported, render
from tape_arith.arith.export.hub_folder import PREFIX, WEIGHTS, Model, write_folder
from tape_arith.arith.export.lm_eval import write_tasks
from tape_arith.arith.figures.captions import percent
from tape_arith.arith.files import write_text
from tape_arith.arith.machine import own_version
from tape_arith.arith.runs.build import setting_for
from tape_arith.arith.runs.folder import RunFolder, slug
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.weights import trained_decoder, trained_record
from tape_arith.arith.scoring.evaluation_set import check_size
from tape_arith.arith.scoring.grid import REGION_WORDS, Grid
from tape_arith.arith.scoring.statistics import one_run, wilson
from tape_arith.arith.tasks.task import load_task
from tape_arith.models.decoder import Decoder
from tape_arith.models.names.locate import locate
from tape_arith.models.names.parse import Name, NamePart

FORMATS = ("transformers", "lm-eval")
_CARD_LENGTHS = 12
"""Rows of the card's table by length."""


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
    write_text(target / "README.md", _model_card(folder, name, record, decoder, version))


def _default_folder(*words: str) -> Path:
    """Return a folder in `exports` named as a Python identifier: transformers imports it."""
    return Path("exports") / re.sub(r"\W", "_", "-".join(words))


# ---- model card --------------------------------------------------------------------------------


def _model_card(
    folder: RunFolder, name: Name, record: RunRecord, decoder: Decoder, version: str
) -> str:
    """Format the card of a run that is scored as `name`. Raises Failure for a corrupt grid."""
    file = folder.grid_file(name.extrapolation)
    grid = Grid.load(file) if file.exists() else None
    declarations = [locate("encoding", part.name).declaration() for part in name.encoding.parts]
    if name.extrapolation is not None:
        declarations.append(locate("extrapolation", name.extrapolation.name).declaration())
    task = load_task(record.config.task)
    prompt, _, answer = task.text(48, 5).partition("=")
    return render(
        "model_card.md",
        name=name,
        record=record,
        config=record.config,
        version=version,
        declarations=declarations,
        num_parameters=decoder.num_parameters(),
        num_own_parameters=sum(p.numel() for p in decoder.pe.parameters()),
        training_time=_training_time(folder),
        grid=grid,
        regions={} if grid is None else _regions(grid),
        lengths=[] if grid is None else [_length_row(grid, length) for length in _lengths(grid)],
        symbol=task.symbol,
        prompt=prompt,
        answer=answer,
        other_prompt=task.text(1, 2).partition("=")[0],
        citation=bibtex(cited_papers([name])),
    )


def _training_time(folder: RunFolder) -> str | None:
    try:
        seconds = folder.timings().get("train")
        hardware = folder.environment().hardware
    except Failure:
        return None
    return None if seconds is None else f"{seconds:,.0f} s on {hardware}"


def _regions(grid: Grid) -> dict[str, str]:
    """Format the mean of each region."""
    return {
        label: percent(one_run(grid, region)) if grid.mean(region).cells else "none scored"
        for region, label in REGION_WORDS.items()
    }


def _lengths(grid: Grid) -> list[int]:
    """Select lengths of the longer operand, the last trained one and the next among them."""
    digits, trained = grid.max_digits, grid.trained_digits
    even = np.linspace(1, digits, min(digits, _CARD_LENGTHS)).round().astype(int).tolist()
    return sorted({*even, trained, min(trained + 1, digits)})


def _length_row(grid: Grid, length: int) -> tuple[str, ...]:
    digits = np.arange(1, grid.max_digits + 1)
    cells = np.maximum(digits[:, None], digits) == length
    total, exact = int(grid.total[cells].sum()), int(grid.exact[cells].sum())
    if (grid.total[cells] == 0).any():
        return str(length), "not measured", "-", str(total)
    low, high = (100 * float(end) for end in wilson(exact, total))
    share = 100 * float(np.mean(grid.accuracy[cells]))
    return str(length), f"{share:.1f}", f"{low:.1f} to {high:.1f}", f"{total:,}"
