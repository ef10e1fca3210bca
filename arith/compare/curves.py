"""The curves of several runs: which runs belong together, and which steps are shown."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from tape_arith.arith.compare.groups import choose_group, of_one_preset, warn_excluded
from tape_arith.arith.compare.selection import Selection, join_names, read_states
from tape_arith.arith.compare.tables import json_text
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.axes import Axes, scored_axes
from tape_arith.arith.grids.facts import About, Budget
from tape_arith.arith.registry.names import parse, task_location
from tape_arith.arith.runs.command_lines import next_step, train_command
from tape_arith.arith.runs.find import check_one_source, preset_folder
from tape_arith.arith.runs.preset import check_task
from tape_arith.arith.runs.run import RunState


@dataclass(frozen=True)
class Curves:
    """The curves of comparable runs, and the settings that these runs have in common.

    `rows` has one number in each row, with the columns of `COLUMNS`, for the steps that all seeds
    of an encoding have. `part` is a layer (from 1), a length, or 0 where there are no parts:

    loss                 in nats per scored token
    held_out             exact match 0..1 on held-out problems of the trained lengths
    in_distribution, out_of_distribution, by_length
                         exact match on the small grid; a length is that of the longer operand
    state MEASURE        what an encoding measures of its state
    """

    seeds: Mapping[str, Sequence[int]]
    """The seeds of each encoding; the encodings are in the order of the legend."""
    preset: str
    settings: Mapping[str, int | float | str]
    """Settings that differ from the preset's."""
    task: str
    trained_digits: int
    tested_digits: int
    rows: pd.DataFrame
    axes: Axes = ()
    """The axes of the small grids of training; empty if unknown."""
    recorded: Mapping[str, About | None] = field(default_factory=dict)
    """What the runs recorded about each encoding."""


COLUMNS = ("encoding", "quantity", "part", "step", "seed", "value")


def by_seed(rows: pd.DataFrame) -> dict[tuple[str, str, int], pd.DataFrame]:
    """Return a frame by (encoding, quantity, part), with a row per step and a column per seed.

    A key that has no curve gives an empty frame.
    """
    table = rows.set_index(list(COLUMNS[:-1])).value.unstack("seed")
    curves: dict[Any, pd.DataFrame] = defaultdict(pd.DataFrame)
    for key, curve in table.groupby(level=[0, 1, 2]):
        curves[key] = curve.droplevel([0, 1, 2]).dropna(axis="columns")
    return curves


def to_json(content: Curves) -> str:
    """Format all curves as JSON, a list per column of `rows`; `schema` counts changes of keys."""
    facts = {key: value for key, value in content.__dict__.items() if key != "recorded"}
    axes, rows = [asdict(axis) for axis in content.axes], content.rows.to_dict("list")
    return json_text({"schema": 2, **facts, "axes": axes, "rows": rows})


def study(selection: Selection) -> Curves:
    """Return the curves of the runs of a selection, scored or not, finished or not.

    Only runs that were trained alike are shown; others are named on stderr. Raises UsageError as
    `of_one_preset` and `choose_group` do, Failure for corrupt metrics.
    """
    for name in selection.named:
        if name.extrapolation is not None:
            raise UsageError(f"{name} is trained as {name.encoding}: name that, for its curves")
    wanted = selection.wanted
    runs = [
        _Training(
            name,
            preset,
            seed,
            state.record.budget,
            state,
            state.run.precision(),
            _small_grid_lengths(state),
        )
        for (preset, name, seed), state in read_states(selection.roots).items()
        if selection.preset in (None, preset) and (not wanted or name in wanted)
    ]
    runs.sort(key=lambda run: run.precision is None)
    candidates = of_one_preset(runs, wanted)
    if not candidates:
        raise _no_runs(selection, {run.name for run in runs})
    shown, excluded = choose_group(candidates, _differ, wanted)
    warn_excluded(excluded)
    check_one_source([training.state for training in shown])
    order = wanted or list(dict.fromkeys(run.name for run in shown))
    shown.sort(key=lambda run: (order.index(run.name), run.seed))
    first = shown[0].state.record
    return Curves(
        {name: [run.seed for run in shown if run.name == name] for name in order},
        first.preset,
        first.settings,
        first.config.task,
        first.config.trained_digits,
        first.config.tested_digits,
        curve_rows((run.name, run.seed, run.state.run.metrics()) for run in shown),
        next(_axes(shown), ()),
        {run.name: run.state.record.about for run in shown},
    )


class _Training(NamedTuple):
    """A run that has curves."""

    name: str
    preset: str
    seed: int
    budget: Budget
    state: RunState
    precision: str | None
    lengths: frozenset[str]
    """The lengths of the small grid of training; empty if it has none."""


def _small_grid_lengths(state: RunState) -> frozenset[str]:
    grids = (line.get("small_grid") for line in state.run.metrics())
    return frozenset(next((grid["by_length"] for grid in grids if grid), ()))


def _axes(runs: Iterable[_Training]) -> Iterator[Axes]:
    """Yield the axes of the small grids of training, from each run where they are known.

    A user's task is not executed: its axes are known once a grid of these lengths is scored.
    """
    for run in runs:
        config = run.state.record.config
        with suppress(UsageError):
            if task_location(config.task).is_builtin:
                yield scored_axes(config.bucket(run.seed), config.evaluation_bucket())
        for grid in run.state.run.grids().values():
            if grid.max_digits == config.tested_digits:
                yield grid.axes


def _differ(one: _Training, other: _Training) -> str:
    """Return how the training of two runs differs; "" if it does not."""
    precisions = one.precision, other.precision
    if None not in precisions and precisions[0] != precisions[1]:
        return f"trained in {precisions[0]}, not {precisions[1]}"
    if one.budget == other.budget:
        differ = one.lengths and other.lengths and one.lengths != other.lengths
        return "scored on other lengths during training" if differ else ""
    return one.state.record.config.differences(other.state.record.config) or "not started alike"


def _no_runs(selection: Selection, trained: set[str]) -> UsageError:
    """Return the error for missing runs, with a command that makes one."""
    root, named, preset = selection.root, selection.named, selection.preset
    check_task(preset)
    untrained = (name for name in named if str(name) not in trained)
    missing = next(untrained, named[-1] if named else parse("rope"))
    encoding = f" of {missing}" if named else ""
    together = " with the others" if len(named) > 1 else ""
    command = train_command(missing, preset or "mini", root)
    return UsageError(
        f"no run{encoding} in {root}/{preset or '*'}{together}: "
        + next_step(root, f"{command} makes one")
    )


def curve_rows(runs: Iterable[tuple[str, int, Sequence[Mapping[str, Any]]]]) -> pd.DataFrame:
    """Return `Curves.rows`; each of `runs` is (encoding, seed, lines of metrics.jsonl).

    Steps that not all seeds of an encoding have are left out: else neighbouring points would be
    means over different runs.
    """
    runs = list(runs)
    rows = pd.DataFrame(
        [
            (encoding, quantity, part, line["step"], seed, value)
            for encoding, seed, lines in runs
            for line in lines
            for quantity, part, value in _numbers(line)
            if value is not None
        ],
        columns=list(COLUMNS),
    )
    curves = rows.groupby(["encoding", "quantity", "part", "step"], sort=False)
    seeds = pd.Series([encoding for encoding, _, _ in runs], dtype=object).value_counts()
    complete = curves.seed.transform("size") == rows.encoding.map(seeds)
    return rows[complete].reset_index(drop=True)


def _numbers(line: Mapping[str, Any]) -> Iterator[tuple[str, int, float | None]]:
    """Yield (quantity, part, value) for each number in a line that is part of a curve."""
    grid = line.get("small_grid") or {}
    yield "loss", 0, line["loss"]
    yield "held_out", 0, line["exact_match"]
    for region in ("in_distribution", "out_of_distribution"):
        yield region, 0, grid.get(region)
    for length, value in grid.get("by_length", {}).items():
        yield "by_length", int(length), value
    for measure, values in (line.get("state") or {}).items():
        for layer, value in enumerate(values, start=1):
            yield f"state {measure}", layer, value


def figure_path(root: Path, content: Curves) -> Path:
    """Return the default path of a figure of curves: next to the runs of its preset."""
    return preset_folder(root, content.preset) / f"curves-{join_names(list(content.seeds))}.png"
