"""The content of a report: a leaderboard, its runs, and the commands that repeat them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tape_arith.arith.compare.board import Board
from tape_arith.arith.compare.curves import curve_rows
from tape_arith.arith.compare.leaderboard import build_board
from tape_arith.arith.compare.selection import Key, Selection, TolerantState, key
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.runs.command_lines import reproduction_commands
from tape_arith.arith.runs.find import run_place

_MACHINE = ("commit", "torch", "hardware", "dtype", "attention", "threads")
"""The facts of a machine that a report lists, after the version of tape-arith."""


@dataclass(frozen=True)
class Provenance:
    """Where the numbers of one training come from, according to its files."""

    encoding: str
    """The encoding as it was trained, without an extrapolation."""
    seed: int
    folder: str
    facts: Mapping[str, str] = field(default_factory=dict)
    """Commit, torch, hardware, ...: all runs have the same keys; "" if not recorded."""
    config: Mapping[str, int | float | str] = field(default_factory=dict)
    commands: Sequence[str] = ()
    """The commands that train and score it again."""
    recorded: str | None = None
    """The command line that was recorded at its training."""


@dataclass(frozen=True)
class Report:
    """The encodings and runs that a page shows."""

    board: Board
    runs: Sequence[Provenance]
    curves: pd.DataFrame
    """As `Curves.rows`, with encodings in the order of the leaderboard."""
    command: str
    """The command line that writes this page again."""

    @property
    def panels(self) -> list[Panel]:
        return self.board.panels

    @property
    def seeds(self) -> list[int]:
        """Return every seed that any encoding has."""
        return sorted({seed for panel in self.panels for seed in panel.seeds})


def collect(selection: Selection, *, costs: bool = False) -> Report:
    """Return the report of a selection.

    Raises UsageError and Failure as `build_board` does.
    """
    board = build_board(selection, costs=costs)
    words = ["tape-arith", "report", "--preset", board.preset]
    words += ["--compare", selection.names] if selection.named else []
    words += selection.evaluation_set.options + ["--costs"] * costs
    scored: dict[Key, list[Grid]] = {}
    runs: dict[Key, TolerantState | None] = {}
    for row in board.rows:
        for grid, run in zip(row.panel.grids, row.runs, strict=True):
            scored.setdefault(key(grid), []).append(grid)
            runs[key(grid)] = run
    logged = {which: run.metrics for which, run in runs.items() if run is not None}
    return Report(
        board.labelled(),
        [_provenance(selection.root, grids, runs[which]) for which, grids in scored.items()],
        curve_rows((name, seed, lines) for (_, name, seed), lines in logged.items() if lines),
        shlex.join(words),
    )


def _provenance(root: Path, grids: Sequence[Grid], state: TolerantState | None) -> Provenance:
    """Describe a run from its files; a fact that they lack is ""."""
    first, evaluation = grids[0], grids[0].evaluation
    facts = {
        "configuration": state.record.config.sha256 if state else "",
        "evaluation set": evaluation.sha256,
        "task": f"{evaluation.task}, version {evaluation.version}",
        **dict.fromkeys(("tape-arith", *_MACHINE, "trained in", "dataset"), ""),
    }
    # Without the folders above the runs, which are private.
    folder = run_place(*key(first)).as_posix()
    if state is None:
        return Provenance(first.encoding, first.seed, folder, facts)
    machine, seconds = state.record.machine, state.record.seconds
    if machine is not None:
        facts["tape-arith"] = machine.tape_arith
        values = {name: getattr(machine, name) for name in _MACHINE}
        facts |= {name: "" if value is None else str(value) for name, value in values.items()}
    if "train" in seconds:
        facts["trained in"] = f"{seconds['train']:,.0f} s"
    facts["dataset"] = state.record.data or "made as needed"
    return Provenance(
        first.encoding,
        first.seed,
        folder,
        facts,
        state.record.config.as_dict(),
        reproduction_commands(root, state.record, grids),
        machine.command if machine else None,
    )
