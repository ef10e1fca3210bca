"""The words and numbers around a comparison: what the means are, over what, and which runs."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tape_arith.arith.data.bucket import CARRY, EVALUATION
from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.comparable import comparable
from tape_arith.arith.scoring.grid import CONVERGED, Grid
from tape_arith.arith.scoring.regions import REGION_WORDS, Region
from tape_arith.arith.scoring.statistics import Interval, over_seeds

Panel = Sequence[Grid]
"""The grids of one encoding, one a seed."""

NBSP = "\N{NO-BREAK SPACE}"

MEANS: tuple[Region, ...] = ("out_of_distribution", "in_distribution", "all_cells")
"""The means that every figure prints, in this order."""

BRIEF: dict[Region, str] = {"out_of_distribution": "out", "in_distribution": "in"}
"""The means that a figure of many panels prints, and what they are called there."""

SPLITS = {EVALUATION: "", CARRY: "hard sums: long carry chains"}
"""What the problems of a split are; of the usual one there is nothing to say."""

MOST_SETTINGS = 4
"""So many of the settings that are not the preset's are named; the others are counted."""

MOST_OTHERS = 4
"""So many encodings are named that have other seeds than most; more are counted."""


def chosen(panels: Sequence[Panel], seed: int | None = None) -> list[list[Grid]]:
    """The grids to compare, seeds in order; with `seed` only that one of each encoding.

    Errors: UsageError for nothing to compare, a seed that is missing or there twice, grids of
    several encodings in one panel, and whatever `comparable` refuses.
    """
    if not panels or not all(panels):
        raise UsageError("nothing to compare: give at least one scored grid for each encoding")
    result = []
    for panel in panels:
        grids = sorted(panel, key=lambda grid: grid.seed)
        name, seeds = grids[0].name, [grid.seed for grid in grids]
        if any(grid.name != name for grid in grids):
            raise UsageError(f"a panel shows one encoding, not {name} and {grids[-1].name}")
        if len(set(seeds)) < len(seeds):
            raise UsageError(f"{name} has two grids of one seed among {_listed(seeds)}")
        if seed is not None:
            grids = [grid for grid in grids if grid.seed == seed]
            if not grids:
                raise UsageError(f"{name} has no seed {seed}: it has {_listed(seeds)}")
        result.append(grids)
    names = [grids[0].name for grids in result]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{twice} is named twice: name each encoding once")
    comparable([grid for grids in result for grid in grids])
    return result


def percent(interval: Interval) -> str:
    """ "18.2 ± 3.1 %": a mean with its interval; 98.95 where one place less would round it up to
    what counts as converged."""
    half = 100 * interval.half_width
    # An arm that rounds to nothing is not nothing.
    arm = "<0.1" if 0 < half < 0.05 else f"{half:.1f}"
    return f"{100 * interval.mean:.{places(interval.mean)}f} ± {arm} %"


def places(share: float) -> int:
    """How many decimal places a percentage is written with."""
    return 2 if share < CONVERGED <= round(share, 3) else 1


def missing_cells(panel: Panel, region: Region) -> int:
    """How many cells of `region` at least one of the seeds has not scored."""
    missing = np.any([grid.total == 0 for grid in panel], axis=0)
    return int((missing & panel[0].mask(region)).sum())


def mean_line(panel: Panel, region: Region, labels: Mapping[Region, str] = REGION_WORDS) -> str:
    """ "out of distribution 18.2 ± 3.1 %", or why there is no such number."""
    label, cells = labels[region], panel[0].mean(region).cells
    if cells == 0:
        return f"{label}: none scored"
    interval = over_seeds(panel, region)
    if interval is None:
        return f"{label}: {missing_cells(panel, region)} missing"
    return f"{label} {percent(interval)}"


def difference_line(one: Panel, other: Panel, region: Region) -> str:
    """ "out of distribution +12.3 points", first minus second; no interval is claimed for it."""
    first, second = over_seeds(one, region), over_seeds(other, region)
    if first is None or second is None:
        return f"{REGION_WORDS[region]}: unknown"
    return f"{REGION_WORDS[region]} {signed(100 * (first.mean - second.mean), 1)} points"


def signed(points: float, places: int) -> str:
    """ "+12.3", its negative with a real minus sign; what rounds to 0 has no sign."""
    text = f"{abs(points):.{places}f}"
    if float(text) == 0:
        return text
    return ("+" if points > 0 else "\N{MINUS SIGN}") + text


def seeds_line(panel: Panel) -> str:
    return f"seed {panel[0].seed}" if len(panel) == 1 else f"{len(panel)} seeds"


def convergence(panel: Panel) -> str | None:
    """ "not converged" with the number of seeds, "not fully scored", or None where all is well. On
    hard sums it is what the usual ones say, or that they say nothing."""
    states = [grid.converged for grid in panel]
    failed = sum(state is False for state in states)
    if failed:
        return "not converged" if failed == len(panel) else f"{failed} not converged"
    if missing_cells(panel, "in_distribution"):
        return "not fully scored"
    return "convergence unknown" if None in states else None


def footnote(panels: Sequence[Panel]) -> str:
    """What every reader of the figure needs: task, lengths, problems, evaluation set, seeds, ±."""
    counts = {len(panel) for panel in panels}
    if counts == {1}:
        spread = "over problems, these runs only (one seed)"
    elif 1 in counts:
        spread = (
            f"Student{NBSP}t over seeds; where there is one seed, over problems, these runs only"
        )
    else:
        spread = f"Student{NBSP}t over seeds"
    weights = "in a mean every cell weighs the same."
    cells = f" Cells are means over seeds; {weights}" if counts != {1} else f" I{weights[1:]}"
    marked = any(grid.converged is False for panel in panels for grid in panel)
    usual = " on the usual sums" if SPLITS.get(panels[0][0].split, True) else ""
    return f"{source(panels)} ± is the 95{NBSP}% interval: {spread}.{cells}" + (
        f" Not converged: below 99{NBSP}% in distribution{usual}." if marked else ""
    )


def source(panels: Sequence[Panel]) -> str:
    """Where the numbers come from, in one sentence: task, lengths, problems, evaluation set, seeds.

    They are the same for all `panels` but for the seeds.
    """
    first = panels[0][0]
    evaluation = first.evaluation
    problems = SPLITS.get(first.split, first.split)
    hard = f", {problems}," if problems else ","
    return (
        f"Task {evaluation['task']}{hard} trained to {first.trained_digits} digits "
        f"and tested to {first.max_digits} (preset {_preset(panels)}), "
        f"{evaluation['problems_per_cell']} problems a cell, "
        f"evaluation set {evaluation['sha256'][:8]}, {_all_seeds(panels)}."
    )


def _preset(panels: Sequence[Panel]) -> str:
    """All grids have the same settings, but those of older versions do not tell them."""
    grids = [grid for panel in panels for grid in panel]
    settings = next((grid.settings for grid in grids if grid.settings), {})
    return preset_words(grids[0].preset, settings)


def preset_words(preset: str, settings: Mapping[str, int | float | str]) -> str:
    """ "mini", "mini with steps=2,000, batch_size=64" """
    if not settings:
        return preset
    told = [f"{key}={_setting(value)}" for key, value in settings.items()][:MOST_SETTINGS]
    others = len(settings) - len(told)
    return f"{preset} with {', '.join(told)}" + (f" and {others} more" if others else "")


def _setting(value: int | float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _all_seeds(panels: Sequence[Panel]) -> str:
    of = [tuple(grid.seed for grid in panel) for panel in panels]
    common = max(of, key=lambda seeds: (of.count(seeds), len(seeds)))
    other = [
        f"{panel[0].name}: {', '.join(map(str, seeds))}"
        for panel, seeds in zip(panels, of, strict=True)
        if seeds != common
    ]
    if len(other) > MOST_OTHERS:
        counts = Counter(seeds for seeds in of if seeds != common)
        other = [
            f"{count} encoding{'s' * (count > 1)}: {', '.join(map(str, seeds))}"
            for seeds, count in counts.most_common()
        ]
    return _listed(common) + (f" ({'; '.join(other)})" if other else "")


def _listed(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
