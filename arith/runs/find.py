"""Find runs and grids below a folder of runs. Never imports torch."""

import os
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import slug
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import Encoding, Name
from tape_arith.arith.runs.record import TASK
from tape_arith.arith.runs.run import Run, RunState
from tape_arith.arith.terminal import say


def preset_folder(root: Path, preset: str) -> Path:
    """Return the folder of the runs of a preset, as in runs/mini@modular-sum@modulus=97."""
    return root / slug(preset)


def run_at(root: Path, preset: str, encoding: Encoding | str, seed: int) -> Run:
    """Return a run, whose path is always below `root`, because its parts are plain names."""
    return Run(preset_folder(root, preset) / slug(str(encoding)) / f"seed-{seed}")


def existing_run(path: Path) -> Run:
    """Return the run at `path`. Raises UsageError if there is none."""
    run = Run(path)
    if not run.exists():
        raise UsageError(f"{path} holds no run: `tape-arith list` shows where runs are")
    return run


def find_runs(
    roots: Path | Sequence[Path],
    preset: str | None = None,
    encoding: Encoding | None = None,
    seed: int | None = None,
) -> list[Run]:
    """Return the runs below `roots`, sorted by path: all, or those of a preset, encoding or seed.

    Of a run that several folders hold, the first counts. Among them are those whose record cannot
    be read. A folder that cannot be listed is named on stderr.
    """
    parts = ["*" if part is None else slug(str(part)) for part in (preset, encoding)]
    found: dict[Path, Run] = {}
    for root in _each(roots):
        folders = [root]
        for pattern in (*parts, f"seed-{'*' if seed is None else seed}"):
            folders = [match for folder in folders for match in _matching(folder, pattern)]
        for folder in filter(_has_record, sorted(folders)):
            found.setdefault(folder.relative_to(root), Run(folder))
    return list(found.values())


def _each(roots: Path | Sequence[Path]) -> Sequence[Path]:
    return [roots] if isinstance(roots, Path) else roots


def _matching(folder: Path, pattern: str) -> list[Path]:
    """Return what a folder holds whose name fits the pattern; [] if it is no folder."""
    try:
        return [folder / name for name in os.listdir(folder) if fnmatchcase(name, pattern)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        say(f"note: left out: {folder}: {error.strerror or error}")
        return []


def _has_record(folder: Path) -> bool:
    """Tell whether run.json is there, also as a link that leads nowhere or a folder in the way."""
    try:
        Run(folder).record_file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # whoever reads it says why
        return True
    return True


def find_grids(
    roots: Path | Sequence[Path],
    preset: str | None = None,
    names: Sequence[Name] | None = None,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    *,
    name_corrupt: bool = True,
) -> list[Grid]:
    """Return the grids below `roots` on `evaluation_set`: all, or those of `names`.

    A corrupt grid is named on stderr and left out, as is a run that an earlier folder holds too.
    With `names`, runs of other encodings are not read. Raises UsageError as `check_one_source`
    does.

    name_corrupt  whether to name each run.json that cannot be read on stderr; its grids count
    """
    slugs = ["*"] if names is None else [slug(str(name.encoding)) for name in names]
    wanted = None if names is None else set(map(str, names))
    result = []
    patterns = [f"{slug(preset) if preset else '*'}/{each}/seed-*" for each in dict.fromkeys(slugs)]
    runs: dict[Path, Run] = {}
    for root in _each(roots):
        for path in (path for pattern in patterns for path in sorted(root.glob(pattern))):
            run = runs.setdefault(path.relative_to(root), Run(path))
            if run.path != path:
                say(f"note: left out: {path}: the same run as {run.path}; another seed would add")
    states = [run.state() for run in runs.values()]
    check_one_source(states)
    for state in states:
        every = state.run.grids().values()
        grids = [grid for grid in every if wanted is None or grid.name in wanted]
        selected = _on_set(evaluation_set, state, grids)
        about = None
        try:
            about = state.record.about if selected else None
        except Failure as error:
            if name_corrupt:
                say(f"note: {error}")
        for grid in selected:
            grid.about = about
        if selected and evaluation_set.split != EVALUATION:
            complete = [grid for grid in grids if grid.complete]
            standard = {grid.name: grid for grid in _on_set(DEFAULT_SET, state, complete)}
            for grid in selected:
                grid.standard = standard.get(grid.name)
        result += selected
    # Whoever groups them compares with the first of a group, and nothing differs from the unknown.
    return sorted(result, key=lambda grid: grid.precision is None)


def _on_set(evaluation_set: EvaluationSet, state: RunState, grids: list[Grid]) -> list[Grid]:
    """Select the grids on `evaluation_set`; its `max_digits` None means the run's tested digits."""
    grids = [grid for grid in grids if grid.split == evaluation_set.split]
    digits = evaluation_set.max_digits
    if digits is None and grids:
        try:
            digits = state.record.config.tested_digits
        except Failure as error:
            if len({grid.name for grid in grids}) == len(grids):
                return grids
            say(f"note: left out: {error}")
    return [grid for grid in grids if grid.max_digits == digits]


def check_one_source(states: Sequence[RunState]) -> None:
    """Raise UsageError if runs of one encoding and preset were trained with different source files.

    Otherwise their seeds would be averaged as if they had one encoding. All runs of a preset must
    also have the same file of its task.
    """
    first: dict[tuple[str, ...], tuple[Run, dict[str, str]]] = {}
    for state in states:
        run = state.run
        with suppress(Failure):  # reported by whoever reads the record
            sources = state.record.sources
            tasks = {part: sha256 for part, sha256 in sources.items() if part.startswith(TASK)}
            preset, encoding = run.path.parent.parent.name, run.path.parent.name
            for alike, own in (((preset, encoding), sources), ((preset,), tasks)):
                other, other_own = first.setdefault(alike, (run, own))
                if own != other_own:
                    raise UsageError(
                        f"{other.path} and {run.path} were trained with different versions of "
                        f"{', '.join(own | other_own)}: train the older again with --fresh, or "
                        "keep the versions apart with --runs"
                    )
