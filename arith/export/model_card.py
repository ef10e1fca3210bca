"""The card of an exported model: README.md of its folder, with the numbers of the grid's file."""

import numpy as np

from tape_arith.arith.errors import Failure
from tape_arith.arith.export.citations import bibtex, cited_papers
from tape_arith.arith.export.folder import render
from tape_arith.arith.figures.tables import percent
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.scoring import grid_file
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.scoring.regions import REGION_WORDS
from tape_arith.arith.scoring.statistics import one_run, wilson
from tape_arith.arith.tasks.task import load_task
from tape_arith.models.decoder import Decoder
from tape_arith.models.names.declarations import declaration
from tape_arith.models.names.parse import Name

_MOST_LENGTHS = 12
"""Rows of the table by length."""


def model_card(
    folder: RunFolder, name: Name, record: RunRecord, decoder: Decoder, version: str
) -> str:
    """Format the card of a run that is scored as `name`. Raises Failure for a corrupt grid."""
    file = folder.grid_file(name.extrapolation)
    grid = grid_file.load(file) if file.exists() else None
    declarations = [declaration("encoding", part.name) for part in name.encoding.parts]
    if name.extrapolation is not None:
        declarations.append(declaration("extrapolation", name.extrapolation.name))
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
    even = np.linspace(1, digits, min(digits, _MOST_LENGTHS)).round().astype(int).tolist()
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
