"""What a comparison leaves out: which grids, which runs, and why. No torch here."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.folder import find_runs
from tape_arith.arith.runs.record import load_preset, presets
from tape_arith.arith.scoring.comparable import check_comparable
from tape_arith.arith.scoring.evaluation_set import EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.terminal import say


class LeftOut(NamedTuple):
    """Runs that a comparison does not show."""

    runs: str
    """ "rope seeds 0, 1; tape+yarn seed 0" """
    why: str

    @classmethod
    def of(cls, group: Sequence[Grid], kept: Grid) -> "LeftOut":
        """The runs of `group`, which may not be compared with `kept`."""
        return cls(_runs(group), _why(group[0], kept))


def tell(left_out: Iterable[tuple[str, str]]) -> None:
    """A line on stderr for each of what a comparison leaves out."""
    for runs, why in left_out:
        say(f"note: left out: {runs}: {why}")


def groups(grids: Sequence[Grid]) -> list[list[Grid]]:
    """`grids` in groups within which they may be compared."""
    found: list[list[Grid]] = []
    for grid in grids:
        group = next((group for group in found if _may_compare(group[0], grid)), None)
        if group is None:
            found.append([grid])
        else:
            group.append(grid)
    return found


def _may_compare(one: Grid, other: Grid) -> bool:
    try:
        check_comparable([one, other])
    except UsageError:
        return False
    return True


def claim(group: Sequence[Grid]) -> tuple[bool, bool, int, int]:
    """What decides which group is shown: whether it is the preset as it stands, then whether its
    runs began with weights of their own, then its size."""
    first, own = group[0], False
    if first.preset in presets():
        config = load_preset(first.preset)
        usual = {
            "steps": config.steps,
            "first_steps": config.steps,
            "config_sha256": config.sha256,
            "steps_before": None,  # weights of its own, not those of another run
        }
        own = all(first.budget.get(key) == value for key, value in usual.items())
    from_scratch = first.budget.get("steps_before") is None
    return own, from_scratch, len({grid.name for grid in group}), len(group)


def not_scored(root: Path, preset: str, evaluation_set: EvaluationSet) -> list[LeftOut]:
    """Return the runs without a grid on `evaluation_set`, trained or in training."""
    found: dict[str, list[int]] = {}
    for folder in find_runs(root):
        try:
            record = folder.record()
        except Failure as error:
            if not folder.has_grid(evaluation_set):
                say(f"note: {error}")
            continue
        if record.preset == preset and not folder.has_grid(
            evaluation_set.normalized(record.config.tested_digits)
        ):
            found.setdefault(record.encoding, []).append(record.seed)
    return [LeftOut(listed(found), f"not scored{evaluation_set} yet")] if found else []


def listed(seeds: Mapping[str, Sequence[int]]) -> str:
    """ "rope seeds 0, 1; tape seed 0" """
    return "; ".join(
        f"{name} seed{'s' * (len(of) > 1)} {', '.join(map(str, sorted(of)))}"
        for name, of in seeds.items()
    )


def _runs(grids: Sequence[Grid]) -> str:
    seeds: dict[str, list[int]] = {}
    for grid in grids:
        seeds.setdefault(grid.name, []).append(grid.seed)
    return listed(seeds)


def _why(left: Grid, kept: Grid) -> str:
    """ "steps 2000, not 1000; evaluation set 0d87645f, not d87645f1": all that differs."""
    told = []
    for key in ("trained_digits", "budget", "evaluation"):
        mine, yours = getattr(left, key), getattr(kept, key)
        if not isinstance(mine, dict):
            mine, yours = {key: mine}, {key: yours}
        for part in dict.fromkeys([*mine, *yours]):
            here, there = mine.get(part), yours.get(part)
            if here == there:
                continue
            if None in (here, there) and part in ("steps_before", "config_before"):
                # Both tell one thing: which weights it began with.
                told.append("begun from another run" if there is None else "weights of its own")
            elif part == "config_sha256":
                told.append(f"other settings ({_settings(left, kept)})")
            elif part == "sha256":
                told.append(f"evaluation set {str(here)[:8]}, not {str(there)[:8]}")
            else:
                told.append(f"{part.replace('_', ' ')} {here}, not {there}")
    return "; ".join(dict.fromkeys(told))


def _settings(left: Grid, kept: Grid) -> str:
    """The settings that are not alike, of two grids of one preset; their hashes where a grid of an
    older version does not tell what was set. Steps are told by themselves."""
    usual = load_preset(left.preset) if left.preset in presets() else None
    every = {} if usual is None else usual.as_dict()
    hashes = [grid.budget.get("config_sha256", "unknown") for grid in (left, kept)]
    all_told = usual is None or all(
        grid.settings or sha256 == usual.sha256
        for grid, sha256 in zip((left, kept), hashes, strict=True)
    )
    told = []
    for key in dict.fromkeys([*left.settings, *kept.settings]) if all_told else ():
        here, there = (
            grid.settings.get(key, every.get(key, "the preset's")) for grid in (left, kept)
        )
        if key != "steps" and here != there:
            told.append(f"{key} {here}, not {there}")
    return "; ".join(told) or f"config {hashes[0][:8]}, not {hashes[1][:8]}"
