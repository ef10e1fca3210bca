"""Find runs and grids below a folder of runs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import chain, product
from pathlib import Path

from tape_arith.arith.archives import ENDINGS, archive_of, is_archive, on_disk
from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import slug
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.facts import Budget
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import Encoding, Name
from tape_arith.arith.runs.record import TASK
from tape_arith.arith.runs.run import Run, RunState
from tape_arith.arith.terminal import say


def preset_folder(root: Path, preset: str) -> Path:
    """Return the folder for what is made of a preset's runs: among them, or beside an archive."""
    archive = archive_of(root)
    return (archive.parent if archive else root) / slug(preset)


def run_place(preset: str, encoding: Encoding | str, seed: int) -> Path:
    """Return where a run is in its folder of runs, as in mini@modular-sum@modulus=97/rope/seed-0.

    It is always below that folder, because its parts are plain names.
    """
    return Path(slug(preset), slug(str(encoding)), f"seed-{seed}")


def run_at(root: Path, preset: str, encoding: Encoding | str, seed: int) -> Run:
    """Return a run: in `root`, also if it is not there yet, or in an archive that `root` holds."""
    place = run_place(preset, encoding, seed)
    runs = [Run(source / place) for source in _sources(root)]
    return next((run for run in runs if run.exists()), runs[0])


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

    A root is an archive or a folder of runs, which may hold archives. Of a run that is in several,
    the first counts; a folder comes before its archives. Among them are those whose record cannot
    be read. A folder that cannot be listed is named on stderr.
    """
    runs: dict[Path, Run] = {}
    for root in _each(roots):
        for run in every_run(root, preset, encoding, seed):
            runs.setdefault(run.place, run)
    return list(runs.values())


def every_run(
    root: Path,
    preset: str | None = None,
    encoding: Encoding | None = None,
    seed: int | None = None,
    *,
    without_record: bool = False,
) -> list[Run]:
    """Return the runs of a folder and of the archives in it, or of an archive: doubles too.

    without_record  whether folders count that have a grid but no run.json
    """
    parts = ["*" if part is None else slug(str(part)) for part in (preset, encoding)]
    exists = _has_result if without_record else _has_record
    folders_by_source: dict[Path, Iterable[Path]] = {}
    for source in _sources(root):
        folders = [on_disk(source)]
        for pattern in (*parts, f"seed-{'*' if seed is None else seed}"):
            folders = [match for folder in folders for match in _matching(folder, pattern)]
        folders_by_source[source] = filter(exists, folders)
    return _in_order(folders_by_source)


def _each(roots: Path | Sequence[Path]) -> Sequence[Path]:
    return [roots] if isinstance(roots, Path) else roots


def _sources(root: Path) -> list[Path]:
    """Return a folder or archive of runs, and the archives that the folder holds.

    Raises UsageError if it is another file, or an archive that is not there.
    """
    if root.name.endswith(ENDINGS) and not root.exists():
        raise UsageError(f"there is no archive {root}")
    if root.is_file() and not is_archive(root):
        raise UsageError(f"{root} is neither a folder of runs nor an archive of `tape-arith pack`")
    with suppress(OSError):  # whoever looks for runs there says why
        return [root, *sorted(filter(is_archive, root.iterdir()))]
    return [root]


def _in_order(folders: Mapping[Path, Iterable[Path]]) -> list[Run]:
    """Return runs, sorted by place, from their folders on disk by folder of runs or archive."""
    runs = [Run(source / Run(path).place) for source, paths in folders.items() for path in paths]
    return sorted(runs, key=lambda run: run.place)


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


def _has_result(folder: Path) -> bool:
    return _has_record(folder) or bool(Run(folder).grid_files())


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
    runs: dict[Path, list[Run]] = {}
    for root, pattern in product(_each(roots), patterns):
        for run in _in_order({each: on_disk(each).glob(pattern) for each in _sources(root)}):
            _add(run, runs.setdefault(run.place, []))
    states = [run.state() for run in chain.from_iterable(runs.values())]
    check_one_source(states)
    for state in states:
        scored = state.run.grids().values()
        grids = [grid for grid in scored if wanted is None or grid.name in wanted]
        selected = _on_set(evaluation_set, state, grids)
        if not selected:
            continue
        about, standard = None, dict[str, Grid]()
        try:
            about = state.record.about
        except Failure as error:
            if name_corrupt:
                say(f"note: {error}")
        if evaluation_set.split != EVALUATION:
            complete = [grid for grid in grids if grid.complete]
            standard = {grid.name: grid for grid in _on_set(DEFAULT_SET, state, complete)}
        for grid in selected:
            grid.about, grid.standard = about, standard.get(grid.name)
        result += selected
    # Whoever groups them compares with the first of a group, and nothing differs from the unknown.
    return sorted(result, key=lambda grid: grid.precision is None)


def _add(run: Run, runs: list[Run]) -> None:
    """Add a run to those at the same place of other folders, unless it is one of them."""
    for first in runs:
        if first.path == run.path:
            return
        if _budget(first) == _budget(run):
            one, other = map(_grid_contents, (first, run))
            if all(one[name] == other[name] for name in one.keys() & other):
                reason = f"the same run as {first.path}; another seed would add"
            else:
                reason = f"another result of the run {first.path}, which counts"
            say(f"note: left out: {run.path}: {reason}")
            return
    runs.append(run)


def _grid_contents(run: Run) -> dict[str, bytes]:
    return {file.name: on_disk(file).read_bytes() for file in run.grid_files()}


def _budget(run: Run) -> Budget | None:
    """Return what must be equal in results that are compared; None if it cannot be read."""
    with suppress(Failure):
        return run.record().budget
    return None


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
