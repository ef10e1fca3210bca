"""Which of several runs may stand in one comparison, and which it leaves out."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.facts import Budget
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import seed_words
from tape_arith.arith.runs.preset import is_preset, load_preset
from tape_arith.arith.terminal import say


class _Candidate(Protocol):
    """A grid, or a training."""

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


def warn_excluded(excluded: Iterable[tuple[str, str]]) -> None:
    """Print a line to stderr for each group of runs that a comparison leaves out."""
    for runs, reason in excluded:
        say(f"note: left out: {runs}: {reason}")


def scored_in_part(grids: Iterable[Grid], task: str = "") -> Excluded:
    """Return incomplete grids as excluded; `task` is named in front of them."""
    seeds = run_words((grid.name, grid.seed) for grid in grids)
    return Excluded(f"{task}, {seeds}" if task else seeds, "scored in part")


def run_words(runs: Iterable[tuple[str, int]]) -> str:
    """Return "rope seeds 0, 1; tape seed 0" for pairs of encoding and seed."""
    seeds: dict[str, list[int]] = {}
    for name, seed in runs:
        seeds.setdefault(name, []).append(seed)
    return "; ".join(f"{name} {seed_words(sorted(numbers))}" for name, numbers in seeds.items())


def of_one_preset(candidates: Sequence[_C], wanted: Collection[str]) -> list[_C]:
    """Return the candidates of the preset that has every `wanted` encoding; [] if none has.

    Raises UsageError if several have.
    """
    names: dict[str, set[str]] = {}
    for one in candidates:
        names.setdefault(one.preset, set()).add(one.name)
    complete = sorted(preset for preset, own in names.items() if own.issuperset(wanted))
    if len(complete) > 1:
        raise UsageError(
            f"there are runs of {', '.join(wanted) or 'all'} in {', '.join(complete)}: "
            "choose one with --preset"
        )
    return [one for one in candidates if one.preset in complete]


def choose_group(
    candidates: Iterable[_C], differ: Callable[[_C, _C], str], wanted: Collection[str] = ()
) -> tuple[list[_C], list[Excluded]]:
    """Return the runs of one preset to show, and those left out, with how they `differ`.

    Candidates that do not differ form a group, and one group is shown: the one with the most
    `wanted` encodings; among equals the one with the preset's own budget, then with random first
    weights, then the largest. Raises UsageError if the shown group lacks a wanted encoding.
    """

    def order(group: Sequence[_C]) -> tuple[int, bool, bool, int, int]:
        is_preset, own_weights = budget_preference(group[0].preset, group[0].budget)
        names = {one.name for one in group}
        return len(names.intersection(wanted)), is_preset, own_weights, len(names), len(group)

    groups: list[list[_C]] = []
    for one in candidates:
        # Several groups only if something about this one is not known.
        alike = [group for group in groups if not differ(group[0], one)]
        if alike:
            max(alike, key=len).append(one)
        else:
            groups.append([one])
    shown, *rest = sorted(groups, key=order, reverse=True)
    excluded = [
        Excluded(run_words((one.name, one.seed) for one in group), differ(group[0], shown[0]))
        for group in rest
    ]
    if lacking := [name for name in wanted if name not in {one.name for one in shown}]:
        reasons = "; ".join(f"{runs}: {reason}" for runs, reason in excluded)
        raise UsageError(
            f"{', '.join(lacking)} and {shown[0].name} cannot be in one figure ({reasons}): "
            "compare them apart, or train and score them alike"
        )
    return shown, excluded


def budget_preference(preset: str, budget: Budget) -> tuple[bool, bool]:
    """Return whether a budget is its preset's, and whether its runs started from random weights."""
    own_weights = budget.steps_before is None
    if not is_preset(preset):
        return False, own_weights
    config = load_preset(preset)
    steps = config.steps == budget.steps == budget.first_steps
    return own_weights and steps and budget.config_sha256 == config.sha256, own_weights
