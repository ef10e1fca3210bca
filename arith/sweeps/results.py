"""Write the tables and figures of a sweep, or of the command `run`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from tape_arith.arith.compare.board import Board
from tape_arith.arith.compare.groups import Excluded, choose_group, warn_excluded
from tape_arith.arith.compare.leaderboard import board_of
from tape_arith.arith.compare.selection import Selection, read_states
from tape_arith.arith.compare.sweep_tables import (
    SweptRow,
    Table,
    ablation_table,
    families,
    in_order,
    sweep_table,
)
from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.figures import ablations, heatmap
from tape_arith.arith.figures.style import save
from tape_arith.arith.files import slug
from tape_arith.arith.grids.comparable import differences
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel, panels_of
from tape_arith.arith.origin import write_table
from tape_arith.arith.registry.names import Name, name_and_options
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.request import Request
from tape_arith.arith.sweeps.sweep import Combination, Sweep, sweep_folder
from tape_arith.arith.terminal import say

_Scored = dict[tuple[Name, Config], list[Grid]]
"""The grids, one per seed, of an encoding with a config."""


def draw_comparison(requests: Sequence[Request]) -> list[Path]:
    """Draw the heatmap and write the tables of the requested encodings; return the figure's path.

    Includes every completely scored seed that is comparable with the others, requested or not.
    Returns [] if there is none.
    """
    first = requests[0]
    selection = Selection(first.root, ",".join(str(each.name) for each in requests), first.preset)
    budget = first.config.steps, first.config.sha256
    grids, unusable = list[Grid](), list[Grid]()
    for grid in selection.grids():
        requested = (grid.budget.steps, grid.budget.config_sha256) == budget
        (grids if requested and grid.complete else unusable).append(grid)
    if unusable:
        left_out = ", ".join(f"{grid.name} seed {grid.seed}" for grid in unusable)
        say(f"note: left out, in part scored or of other settings or steps: {left_out}")
    if not grids:
        say("nothing is scored yet, so nothing is drawn: the same command scores what is left")
        return []
    grids, excluded = choose_group(grids, differences)
    warn_excluded(excluded)
    panels = panels_of(grids, selection.wanted)
    figure = selection.figure_path(panels)
    save(heatmap.compose(panels), figure)
    rows = in_order(SweptRow(panel, {}) for panel in panels)
    _write(sweep_table(rows), figure.parent, "table")
    return [figure]


def leaderboard(sweep: Sweep, out: Path) -> Board | None:
    """Return the leaderboard of the scored runs on the first split.

    None if nothing is scored, or if presets or settings vary, because such runs are not ranked
    against each other.
    """
    if sweep.varied or len(sweep.presets) > 1:
        return None
    scored, excluded = scored_grids(sweep, out, EvaluationSet(sweep.splits[0]))
    if not scored:
        return None
    runs = read_states(sweep.requests(out)[0].root)
    return board_of(list(map(Panel.of, scored.values())), runs, excluded, pairs=sweep.contrasts)


def write_tables(sweep: Sweep, out: Path) -> list[Path]:
    """Write tables of the complete grids, one per split, and of ablations; return the paths.

    Reports and skips runs that are not comparable with the rest. Removes files that an earlier
    sweep with this name left, and says so.
    """
    folder = sweep_folder(sweep.name, out)
    written: list[Path] = []
    scored = {split: scored_grids(sweep, out, EvaluationSet(split)) for split in sweep.splits}
    warn_excluded(dict.fromkeys(chain(*(excluded for _, excluded in scored.values()))))
    for split, (grids, _) in scored.items():
        if rows := [row for each in sweep.combinations for row in _rows(sweep, each, grids)]:
            stem = "table" if split == EVALUATION else f"table@{split}"
            written += _write(sweep_table(rows), folder, stem)
    if EVALUATION in scored and _is_family(sweep):
        for combination in sweep.combinations:
            written += _write_ablations(sweep, combination, scored[EVALUATION][0], folder)
    earlier = [*folder.glob("table*.*"), *folder.glob("ablations*.*")]
    if stale := sorted(file.name for file in set(earlier) - set(written)):
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        say(f"note: removed {', '.join(stale)} from {folder}: nothing of the sweep is in them")
    return written


def _rows(sweep: Sweep, combination: Combination, scored: _Scored) -> list[SweptRow]:
    """Return a row for each scored encoding, with the settings that the sweep varies."""
    preset = {"preset": combination.preset} if len(sweep.presets) > 1 else {}
    return in_order(
        SweptRow(panel, preset | sweep.settings(config))
        for config, panel in choices(sweep, combination.configs, scored)
    )


def _write_ablations(
    sweep: Sweep, combination: Combination, scored: _Scored, folder: Path
) -> list[Path]:
    """Write the table and the figure of a family's options, if any is scored."""
    panels = [panel for _, panel in choices(sweep, combination.configs, scored)]
    if not panels:
        return []
    preset = slug(combination.preset) if len(sweep.presets) > 1 else ""
    label = ",".join(filter(None, [preset, sweep.label(combination.configs[0])]))
    stem = f"ablations@{label}" if label else "ablations"
    members, figure = families(panels), folder / f"{stem}.png"
    tables = _write(ablation_table(members), folder, stem)
    save(ablations.compose(members, panels), figure)
    return [*tables, figure]


def _write(table: Table[Any], folder: Path, stem: str) -> list[Path]:
    """Write a table as Markdown and as CSV; return the paths."""
    texts = {folder / f"{stem}.md": table.to_markdown(), folder / f"{stem}.csv": table.to_csv()}
    for path, text in texts.items():
        write_table(path, text)
    return list(texts)


def _is_family(sweep: Sweep) -> bool:
    """Tell whether nothing is tuned and most encodings differ only in options from another one."""
    if len(sweep.combinations[0].configs) > 1:
        return False
    counts = Counter(name_and_options(str(name))[0] for name in sweep.names)
    related = sum(count for count in counts.values() if count > 1)
    return 2 * related > len(sweep.names)


def scored_grids(
    sweep: Sweep, out: Path, evaluation_set: EvaluationSet = DEFAULT_SET
) -> tuple[_Scored, list[Excluded]]:
    """Return the complete grids of each encoding with each config.

    The grids of a config are comparable; others are returned with how they differ.
    """
    names: dict[Config, dict[Grid, Name]] = {}
    for request in sweep.requests(out):
        if grid := request.complete_grid(evaluation_set):
            names.setdefault(request.config, {})[grid] = request.name
    scored, left_out = _Scored(), list[Excluded]()
    for config, name_of in names.items():
        # Equal configs are not enough: a run may have been extended, or have begun from another.
        grids, excluded = choose_group(name_of, differences)
        left_out += excluded
        for grid in grids:
            scored.setdefault((name_of[grid], config), []).append(grid)
    return scored, left_out


def choices(
    sweep: Sweep, configs: Sequence[Config], scored: _Scored
) -> Iterator[tuple[Config, Panel]]:
    """Yield, for each encoding, its config in a combination of settings, with its grids.

    If learning rates are tuned, the config that is best in distribution is chosen (the first of
    equals), never by a result out of distribution. An encoding is skipped unless all its rates have
    the same seeds with a mean in distribution; otherwise the choice would not be fair.
    """
    for name in sweep.names:
        panels = {config: scored.get((name, config), []) for config in configs}
        best = configs[0]
        if len(configs) > 1:
            for config, panel in panels.items():
                panels[config] = [grid for grid in panel if grid.converged is not None]
            seeds = {tuple(grid.seed for grid in panel) for panel in panels.values()}
            if len(seeds) > 1 or seeds == {()}:
                continue
            best = max(panels, key=lambda config: _in_distribution(panels[config]))
        if panels[best]:
            yield best, Panel.of(panels[best])


def _in_distribution(panel: Sequence[Grid]) -> float:
    """Return the mean on the standard problems, even for grids of a hard split."""
    standard = [grid if grid.split == EVALUATION else grid.standard for grid in panel]
    return fmean(grid.mean("in_distribution") or 0.0 for grid in standard if grid is not None)
