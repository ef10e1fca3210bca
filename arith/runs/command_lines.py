"""Write the command lines of messages and jobs."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tape_arith.arith.archives import archive_of, how_to_unpack, is_archive
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import Name, NamePart
from tape_arith.arith.runs.find import find_runs, run_at, run_place
from tape_arith.arith.runs.preset import changed_settings, is_preset
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.run import Run

_ANEW = (
    "train it again, into another folder with --runs, or with --fresh, which drops its grids too"
)


def train_command(name: Name, preset: str | None, root: Path, seed: int = 0) -> str:
    """Return the command that trains `name` below `root`, where comparisons find the run."""
    origin = name.encoding.origin
    words = ["train", "--pe", str(name) if origin is None else name.encoding.own]
    if origin is not None:
        source = run_at(root, preset or "PRESET", origin.encoding, seed).path
        words += init_from_options(name, source)
    elif preset is not None:
        words += ["--preset", preset]
    words += ["--seed", str(seed)] if seed else []
    return _quoted(words if root == Path("runs") else [*words, "--runs", str(root)])


def init_from_options(name: Name, source: Path) -> list[str]:
    """Return the options that start the training of `name` from the run in `source`."""
    origin = name.encoding.origin
    only = ["--only-positional"] if origin is not None and origin.only_positional else []
    return ["--init-from", str(source), *only]


def resume_command(run: Run, *options: str) -> str:
    """Return the command that continues the training of a run."""
    return _quoted(["train", str(run.path), *options])


def score_command(root: Path, preset: str, name: Name, evaluation_set: EvaluationSet) -> str:
    """Return the next command towards a missing grid: train, resume or score the first seed."""
    if runs := find_runs(root, preset, name.encoding):
        run = runs[0]
        state = run.state()
        if state.weights == "checkpoint":
            return resume_command(run)
        if state.weights == "final" or state.lacks_weights:
            return _scoring(run, name.extrapolation, evaluation_set)
    return train_command(name, preset, root)


def completing_command(root: Path, grid: Grid, evaluation_set: EvaluationSet) -> str:
    """Return the command that completes a grid, or the reason why no command can."""
    run = run_at(root, grid.preset, grid.encoding, grid.seed)
    return _scoring(run, grid.extrapolation, evaluation_set)


def _scoring(run: Run, extrapolation: NamePart | str | None, evaluation_set: EvaluationSet) -> str:
    """Return the command that scores a run, or how to get its weights first."""
    if run.state().lacks_weights:
        return why_no_weights(run)
    return _quoted(["score", str(run.path), *score_options(extrapolation, evaluation_set)])


def reproduction_commands(root: Path, record: RunRecord, grids: Sequence[Grid]) -> list[str]:
    """Return the commands that train a run again, in the folder runs, and score its `grids`.

    If the run started from another run's weights, the other run is looked up below `root` and
    trained first. Returns [] if the other run or a preset is unknown here.
    """
    lines = _training_lines(root, record)
    for grid in grids if lines else ():
        evaluation_set = EvaluationSet(grid.split, grid.max_digits)
        options = score_options(
            grid.extrapolation, evaluation_set.normalized(record.config.tested_digits)
        )
        if options:  # training scores the standard grid
            lines.append(["score", str(_new_folder(record)), *options])
    return list(map(_quoted, lines))


def _training_lines(root: Path, record: RunRecord) -> list[list[str]]:
    """Return the words of the commands that train a run again, after the run it began from."""
    if not is_preset(record.preset):
        return []
    lines: list[list[str]] = []
    words = ["train", "--pe", record.encoding]
    if record.init_from is not None:
        try:
            origin, name = record.init_from, record.name
            source = run_at(root, record.preset, origin.encoding, origin.seed).record()
        except (Failure, UsageError):  # the other run or the encoding's file is missing
            return []
        expected = (origin.encoding, origin.seed, origin.config_sha256, origin.steps)
        # A folder may hold a run other than the one that its name says.
        if (source.encoding, source.seed, source.config.sha256, source.total_steps) == expected:
            lines = _training_lines(root, source)
        if not lines:
            return []
        words = ["train", "--pe", name.encoding.own, *init_from_options(name, _new_folder(source))]
    words += ["--seed", str(record.seed), "--preset", record.preset]
    words += [] if record.on_nonfinite == "stop" else ["--on-nonfinite", record.on_nonfinite]
    config = replace(record.config, steps=record.first_steps)
    for key, value in changed_settings(config, record.preset).items():
        words += ["--set", f"{key}={value}"]
    lines.append(words)
    if record.config.steps != record.first_steps:
        lines.append(["train", str(_new_folder(record)), "--steps", str(record.config.steps)])
    return lines


def _new_folder(record: RunRecord) -> Path:
    return Path("runs") / run_place(record.preset, record.encoding, record.seed)


def _quoted(words: list[str]) -> str:
    return shlex.join(["tape-arith", *words])


def score_options(extrapolation: NamePart | str | None, evaluation_set: EvaluationSet) -> list[str]:
    """Return the options that select a grid; [] for the standard grid."""
    extra = ["--with", str(extrapolation)] if extrapolation else []
    return [*extra, *evaluation_set.options]


def why_no_weights(run: Run) -> str:
    """Say why a run has no final weights, and how to get weights."""
    if archive := archive_of(run.path):
        return how_to_unpack(archive)
    if run.state().lacks_weights:
        return (
            f"{run.path} is scored, but its weights are not here: put {run.final.name} into "
            f"{run.final.parent}, or {_ANEW}"
        )
    return f"{run.path} is not trained to its end: `{resume_command(run)}`"


def how_to_restore_weights(run: Run) -> str:
    """Say how to restore final weights that are corrupt."""
    if run.grid_files() and not run.before_cooldown.exists():
        return f"put back a copy that is whole, or {_ANEW}"
    return f"remove it, then `{resume_command(run)}` trains the last steps, or all, again"


def next_step(root: Path, commands: str) -> str:
    """Return what to do if `root` lacks a run: name another folder of runs, or `commands`."""
    if archive_of(root):
        return "an archive is only read: name the folder or archive that has it with --runs"
    elsewhere = other_run_roots(root)
    if elsewhere and not find_runs(root):
        return elsewhere
    return "; ".join(filter(None, [commands, elsewhere]))


def other_run_roots(root: Path) -> str:
    """Name folders with runs, above or below `root`, for a message that `root` has none."""
    parts = {"*/seed-*": "one preset", "seed-*": "one encoding", ".": "a run"}
    for up, (inside, part) in enumerate(parts.items(), start=1):
        if next(root.glob(f"{inside}/run.json"), None) is not None:
            above = os.path.normpath(root / "/".join([".."] * up))
            return f"{root} is the folder of {part}: name that of all runs, --runs {above}"
    deeper = ("*", "*/*")  # a sweep that varies settings has a folder for each combination
    roots = {p.parents[3] for at in deeper for p in root.glob(f"{at}/*/*/seed-*/run.json")}
    roots |= {p.parent for at in deeper for p in root.glob(f"{at}/*") if is_archive(p)}
    if not roots:
        return ""
    return f"there are some in {', '.join(map(str, sorted(roots)[:5]))}: name one with --runs"
