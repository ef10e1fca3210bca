"""The leaderboard across tasks: one column per task, ranks within each, and their mean."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from tape_arith.arith.compare.board import Section
from tape_arith.arith.compare.captions import (
    chance,
    guess_words,
    needs_positions,
    recipe,
    seen_in_training,
    source,
)
from tape_arith.arith.compare.groups import (
    Excluded,
    choose_group,
    scored_in_part,
    warn_excluded,
)
from tape_arith.arith.compare.labels import panel_labels
from tape_arith.arith.compare.leaderboard import ACROSS_TASKS, SECTIONS, by_rank, level, prior
from tape_arith.arith.compare.lengths import trained_and_tested
from tape_arith.arith.compare.selection import ALL, Selection, canonical_task
from tape_arith.arith.compare.task_table import Line, TaskRuns, TaskTable
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.grids.comparable import differences
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel, panels_of
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.runs.preset import presets

_SOLVED = 0.01
"""How far beyond a guess the best mean must reach for a task to count."""


def across_tasks(
    selection: Selection,
    tasks: str = ALL,
    own_labels: Mapping[str, str] | None = None,
) -> TaskTable:
    """Return the table of the tasks that are scored in a selection: all, or tasks and presets.

    A column holds runs of one preset, budget and evaluation set; ranks are among the encodings of
    the table: those named, or all that are scored in two tasks or more. Raises UsageError for an
    unknown task, for two presets of one task, and if nothing is scored.
    """
    grids, unfinished = selection.split_complete(selection.grids(of_all=True))
    if not grids:
        raise replace(selection, names=ALL).nothing_scored()
    shown: dict[str, list[Panel]] = {}
    cells: dict[str, dict[str, Panel]] = {}
    chosen, left_out = _choose_presets(grids, tasks)
    for task, preset in chosen.items():
        alike, excluded = choose_group([g for g in grids if g.preset == preset], differences)
        left_out += [Excluded(f"{task}, {runs}", reason) for runs, reason in excluded]
        shown[task] = panels_of(alike)
        for panel in sorted(shown[task], key=by_rank):
            cells.setdefault(panel.name, {})[task] = panel
    warn_excluded(left_out)
    in_several = [name for name, by_task in cells.items() if len(by_task) > 1]
    wanted = selection.wanted or in_several or list(cells)
    if lacking := [name for name in wanted if name not in cells]:
        raise unknown("scored encoding", lacking[0], cells)
    if rest := len(cells) - len(wanted):
        reason = "scored in one of these tasks only" if not selection.named else "not named"
        left_out.append(Excluded(f"{rest} encoding{'s' * (rest > 1)}", reason))
    cells = {name: by_task for name, by_task in cells.items() if name in wanted}
    for task, preset in chosen.items():
        shown[task] = [panel for panel in shown[task] if panel.name in cells]
        if not shown[task]:
            left_out.append(Excluded(f"task {task}", "none of these encodings is scored in it"))
        if of_task := [grid for grid in unfinished if grid.preset == preset]:
            left_out.append(scored_in_part(of_task, task))
    shown = {task: panels for task, panels in shown.items() if panels}
    uncounted = {task: _why_uncounted(task, panels) for task, panels in shown.items()}
    sections = _sections(cells, [task for task, reason in uncounted.items() if not reason])
    labels = panel_labels(
        (panel for by_task in cells.values() for panel in by_task.values()), own_labels
    )
    runs = [
        TaskRuns(
            task,
            chosen[task],
            recipe(panels),
            trained_and_tested(panels[0].axes),
            source(panels, labels),
            guess_words(task),
            uncounted[task],
            seen_in_training(panels),
        )
        for task, panels in shown.items()
    ]
    filled = [section for section in sections if section.rows]
    return TaskTable(filled, runs, left_out=left_out, labels=labels)


def _choose_presets(grids: Sequence[Grid], tasks: str) -> tuple[dict[str, str], list[Excluded]]:
    """Return the preset of each task, in the order named or by name, and the presets left out.

    A task that is not named by a preset has the one with the most encodings.
    """
    encodings: dict[str, dict[str, set[str]]] = {}
    for grid in grids:
        by_preset = encodings.setdefault(grid.evaluation.task, {})
        by_preset.setdefault(grid.preset, set()).add(grid.name)
    task_of = {preset: task for task, presets in encodings.items() for preset in presets}
    named = [name.strip() for name in tasks.split(",") if name.strip()]
    chosen: dict[str, str] = {}
    for name in sorted(encodings) if named == [ALL] else named:
        if name not in task_of:
            name = canonical_task(name)
        if name not in encodings and name not in task_of:
            if name in [*known_names("task"), *presets()]:
                raise UsageError(f"no run of {name} is scored here: {', '.join(task_of)} are")
            raise unknown("scored task or preset", name, [*encodings, *task_of])
        task = task_of.get(name, name)
        counts = {preset: len(names) for preset, names in sorted(encodings[task].items())}
        preset = name if name in task_of else max(counts, key=counts.__getitem__)
        if chosen.setdefault(task, preset) != preset:
            raise UsageError(
                f"{chosen[task]} and {preset} are both of task {task}, and a column has one "
                "preset: name one of them"
            )
    if not chosen:
        raise UsageError("no task is named: give all, or tasks, as in `tape-arith tasks copy,sort`")
    return chosen, [
        Excluded(
            f"task {task} in {', '.join(presets_left_out)}",
            f"its column is {preset}; name a preset to show it",
        )
        for task, preset in chosen.items()
        if (presets_left_out := sorted({*encodings[task]} - {preset}))
    ]


def _why_uncounted(task: str, panels: Sequence[Panel]) -> str:
    """Say why ranks in a task tell nothing about positions; "" if they do."""
    if not needs_positions(task):
        return "the order of the tokens does not matter there"
    best = max((panel.mean("out_of_distribution") or 0.0 for panel in panels), default=0.0)
    return "nobody solves it" if best < (chance(task) or 0.0) + _SOLVED else ""


def _sections(
    cells: Mapping[str, Mapping[str, Panel]], counted: Sequence[str]
) -> list[Section[Line]]:
    """Return the encodings by section: first those scored in half of `counted`, by mean rank."""

    def order(line: Line) -> tuple[bool, float, str]:
        mean_rank = float("inf") if line.mean_rank is None else line.mean_rank
        return 2 * len(line.counted_ranks) < len(counted), mean_rank, line.encoding

    by_title: dict[str, dict[str, Mapping[str, Panel]]] = {title: {} for title in SECTIONS}
    for name, by_task in cells.items():
        by_title[prior(next(iter(by_task.values())))][name] = by_task
    ranked = []
    for title, members in by_title.items():
        rivals = ACROSS_TASKS if title in ACROSS_TASKS else (title,)
        ranks = _ranks({name: cells[name] for each in rivals for name in by_title[each]})
        lines = [Line(name, by_task, ranks[name], counted) for name, by_task in members.items()]
        ranked.append(Section(title, SECTIONS[title], sorted(lines, key=order)))
    return ranked


def _ranks(cells: Mapping[str, Mapping[str, Panel]]) -> dict[str, dict[str, float]]:
    """Return each encoding's rank in each task where it is scored, converged or not.

    Encodings with equal means share the mean of their ranks.
    """
    means = {
        (task, name): level(panel)
        for name, by_task in cells.items()
        for task, panel in by_task.items()
        if panel.mean("out_of_distribution") is not None
    }
    ranks: dict[str, dict[str, float]] = {name: {} for name in cells}
    ranked = pd.Series(means, dtype=float).groupby(level=0).rank(ascending=False)
    for (task, name), rank in zip(means, ranked, strict=True):
        ranks[name][task] = rank
    return ranks
