"""Find differences for which grids must not share a figure."""

from collections.abc import Sequence

from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.grid import Grid

_WEIGHTS = ("steps_before", "config_before")
"""Budget entries of a run that began with the weights of another run."""

_BUDGET = ("steps", "first_steps", "batch_size")
"""Budget entries that are 0 in the grid of a model that was trained elsewhere."""


def check_comparable(grids: Sequence[Grid]) -> None:
    """Raise UsageError, listing all differences, if `grids` must not share a figure."""
    # One whose precision is known comes first: what is not known differs from nothing.
    known_first = sorted(grids, key=lambda grid: grid.precision is None)
    for grid in known_first[1:]:
        if words := differences(grid, known_first[0]):
            run, first = (f"{each.name} seed {each.seed}" for each in (grid, known_first[0]))
            raise UsageError(
                f"one figure needs one preset, budget and evaluation set, and {run} differs from "
                f"{first} ({words}): draw them apart, or train and score them alike"
            )


def differences(one: Grid, other: Grid) -> str:
    """Return why two grids must not share a figure, as in "steps 2000, not 1000"; "" if none."""
    facts, other_facts = _facts(one), _facts(other)
    steps, words = (one.budget.steps, other.budget.steps), []
    for key in dict.fromkeys([*facts, *other_facts]):
        value, other_value = facts.get(key), other_facts.get(key)
        if value == other_value or (key == "precision" and None in (value, other_value)):
            continue
        if key == "precision":
            words.append(f"trained in {value}, not {other_value}")
        elif key in _BUDGET and 0 in steps:
            words.append("trained elsewhere: same_budget=True says that it was on this budget")
        elif key == "first_steps" and (value, other_value) == steps:
            continue  # neither was extended: steps say it
        elif key in _WEIGHTS and None in (value, other_value):
            words.append("weights of its own" if value is None else "started from another run")
        elif key == "config_sha256":
            words.append(f"other settings ({_settings(one, other)})")
        elif key == "sha256":
            words.append(f"evaluation set {str(value)[:8]}, not {str(other_value)[:8]}")
        else:
            words.append(f"{key.replace('_', ' ')} {value}, not {other_value}")
    return "; ".join(dict.fromkeys(words))


def is_same_run(one: Grid, other: Grid) -> bool:
    """Tell whether both grids have the same run, change at test time and evaluation set."""
    return (one.name, one.seed) == (other.name, other.seed) and not differences(one, other)


def _facts(grid: Grid) -> dict[str, object]:
    named = {"preset": grid.preset, "trained_digits": grid.trained_digits, "split": grid.split}
    return named | {"precision": grid.precision} | grid.budget.as_dict() | grid.evaluation.as_dict()


def _settings(one: Grid, other: Grid) -> str:
    words = []
    for key in dict.fromkeys([*one.settings, *other.settings]):
        value, other_value = (grid.settings.get(key, "the preset's") for grid in (one, other))
        if key != "steps" and value != other_value:  # steps are in the budget
            words.append(f"{key} {value}, not {other_value}")
    hashes = [grid.budget.config_sha256[:8] for grid in (one, other)]
    return "; ".join(words) or f"config {hashes[0]}, not {hashes[1]}"
