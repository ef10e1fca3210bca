"""The runs that a comparison shows, and those that it leaves out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import slug
from tape_arith.arith.grids.comparable import differences
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.facts import Budget
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel, panels_of
from tape_arith.arith.registry.names import Name, parse, parse_list, parse_task
from tape_arith.arith.runs.command_lines import (
    completing_command,
    other_run_roots,
    score_command,
    train_command,
)
from tape_arith.arith.runs.folder import RunFolder, find_grids, find_runs, preset_folder
from tape_arith.arith.runs.preset import check_task, is_preset, load_preset, with_task
from tape_arith.arith.runs.record import Environment, RunRecord
from tape_arith.arith.terminal import say

ALL = "all"
"""As the value of `names`, it means every scored encoding of the preset."""
_MOST_NAMED = 8
"""The most encodings that a figure's file name lists."""
Key = tuple[str, str, int]
"""Preset, encoding and seed, which identify a run."""
T = TypeVar("T")


class _Candidate(Protocol):
    """A grid, or the files of a run."""

    @property
    def name(self) -> str: ...
    @property
    def preset(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def budget(self) -> Budget: ...


_C = TypeVar("_C", bound=_Candidate)


class Excluded(NamedTuple):
    """Runs that a comparison does not show, and why."""

    runs: str
    """ "rope seeds 0, 1; tape+yarn seed 0" """
    reason: str


# ---- the files of a run ------------------------------------------------------------------------


@dataclass(frozen=True)
class RunFiles:
    """The files of one run; an unreadable file is named on stderr and counts as missing."""

    folder: RunFolder
    record: RunRecord
    preset: str
    name: str
    """The encoding, as it was trained."""
    seed: int
    budget: Budget

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return or_default(self.folder.metrics, [])

    @cached_property
    def seconds(self) -> dict[str, float]:
        """The duration of each stage, in seconds."""
        return or_default(self.folder.timings, {})

    @cached_property
    def environment(self) -> Environment | None:
        return or_default(self.folder.environment, None)


def read_runs(root: Path) -> dict[Key, RunFiles]:
    """Return the runs below `root` by the key in their run.json, also of unknown encodings."""
    runs: dict[Key, RunFiles] = {}
    for folder in find_runs(root):
        record = or_default(folder.record, None)
        if record is not None:
            run = (record.preset, record.encoding, record.seed)
            runs[run] = RunFiles(folder, record, *run, record.budget)
    return runs


def key(grid: Grid) -> Key:
    """Return the key of the run that a grid belongs to."""
    return grid.preset, grid.encoding, grid.seed


def or_default(read: Callable[[], T], default: T) -> T:
    """Return the result of `read`, or `default` with a note on stderr if it fails."""
    try:
        return read()
    except (UsageError, Failure) as error:
        say(f"note: {error}")
        return default


# ---- which runs are shown ----------------------------------------------------------------------


def warn_excluded(excluded: Iterable[tuple[str, str]]) -> None:
    """Print a line to stderr for each group of runs that a comparison leaves out."""
    for runs, reason in excluded:
        say(f"note: left out: {runs}: {reason}")


def select_panels(
    root: Path,
    names: str = ALL,
    preset: str | None = None,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    runs: Mapping[Key, RunFiles] | None = None,
    task: str | None = None,
) -> tuple[list[Panel], list[Excluded]]:
    """Return the complete grids of each encoding in `names`, and the runs that are left out.

    The latter are named on stderr. With `runs` (all runs below `root`), other encodings that may be
    compared with `names` follow them. Raises UsageError as `choose_group` does; if nothing is
    scored, its message has the commands that make what is missing.
    """
    if preset is not None and task is not None:
        preset, task = with_task(preset, canonical_task(task)), None
    named = parse_names(names)
    wanted = list(map(str, named))
    read_all = runs is not None or not named
    every_grid = find_grids(root, preset, None if read_all else named, evaluation_set)
    if task is not None:
        every_grid = _of_task(task, every_grid)
    grids, partial = split_complete(root, every_grid, evaluation_set)
    shown, excluded = choose_group(
        grids,
        wanted,
        differences,
        lambda: nothing_scored(root, evaluation_set, preset, named, grids),
    )
    if read_all:
        scored = set(map(key, every_grid))
        unscored = [
            run
            for which, run in (read_runs(root) if runs is None else runs).items()
            if run.preset == shown[0].preset and which not in scored
        ]
        if unscored:
            excluded.append(Excluded(_listed(unscored), f"not scored{evaluation_set} yet"))
    warn_excluded(excluded)
    if partial := [grid for grid in partial if grid.preset == shown[0].preset]:
        excluded.append(scored_in_part(partial))
    return panels_of(shown, wanted), excluded


def split_complete(
    root: Path, grids: Iterable[Grid], evaluation_set: EvaluationSet
) -> tuple[list[Grid], list[Grid]]:
    """Return the complete grids and those scored in part; the latter are named on stderr."""
    complete: list[Grid] = []
    partial: list[Grid] = []
    for grid in grids:
        (complete if grid.complete else partial).append(grid)
    for grid in partial:
        count = f"{grid.blocks_done} of {grid.evaluation.problems_per_cell} problems a cell"
        command = completing_command(root, grid, evaluation_set)
        say(f"note: left out: {grid.name} seed {grid.seed}: {count} are scored: {command}")
    return complete, partial


def scored_in_part(grids: Iterable[Grid], task: str = "") -> Excluded:
    """Return grids of `task` as left out, because they are not complete."""
    return Excluded(f"{task}, {_listed(grids)}" if task else _listed(grids), "scored in part")


def _of_task(task: str, grids: Sequence[Grid]) -> list[Grid]:
    """Return the grids of a task. Raises UsageError if there are others but none of it."""
    task = canonical_task(task)
    tasks = {grid.evaluation.task for grid in grids}
    if tasks and task not in tasks:
        raise unknown("scored task", task, tasks)
    return [grid for grid in grids if grid.evaluation.task == task]


def canonical_task(text: str) -> str:
    """Return the name of a task as grids have it; one that is not here stays as it is."""
    with suppress(UsageError):
        return str(parse_task(text))
    return text


def parse_names(names: str) -> list[Name]:
    """Return the encodings of `--compare`, each once; [] means all. Raises UsageError for none."""
    named = [] if names == ALL else list(dict.fromkeys(parse_list(names)))
    if names != ALL and not named:
        raise UsageError("nothing to compare: name encodings, as in --compare fire,tape")
    return named


def choose_group(
    candidates: Sequence[_C],
    wanted: Sequence[str],
    differ: Callable[[_C, _C], str],
    nothing: Callable[[], UsageError],
) -> tuple[list[_C], list[Excluded]]:
    """Return the candidates to show, and those left out, with how they `differ` from the former.

    All are of the one preset that has every `wanted` encoding. Candidates that do not differ form
    a group, and one group is shown: that with the most wanted encodings, then one with the
    preset's own budget, then one whose runs drew their own weights, then the largest. Raises
    UsageError if several presets have every wanted encoding or the shown group lacks one, and what
    `nothing` returns if no preset has them all.
    """

    def order(group: Sequence[_C]) -> tuple[int, bool, bool, int, int]:
        is_preset, own_weights = budget_preference(group[0].preset, group[0].budget)
        names = {one.name for one in group}
        return len(names.intersection(wanted)), is_preset, own_weights, len(names), len(group)

    names_of: dict[str, set[str]] = {}
    for one in candidates:
        names_of.setdefault(one.preset, set()).add(one.name)
    complete = [preset for preset, names in names_of.items() if names.issuperset(wanted)]
    if not complete:
        raise nothing()
    if len(complete) > 1:
        raise UsageError(
            f"there are runs of {', '.join(wanted) or 'all'} in {', '.join(sorted(complete))}: "
            "choose one with --preset"
        )
    groups: list[list[_C]] = []
    for one in candidates:
        if one.preset == complete[0]:
            alike = next((group for group in groups if not differ(group[0], one)), None)
            if alike is None:
                groups.append(alike := [])
            alike.append(one)
    shown, *rest = sorted(groups, key=order, reverse=True)
    excluded = [Excluded(_listed(group), differ(group[0], shown[0])) for group in rest]
    if lacking := [name for name in wanted if name not in {one.name for one in shown}]:
        reasons = "; ".join(f"{runs}: {reason}" for runs, reason in excluded)
        raise UsageError(
            f"{', '.join(lacking)} and {shown[0].name} cannot stand in one figure ({reasons}): "
            "compare them apart, or train and score them alike"
        )
    return shown, excluded


def budget_preference(preset: str, budget: Budget) -> tuple[bool, bool]:
    """Return whether a budget is its preset's, and whether its runs drew their own weights."""
    own_weights = budget.steps_before is None
    if not is_preset(preset):
        return False, own_weights
    config = load_preset(preset)
    steps = config.steps == budget.steps == budget.first_steps
    return own_weights and steps and budget.config_sha256 == config.sha256, own_weights


def nothing_scored(
    root: Path,
    evaluation_set: EvaluationSet,
    preset: str | None = None,
    named: Sequence[Name] = (),
    grids: Sequence[Grid] = (),
) -> UsageError:
    """Return the error for missing grids, with the commands that make them.

    named  the encodings that are asked for; none: all
    grids  what is scored
    """
    check_task(preset)
    if not named:
        command = " ".join(["tape-arith score RUN", *evaluation_set.options])
        if evaluation_set == DEFAULT_SET:
            command = train_command(parse("rope"), preset, root)
        of_preset = f" of {preset}" if preset else ""
        return UsageError(
            f"no scored run{of_preset} in {root}{evaluation_set}: {command} makes one"
            f"{other_run_roots(root)}"
        )
    scored: dict[str, set[str]] = {preset or "mini": set()}
    for grid in grids:
        scored.setdefault(grid.preset, set()).add(grid.name)
    wanted = set(map(str, named))
    # A user most probably means the preset that lacks the fewest.
    closest = max(scored, key=lambda name: len(scored[name] & wanted))
    missing = [name for name in named if str(name) not in scored[closest]]
    commands = "; ".join(score_command(root, closest, name, evaluation_set) for name in missing)
    place = f"{', '.join(map(str, missing))} in {preset_folder(root, closest)}{evaluation_set}"
    return UsageError(f"no scored run of {place}: {commands}{other_run_roots(root)}")


def _listed(runs: Iterable[_Candidate]) -> str:
    """Return "rope seeds 0, 1; tape seed 0"."""
    seeds: dict[str, list[int]] = {}
    for run in runs:
        seeds.setdefault(run.name, []).append(run.seed)
    return "; ".join(
        f"{name} seed{'s' * (len(numbers) > 1)} {', '.join(map(str, sorted(numbers)))}"
        for name, numbers in seeds.items()
    )


def figure_path(
    root: Path, panels: Sequence[Panel], evaluation_set: EvaluationSet = DEFAULT_SET
) -> Path:
    """Return the default path of a heatmap: beside the runs of its preset."""
    names = join_names([panel.name for panel in panels])
    return preset_folder(root, panels[0].preset) / f"{names}{evaluation_set.name}.png"


def join_names(names: Sequence[str]) -> str:
    """Join encodings into part of a file's name: the first of them, then how many more."""
    more = len(names) - _MOST_NAMED
    return "-".join(map(slug, names[:_MOST_NAMED])) + (f"-and-{more}-more" if more > 0 else "")
