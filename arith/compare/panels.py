"""Which grids a comparison takes. No torch here."""

from collections.abc import Sequence
from pathlib import Path

from tape_arith.arith.compare.order import Panels, in_order
from tape_arith.arith.compare.select import LeftOut, claim, groups, not_scored, tell
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.command_lines import (
    other_run_roots,
    refuse_folder_of_preset,
    score_command,
    train_command,
)
from tape_arith.arith.runs.folder import find_grids
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.models.names.parse import Name, parse, parse_list

ALL = "all"
"""Given as names, it stands for every scored encoding of the preset."""


def selection(
    root: Path,
    names: str,
    preset: str | None = None,
    *,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    seed: int | None = None,
    sort: bool = False,
) -> Panels:
    """What `--compare NAMES` shows: the encodings named, in their order or, with `sort`, in that of
    `order.sections`; with "all" every one that is scored (that has `seed`, where one is given),
    always in that order. What is left out of all is told on stderr. With `seed` the order is that
    of its means. Errors: UsageError as `panels`; Failure for a corrupt grid."""
    if names == ALL:
        chosen, left_out = all_panels(root, preset, evaluation_set)
        tell(left_out)
        chosen = [panel for panel in chosen if seed in (None, *(grid.seed for grid in panel))]
        if not chosen:
            raise UsageError(f"no scored run of seed {seed} in {root}{evaluation_set}")
        return in_order(chosen, seed)
    chosen = panels(root, parse_list(names), preset, evaluation_set)
    return in_order(chosen, seed) if sort else chosen


def panels(
    root: Path,
    names: Sequence[Name],
    preset: str | None = None,
    evaluation_set: EvaluationSet = DEFAULT_SET,
) -> Panels:
    """The grids of each of `names`, one a seed, all of one preset, on what is `evaluation_set`.

    Without `preset`, the one in which all of them have grids. Errors: UsageError where there is
    none, with the commands that make what is missing, or several.
    """
    if not names:
        raise UsageError("nothing to compare: name encodings, as in --compare fire,tape")
    wanted = [str(name) for name in names]
    grids = find_grids(root, preset, names, evaluation_set)
    have = {grid.preset: {g.name for g in grids if g.preset == grid.preset} for grid in grids}
    complete = [name for name, there in have.items() if len(there) == len(set(wanted))]
    if len(complete) > 1:
        raise UsageError(
            f"{', '.join(wanted)} have runs in {', '.join(complete)}: choose one with --preset"
        )
    if not complete:
        refuse_folder_of_preset(root)
        # The preset that lacks least is the one most probably meant.
        closest = max(have, key=lambda name: len(have[name]), default=preset or "mini")
        missing = [name for name in names if str(name) not in have.get(closest, set())]
        commands = "; ".join(score_command(root, closest, name, evaluation_set) for name in missing)
        listed = ", ".join(map(str, missing))
        raise UsageError(
            f"no scored run of {listed} in {root}/{closest}{evaluation_set}: {commands}"
        )
    return [[g for g in grids if g.name == name and g.preset == complete[0]] for name in wanted]


def all_panels(
    root: Path, preset: str | None = None, evaluation_set: EvaluationSet = DEFAULT_SET
) -> tuple[Panels, list[LeftOut]]:
    """Every encoding that is scored, of the one preset that has runs, as far as its grids may be
    compared; and the runs that are left out, with the reasons.

    Of several groups of grids that may not be compared with each other it is the preset's own
    budget and evaluation, else the group with most encodings. Errors: UsageError where nothing is
    scored, or in several presets; Failure for a corrupt grid.
    """
    grids = find_grids(root, preset, evaluation_set=evaluation_set)
    found = sorted({grid.preset for grid in grids})
    if len(found) > 1:
        raise UsageError(f"there are runs of {', '.join(found)}: choose one with --preset")
    if not grids:
        refuse_folder_of_preset(root)
        how = " ".join(["tape-arith score RUN", *evaluation_set.options])
        if evaluation_set == DEFAULT_SET:
            how = train_command(parse("rope"), preset, root)
        of = "" if preset is None else f" of {preset}"
        raise UsageError(
            f"no scored run{of} in {root}{evaluation_set}: {how} makes one{other_run_roots(root)}"
        )
    kept, *others = sorted(groups(grids), key=claim, reverse=True)
    left_out = [LeftOut.of(group, kept[0]) for group in others]
    left_out += not_scored(root, found[0], evaluation_set)
    names = dict.fromkeys(grid.name for grid in kept)
    return [[grid for grid in kept if grid.name == name] for name in names], left_out
