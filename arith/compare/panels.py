"""The grids that stand side by side in a comparison, and the runs that it leaves out."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tape_arith.arith.compare.order import Panels
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.command_lines import (
    other_run_roots,
    refuse_folder_of_preset,
    score_command,
    train_command,
)
from tape_arith.arith.runs.folder import find_grids, find_runs
from tape_arith.arith.runs.record import load_preset, presets
from tape_arith.arith.scoring.comparable import differences
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.terminal import say
from tape_arith.models.names.parse import Name, parse, parse_list

ALL = "all"
"""Given as names, it stands for every scored encoding of the preset."""


class Excluded(NamedTuple):
    """Runs that a comparison does not show."""

    runs: str
    """ "rope seeds 0, 1; tape+yarn seed 0" """
    why: str


def warn_excluded(excluded: Iterable[tuple[str, str]]) -> None:
    """Print a line to stderr for each of the runs that a comparison leaves out."""
    for runs, why in excluded:
        say(f"note: left out: {runs}: {why}")


def select_panels(
    root: Path,
    names: str = ALL,
    preset: str | None = None,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    *,
    with_others: bool = False,
) -> tuple[Panels, list[Excluded]]:
    """Return the grids of each encoding in `names`, one a seed, and the runs that are left out.

    All are of one preset, that in which all of `names` are scored, and may stand in one figure. Of
    several such groups this is the one with most of `names`, then the preset's own. With
    `with_others` the other encodings of the group follow. Raises UsageError if nothing is scored,
    with the commands that make what is missing, and if there are several presets.
    """
    named = [] if names == ALL else list(dict.fromkeys(parse_list(names)))
    if names != ALL and not named:
        raise UsageError("nothing to compare: name encodings, as in --compare fire,tape")
    wanted = list(map(str, named))
    read_all = with_others or not named
    grids = find_grids(root, preset, None if read_all else named, evaluation_set)
    by_preset: dict[str, list[Grid]] = {}
    for grid in grids:
        by_preset.setdefault(grid.preset, []).append(grid)
    complete = [name for name, members in by_preset.items() if _names(members).issuperset(wanted)]
    if not complete:
        raise _nothing_scored(root, named, preset, evaluation_set, by_preset)
    if len(complete) > 1:
        runs = f"{', '.join(wanted)} have runs in" if wanted else "there are runs of"
        raise UsageError(f"{runs} {', '.join(sorted(complete))}: choose one with --preset")

    def order(group: Sequence[Grid]) -> tuple[int, bool, bool, int, int]:
        preferred = budget_preference(group[0].preset, group[0].budget)
        size = len(_names(group))
        return (len(_names(group).intersection(wanted)), *preferred, size, len(group))

    shown, *others = sorted(_groups(by_preset[complete[0]]), key=order, reverse=True)
    excluded = [
        Excluded(_describe_runs(group), "; ".join(differences(group[0], shown[0])))
        for group in others
    ]
    lacking = [name for name in wanted if name not in _names(shown)]
    if lacking:
        why = "; ".join(f"{runs}: {reason}" for runs, reason in excluded)
        raise UsageError(
            f"{', '.join(lacking)} and {shown[0].name} cannot stand in one figure ({why}): "
            "compare them apart, or train and score them alike"
        )
    if read_all:
        excluded += _not_scored(root, complete[0], evaluation_set)
    ordered = dict.fromkeys([*wanted, *(grid.name for grid in shown)])
    return [[grid for grid in shown if grid.name == name] for name in ordered], excluded


def _names(grids: Iterable[Grid]) -> set[str]:
    return {grid.name for grid in grids}


def _nothing_scored(
    root: Path,
    named: Sequence[Name],
    preset: str | None,
    evaluation_set: EvaluationSet,
    by_preset: Mapping[str, Sequence[Grid]],
) -> UsageError:
    """Return the error for missing grids, with the commands that make them."""
    refuse_folder_of_preset(root)
    if not named:
        command = " ".join(["tape-arith score RUN", *evaluation_set.options])
        if evaluation_set == DEFAULT_SET:
            command = train_command(parse("rope"), preset, root)
        of_preset = f" of {preset}" if preset else ""
        return UsageError(
            f"no scored run{of_preset} in {root}{evaluation_set}: {command} makes one"
            f"{other_run_roots(root)}"
        )
    scored = {name: _names(members) for name, members in by_preset.items()}
    wanted = set(map(str, named))
    # The preset that lacks least is the one most probably meant.
    closest = max(scored, key=lambda name: len(scored[name] & wanted), default=preset or "mini")
    missing = [name for name in named if str(name) not in scored.get(closest, ())]
    commands = "; ".join(score_command(root, closest, name, evaluation_set) for name in missing)
    listed = ", ".join(map(str, missing))
    return UsageError(f"no scored run of {listed} in {root}/{closest}{evaluation_set}: {commands}")


def _groups(grids: Sequence[Grid]) -> list[list[Grid]]:
    """Return `grids` in groups within which they may stand in one figure."""
    groups: list[list[Grid]] = []
    for grid in grids:
        group = next((group for group in groups if not differences(group[0], grid)), None)
        if group is None:
            groups.append([grid])
        else:
            group.append(grid)
    return groups


def budget_preference(preset: str, budget: Mapping[str, object]) -> tuple[bool, bool]:
    """Return the key by which runs of one of several budgets are chosen: the largest wins.

    The preset as it stands comes first, then runs that drew their own weights.
    """
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
    return [Excluded(describe_seeds(seeds), f"not scored{evaluation_set} yet")] if seeds else []


def _describe_runs(grids: Sequence[Grid]) -> str:
    seeds: dict[str, list[int]] = {}
    for grid in grids:
        seeds.setdefault(grid.name, []).append(grid.seed)
    return describe_seeds(seeds)


def describe_seeds(seeds: Mapping[str, Sequence[int]]) -> str:
    """Return "rope seeds 0, 1; tape seed 0"."""
    return "; ".join(
        f"{name} seed{'s' * (len(numbers) > 1)} {', '.join(map(str, sorted(numbers)))}"
        for name, numbers in seeds.items()
    )
