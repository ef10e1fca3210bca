"""The grids that stand side by side in a comparison, and the runs that it leaves out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tape_arith.arith.compare.order import Panels
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.command_lines import (
    completing_command,
    other_run_roots,
    score_command,
    train_command,
)
from tape_arith.arith.runs.folder import find_grids, find_runs
from tape_arith.arith.runs.record import load_preset, presets
from tape_arith.arith.scoring.comparable import differences
from tape_arith.arith.scoring.grid import DEFAULT_SET, EvaluationSet, Grid
from tape_arith.arith.terminal import say
from tape_arith.models.names import Name, parse, parse_list

ALL = "all"
"""Given as names, it stands for every scored encoding of the preset."""


class Candidate(Protocol):
    """A grid, or the files of a run."""

    @property
    def name(self) -> str: ...
    @property
    def preset(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def budget(self) -> Mapping[str, Any]: ...


C = TypeVar("C", bound=Candidate)


class Excluded(NamedTuple):
    """Runs that a comparison does not show."""

    runs: str
    """ "rope seeds 0, 1; tape+yarn seed 0" """
    reason: str


def split_complete(
    root: Path, grids: Sequence[Grid], evaluation_set: EvaluationSet
) -> tuple[list[Grid], list[Grid]]:
    """Return the complete grids, and those whose scoring was interrupted.

    Names each of the latter on stderr, with the command that completes it.
    """
    partial = [grid for grid in grids if not grid.complete]
    for grid in partial:
        count = f"{grid.blocks_done} of {grid.evaluation['problems_per_cell']} problems a cell"
        command = completing_command(root, grid, evaluation_set)
        say(f"note: left out: {grid.name} seed {grid.seed}: {count} are scored: {command}")
    return [grid for grid in grids if grid.complete], partial


def warn_excluded(excluded: Iterable[tuple[str, str]]) -> None:
    """Print a line to stderr for each of the runs that a comparison leaves out."""
    for runs, reason in excluded:
        say(f"note: left out: {runs}: {reason}")


def select_panels(
    root: Path,
    names: str = ALL,
    preset: str | None = None,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    *,
    with_others: bool = False,
) -> tuple[Panels, list[Excluded]]:
    """Return the complete grids of each encoding in `names`, one a seed, and the runs left out.

    Names the latter on stderr. With `with_others` the other encodings that may stand beside them
    follow. Raises UsageError as `choose_group`; if nothing is scored, it has the commands that make
    what is missing.
    """
    named = parse_names(names)
    wanted = list(map(str, named))
    read_all = with_others or not named
    every_grid = find_grids(root, preset, None if read_all else named, evaluation_set)
    grids, partial = split_complete(root, every_grid, evaluation_set)
    scored: dict[str, set[str]] = {}
    for grid in grids:
        scored.setdefault(grid.preset, set()).add(grid.name)
    shown, excluded = choose_group(
        grids,
        wanted,
        lambda one, other: "; ".join(differences(one, other)),
        lambda: _nothing_scored(root, named, preset, evaluation_set, scored),
    )
    if read_all:
        excluded += _not_scored(root, shown[0].preset, evaluation_set)
    warn_excluded(excluded)
    if seeds := _seeds([grid for grid in partial if grid.preset == shown[0].preset]):
        excluded.append(Excluded(_describe_seeds(seeds), "scored in part"))
    ordered = dict.fromkeys([*wanted, *(grid.name for grid in shown)])
    return [[grid for grid in shown if grid.name == name] for name in ordered], excluded


def parse_names(names: str) -> list[Name]:
    """Return the encodings of `--compare`, each once; [] for all. Raises UsageError for none."""
    named = [] if names == ALL else list(dict.fromkeys(parse_list(names)))
    if names != ALL and not named:
        raise UsageError("nothing to compare: name encodings, as in --compare fire,tape")
    return named


def choose_group(
    candidates: Sequence[C],
    wanted: Sequence[str],
    differ: Callable[[C, C], str],
    nothing: Callable[[], UsageError],
) -> tuple[list[C], list[Excluded]]:
    """Return the candidates to show, and those left out, with how they `differ` from these.

    All are of one preset, that in which all `wanted` encodings are there, and alike. Of several
    such groups this is the one with most of the wanted, then the preset as it stands, then one
    whose runs drew their own weights, then the largest. Raises UsageError if there are several
    such presets, if two wanted encodings are not alike, and what `nothing` returns for no preset.
    """

    def order(group: Sequence[C]) -> tuple[int, bool, bool, int, int]:
        is_preset, own_weights = budget_preference(group[0].preset, group[0].budget)
        names = _names(group)
        return len(names.intersection(wanted)), is_preset, own_weights, len(names), len(group)

    by_preset: dict[str, list[C]] = {}
    for one in candidates:
        by_preset.setdefault(one.preset, []).append(one)
    complete = [p for p, members in by_preset.items() if _names(members).issuperset(wanted)]
    if not complete:
        raise nothing()
    if len(complete) > 1:
        raise UsageError(
            f"there are runs of {', '.join(wanted) or 'all'} in {', '.join(sorted(complete))}: "
            "choose one with --preset"
        )
    groups: list[list[C]] = []
    for one in by_preset[complete[0]]:
        alike = next((group for group in groups if not differ(group[0], one)), None)
        if alike is None:
            groups.append(alike := [])
        alike.append(one)
    shown, *rest = sorted(groups, key=order, reverse=True)
    excluded = []
    for group in rest:
        excluded.append(Excluded(_describe_seeds(_seeds(group)), differ(group[0], shown[0])))
    lacking = [one for one in wanted if one not in _names(shown)]
    if lacking:
        reasons = "; ".join(f"{runs}: {reason}" for runs, reason in excluded)
        raise UsageError(
            f"{', '.join(lacking)} and {shown[0].name} cannot stand in one figure ({reasons}): "
            "compare them apart, or train and score them alike"
        )
    return shown, excluded


def _names(group: Iterable[Candidate]) -> set[str]:
    return {one.name for one in group}


def budget_preference(preset: str, budget: Mapping[str, object]) -> tuple[bool, bool]:
    """Return whether a budget is that of its preset, and whether runs drew their own weights."""
    is_preset = False
    if preset in presets():
        config = load_preset(preset)
        own = {
            "steps": config.steps,
            "first_steps": config.steps,
            "config_sha256": config.sha256,
            "steps_before": None,
        }
        is_preset = all(budget.get(key) == value for key, value in own.items())
    return is_preset, budget.get("steps_before") is None


def _nothing_scored(
    root: Path,
    named: Sequence[Name],
    preset: str | None,
    evaluation_set: EvaluationSet,
    scored: Mapping[str, set[str]],
) -> UsageError:
    """Return the error for missing grids, with the commands that make them."""
    if not named:
        command = " ".join(["tape-arith score RUN", *evaluation_set.options])
        if evaluation_set == DEFAULT_SET:
            command = train_command(parse("rope"), preset, root)
        of_preset = f" of {preset}" if preset else ""
        return UsageError(
            f"no scored run{of_preset} in {root}{evaluation_set}: {command} makes one"
            f"{other_run_roots(root)}"
        )
    wanted = set(map(str, named))
    # The preset that lacks least is the one most probably meant.
    closest = max(scored, key=lambda name: len(scored[name] & wanted), default=preset or "mini")
    missing = [name for name in named if str(name) not in scored.get(closest, ())]
    commands = "; ".join(score_command(root, closest, name, evaluation_set) for name in missing)
    listed = ", ".join(map(str, missing))
    place = f"{root}/{closest}{evaluation_set}"
    return UsageError(f"no scored run of {listed} in {place}: {commands}{other_run_roots(root)}")


def _not_scored(root: Path, preset: str, evaluation_set: EvaluationSet) -> list[Excluded]:
    """Return the runs without a grid on `evaluation_set`, trained or in training."""
    seeds: dict[str, list[int]] = {}
    for folder in find_runs(root):
        try:
            record = folder.record()
        except Failure as error:
            if not folder.has_grid(evaluation_set):
                say(f"note: {error}")
            continue
        normalized = evaluation_set.normalized(record.config.tested_digits)
        if record.preset == preset and not folder.has_grid(normalized):
            seeds.setdefault(record.encoding, []).append(record.seed)
    return [Excluded(_describe_seeds(seeds), f"not scored{evaluation_set} yet")] if seeds else []


def _seeds(group: Iterable[Candidate]) -> dict[str, list[int]]:
    seeds: dict[str, list[int]] = {}
    for one in group:
        seeds.setdefault(one.name, []).append(one.seed)
    return seeds


def _describe_seeds(seeds: Mapping[str, Sequence[int]]) -> str:
    """Return "rope seeds 0, 1; tape seed 0"."""
    return "; ".join(
        f"{name} seed{'s' * (len(numbers) > 1)} {', '.join(map(str, sorted(numbers)))}"
        for name, numbers in seeds.items()
    )
