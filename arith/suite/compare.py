"""Which grids a comparison takes, and what one line says of a grid. No torch here."""

from collections.abc import Sequence
from pathlib import Path

from arith.errors import UsageError
from arith.scoring.grid import Grid
from arith.suite.folders import find_grids, slug
from models.catalog import Name


def panels(root: Path, names: Sequence[Name], preset: str | None = None) -> list[list[Grid]]:
    """The grids of each of `names`, one a seed, all of one preset.

    Without `preset`, the one in which all of them have grids. Errors: UsageError where there is
    none, with the commands that make what is missing, or several.
    """
    if not names:
        raise UsageError("nothing to compare: name encodings, as in --compare fire,tape")
    wanted = [str(name) for name in names]
    grids = find_grids(root, preset, names)
    have = {grid.preset: {g.name for g in grids if g.preset == grid.preset} for grid in grids}
    complete = [name for name, there in have.items() if len(there) == len(set(wanted))]
    if len(complete) > 1:
        raise UsageError(
            f"{', '.join(wanted)} have runs in {', '.join(complete)}: choose one with --preset"
        )
    if not complete:
        # The preset that lacks least is the one most probably meant.
        closest = max(have, key=lambda name: len(have[name]), default=preset or "mini")
        missing = [name for name in wanted if name not in have.get(closest, set())]
        commands = "; ".join(f"tape-arith train --pe {n} --preset {closest}" for n in missing)
        raise UsageError(f"no scored run of {', '.join(missing)} in {root}/{closest}: {commands}")
    return [[g for g in grids if g.name == name and g.preset == complete[0]] for name in wanted]


def all_panels(root: Path, preset: str | None = None) -> list[list[Grid]]:
    """Every encoding that is scored, of the one preset that has runs. Errors: UsageError."""
    grids = find_grids(root, preset)
    presets = sorted({grid.preset for grid in grids})
    if len(presets) > 1:
        raise UsageError(f"there are runs of {', '.join(presets)}: choose one with --preset")
    if not grids:
        raise UsageError(f"no scored run in {root}: tape-arith train --pe rope makes one")
    names = dict.fromkeys(grid.name for grid in grids)
    return [[grid for grid in grids if grid.name == name] for name in names]


def figure_path(root: Path, panels: Sequence[Sequence[Grid]]) -> Path:
    """Where a comparison is drawn unless said otherwise: beside the runs of its preset."""
    names = "-".join(slug(panel[0].name) for panel in panels)
    return root / panels[0][0].preset / f"{names}.png"


def summary(grid: Grid) -> str:
    """The means of a grid in one line, in percent of exact answers."""

    def percent(value: float | None) -> str:
        return "incomplete" if value is None else f"{value:.1%}"

    return (
        f"{grid.name} seed {grid.seed}: out of distribution "
        f"{percent(grid.mean('out_of_distribution').value)}, in distribution "
        f"{percent(grid.mean('trained').value)}, all {percent(grid.mean('all').value)}"
    )
