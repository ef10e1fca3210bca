"""Which grids a comparison takes, which it leaves out, and what a line says of one. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from arith.data.bucket import EVALUATION
from arith.errors import Failure, UsageError
from arith.scoring.grid import Grid, comparable
from arith.suite.finding import find_grids, find_runs
from arith.suite.folders import RunFolder, slug
from arith.suite.order import Panels, in_order
from arith.suite.presets import load_preset, presets
from arith.suite.progress import say
from models import catalog
from models.catalog import Name

ALL = "all"
"""Given as names, it stands for every scored encoding of the preset."""
MOST_NAMED = 8
"""So many encodings are named in a figure's file."""


class LeftOut(NamedTuple):
    """Runs that a comparison does not show."""

    runs: str
    """ "rope seeds 0, 1; tape+yarn seed 0" """
    why: str


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
        commands = "; ".join(_what_scores(root, closest, name, split) for name in missing)
        listed = ", ".join(map(str, missing))
        raise UsageError(f"no scored run of {listed} in {root}/{closest}{_on(split)}: {commands}")
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
            f"no scored run{of} in {root}{_on(split)}: {how} makes one{elsewhere(root)}"
        )
    kept, *others = sorted(_groups(grids), key=_claim, reverse=True)
    left_out = [LeftOut(_runs(group), _why(group[0], kept[0])) for group in others]
    left_out += _not_scored(root, found[0], split)
    names = dict.fromkeys(grid.name for grid in kept)
    return [[grid for grid in kept if grid.name == name] for name in names], left_out


def tell(left_out: Iterable[tuple[str, str]]) -> None:
    """A line on stderr for each of what a comparison leaves out."""
    for runs, why in left_out:
        say(f"note: left out: {runs}: {why}")


def figure_path(root: Path, panels: Sequence[Sequence[Grid]]) -> Path:
    """Where a comparison is drawn unless said otherwise: beside the runs of its preset, under the
    names of its encodings, of the first and a count where they are many."""
    first = panels[0][0]
    problems = "" if first.split == EVALUATION else f"@{first.split}"
    return root / first.preset / f"{joined([panel[0].name for panel in panels])}{problems}.png"


def joined(names: Sequence[str]) -> str:
    """Encodings in the name of a file: MOST_NAMED of them, and how many more."""
    more = len(names) - MOST_NAMED
    return "-".join(map(slug, names[:MOST_NAMED])) + (f"-and-{more}-more" if more > 0 else "")


def summary(grid: Grid) -> str:
    """The means of a grid in one line, in percent of exact answers."""

    def percent(value: float | None) -> str:
        return "incomplete" if value is None else f"{value:.1%}"

    outside = grid.mean("out_of_distribution")
    longer = f"out of distribution {percent(outside.value)}"
    if not outside.cells:
        longer = f"nothing is out of distribution (trained and tested to {grid.max_digits} digits)"
    return (
        f"{grid.name} seed {grid.seed}{_on(grid.split)}: {longer}, in distribution "
        f"{percent(grid.mean('trained').value)}, all {percent(grid.mean('all').value)}"
    )


def _on(split: str) -> str:
    """ " on the split carry"; the usual one goes without saying."""
    return "" if split == EVALUATION else f" on the split {split}"


def _what_scores(root: Path, preset: str, name: Name, split: str) -> str:
    """The command that makes a missing grid: of the run that is there, whatever its settings, if
    any is."""
    found = sorted((root / preset / slug(str(name.encoding))).glob("seed-*/run.json"))
    folder = RunFolder(found[0].parent) if found else None
    if folder is None or not (folder.finished() or folder.unfinished()):
        return trains(name, preset, root)
    if folder.unfinished():
        return f"tape-arith train {folder.path}"
    way = f" --with {name.extrapolation}" if name.extrapolation else ""
    way += "" if split == EVALUATION else f" --split {split}"
    return f"tape-arith score {folder.path}{way}"


def trains(name: Name, preset: str | None, root: Path) -> str:
    """The command that trains `name` where a comparison in `root` finds it."""
    there = "" if root == Path("runs") else f" --out {root}"
    origin = name.encoding.origin
    if origin is None:
        of = "" if preset is None else f" --preset {preset}"
        return f"tape-arith train --pe {name}{of}{there}"
    only = " --only-positional" if origin.only_positional else ""
    begun = f"{root}/{preset or 'PRESET'}/{slug(str(origin.encoding))}/seed-0"
    return f"tape-arith train --pe {name.encoding.own} --init-from {begun}{only}{there}"


def elsewhere(root: Path) -> str:
    """Where below `root` there are runs that are not found from it: those of sweeps that change a
    preset have a folder of their own."""
    found = sorted({path.parents[3] for path in root.glob("*/*/*/seed-*/run.json")})
    return (
        f"; there are some in {', '.join(map(str, found[:5]))}: name one with --runs"
        if found
        else ""
    )


def _groups(grids: Sequence[Grid]) -> list[list[Grid]]:
    """`grids` in groups within which they may be compared."""
    groups: list[list[Grid]] = []
    for grid in grids:
        group = next((group for group in groups if _may_compare(group[0], grid)), None)
        if group is None:
            groups.append([grid])
        else:
            group.append(grid)
    return groups


def _may_compare(one: Grid, other: Grid) -> bool:
    try:
        comparable([one, other])
    except UsageError:
        return False
    return True


def _claim(group: Sequence[Grid]) -> tuple[bool, int, int]:
    """What decides which group is shown: whether it is the preset as it stands, then its size."""
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
    return own, len({grid.name for grid in group}), len(group)


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


def _not_scored(root: Path, preset: str, split: str) -> list[LeftOut]:
    """Runs that have no grid of the split at all, be it that they are still being trained."""
    found: dict[str, list[int]] = {}
    for folder in find_runs(root):
        if any(folder.path.glob(f"{folder.grid_file(split=split).stem}[.+-]*json")):
            continue
        try:
            record = folder.record()
        except Failure as error:
            say(f"note: {error}")
            continue
        if record.preset == preset:
            found.setdefault(record.encoding, []).append(record.seed)
    return [LeftOut(listed(found), f"not scored{_on(split)} yet")] if found else []


def _runs(grids: Sequence[Grid]) -> str:
    seeds: dict[str, list[int]] = {}
    for grid in grids:
        seeds.setdefault(grid.name, []).append(grid.seed)
    return listed(seeds)


def listed(seeds: Mapping[str, Sequence[int]]) -> str:
    """ "rope seeds 0, 1; tape seed 0" """
    return "; ".join(
        f"{name} seed{'s' * (len(of) > 1)} {', '.join(map(str, sorted(of)))}"
        for name, of in seeds.items()
    )
