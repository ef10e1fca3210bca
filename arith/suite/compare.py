"""Which grids a comparison takes. No torch here."""

from collections.abc import Sequence
from pathlib import Path

from arith.data.bucket import EVALUATION
from arith.errors import UsageError
from arith.suite.advice import elsewhere, trains, what_scores
from arith.suite.finding import find_grids
from arith.suite.left_out import LeftOut, claim, groups, not_scored, tell
from arith.suite.order import Panels, in_order
from arith.suite.words import on
from models import catalog
from models.catalog import Name

ALL = "all"
"""Given as names, it stands for every scored encoding of the preset."""


def selection(
    root: Path,
    names: str,
    preset: str | None = None,
    *,
    split: str = EVALUATION,
    seed: int | None = None,
    sort: bool = False,
) -> Panels:
    """What `--compare NAMES` shows: the encodings named, in their order or, with `sort`, in that of
    `order.sections`; with "all" every one that is scored (that has `seed`, where one is given),
    always in that order. What is left out of all is told on stderr. With `seed` the order is that
    of its means. Errors: UsageError as `panels`; Failure for a corrupt grid."""
    if names == ALL:
        chosen, left_out = all_panels(root, preset, split)
        tell(left_out)
        chosen = [panel for panel in chosen if seed in (None, *(grid.seed for grid in panel))]
        if not chosen:
            raise UsageError(f"no scored run of seed {seed} in {root}")
        return in_order(chosen, seed)
    chosen = panels(root, catalog.parse_list(names), preset, split)
    return in_order(chosen, seed) if sort else chosen


def panels(
    root: Path, names: Sequence[Name], preset: str | None = None, split: str = EVALUATION
) -> Panels:
    """The grids of each of `names`, one a seed, all of one preset and split.

    Without `preset`, the one in which all of them have grids. Errors: UsageError where there is
    none, with the commands that make what is missing, or several.
    """
    if not names:
        raise UsageError("nothing to compare: name encodings, as in --compare fire,tape")
    wanted = [str(name) for name in names]
    grids = find_grids(root, preset, names, split)
    have = {grid.preset: {g.name for g in grids if g.preset == grid.preset} for grid in grids}
    complete = [name for name, there in have.items() if len(there) == len(set(wanted))]
    if len(complete) > 1:
        raise UsageError(
            f"{', '.join(wanted)} have runs in {', '.join(complete)}: choose one with --preset"
        )
    if not complete:
        # The preset that lacks least is the one most probably meant.
        closest = max(have, key=lambda name: len(have[name]), default=preset or "mini")
        missing = [name for name in names if str(name) not in have.get(closest, set())]
        commands = "; ".join(what_scores(root, closest, name, split) for name in missing)
        listed = ", ".join(map(str, missing))
        raise UsageError(f"no scored run of {listed} in {root}/{closest}{on(split)}: {commands}")
    return [[g for g in grids if g.name == name and g.preset == complete[0]] for name in wanted]


def all_panels(
    root: Path, preset: str | None = None, split: str = EVALUATION
) -> tuple[Panels, list[LeftOut]]:
    """Every encoding that is scored, of the one preset that has runs, as far as its grids may be
    compared; and the runs that are left out, with the reasons.

    Of several groups of grids that may not be compared with each other it is the preset's own
    budget and evaluation, else the group with most encodings. Errors: UsageError where nothing is
    scored, or in several presets; Failure for a corrupt grid.
    """
    grids = find_grids(root, preset, split=split)
    found = sorted({grid.preset for grid in grids})
    if len(found) > 1:
        raise UsageError(f"there are runs of {', '.join(found)}: choose one with --preset")
    if not grids:
        how = f"tape-arith score RUN --split {split}"
        if split == EVALUATION:
            how = trains(catalog.parse("rope"), preset, root)
        of = "" if preset is None else f" of {preset}"
        raise UsageError(
            f"no scored run{of} in {root}{on(split)}: {how} makes one{elsewhere(root)}"
        )
    kept, *others = sorted(groups(grids), key=claim, reverse=True)
    left_out = [LeftOut.of(group, kept[0]) for group in others]
    left_out += not_scored(root, found[0], split)
    names = dict.fromkeys(grid.name for grid in kept)
    return [[grid for grid in kept if grid.name == name] for name in names], left_out
