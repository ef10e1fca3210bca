"""The curves of several runs: which belong together, and at which steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tape_arith.arith.compare.order import join_names
from tape_arith.arith.compare.panels import ALL, choose_group, parse_names, warn_excluded
from tape_arith.arith.compare.run_files import RunFiles, read_runs
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.curves import Learner, Series, Study
from tape_arith.arith.runs.command_lines import other_run_roots, train_command
from tape_arith.arith.runs.folder import check_one_source
from tape_arith.arith.runs.metrics import Line, by_length, curve, states
from tape_arith.models.names.parse import Name, parse


def study(root: Path, names: str = ALL, preset: str | None = None) -> Study:
    """Return the curves of every run of `names` below `root`, finished or not.

    Runs that were not trained like them are named on stderr. Raises UsageError as `choose_group`,
    Failure for corrupt metrics.
    """
    named = parse_names(names)
    for name in named:
        if name.extrapolation is not None:
            raise UsageError(f"{name} is trained as {name.encoding}: name that, for its curves")
    wanted = list(map(str, named))
    runs = [
        run
        for run in read_runs(root).values()
        if preset in (None, run.preset) and (not wanted or run.name in wanted)
    ]
    trained = {run.name for run in runs}
    shown, excluded = choose_group(
        runs, wanted, _differ, lambda: _no_runs(root, named, preset, trained)
    )
    warn_excluded(excluded)
    check_one_source([run.folder for run in shown])
    first = shown[0].record
    return Study(
        tuple(
            learner(name, {run.seed: run.folder.metrics() for run in shown if run.name == name})
            for name in wanted or dict.fromkeys(run.name for run in shown)
        ),
        first.preset,
        first.settings,
        first.config.task,
        first.config.trained_digits,
        first.config.tested_digits,
    )


def _differ(one: RunFiles, other: RunFiles) -> str:
    """Return how two runs were trained otherwise, "" if alike."""
    if one.budget == other.budget:
        return ""
    return one.record.config.differences(other.record.config) or "not begun alike"


def _no_runs(
    root: Path, named: Sequence[Name], preset: str | None, trained: set[str]
) -> UsageError:
    """Return the error for missing runs, with a command that makes one."""
    if not named:
        of_preset, command = (
            f" of {preset}" * bool(preset),
            train_command(parse("rope"), preset, root),
        )
        return UsageError(
            f"no run{of_preset} in {root}: {command} makes one{other_run_roots(root)}"
        )
    missing = next((name for name in named if str(name) not in trained), named[-1])
    beside = " beside the others" if len(named) > 1 else ""
    return UsageError(
        f"no run of {missing} in {root}/{preset or '*'}{beside}: "
        f"{train_command(missing, preset or 'mini', root)}"
    )


def learner(encoding: str, metrics: Mapping[int, Sequence[Line]]) -> Learner:
    """Return the curves of one encoding, a row a seed."""
    seeds = tuple(sorted(metrics))
    lines = [metrics[seed] for seed in seeds]
    lengths, measures = list(map(by_length, lines)), list(map(states, lines))

    def logged(name: str) -> Series:
        return align(
            [
                [(line["step"], line[name]) for line in run if line[name] is not None]
                for run in lines
            ]
        )

    return Learner(
        encoding,
        seeds,
        loss=logged("loss"),
        held_out=logged("exact_match"),
        in_distribution=align([curve(run, "in_distribution") for run in lines]),
        out_of_distribution=align([curve(run, "out_of_distribution") for run in lines]),
        by_length={
            length: align([curves.get(length, []) for curves in lengths])
            for length in sorted(lengths[0])
        },
        state={name: _layers([run.get(name, []) for run in measures]) for name in measures[0]},
    )


def align(curves: Sequence[Sequence[tuple[int, float]]]) -> Series:
    """Return curves of several seeds at the steps that all of them have.

    Elsewhere neighbouring points would be means over different runs.
    """
    values = [dict(points) for points in curves]
    steps = sorted(set.intersection(*(set(points) for points in values)))
    return Series(tuple(steps), tuple(tuple(points[step] for step in steps) for points in values))


def _layers(curves: Sequence[Sequence[tuple[int, list[float]]]]) -> tuple[Series, ...]:
    """Return a series a layer."""
    return tuple(
        align([[(step, values[layer]) for step, values in points] for points in curves])
        for layer in range(len(curves[0][0][1]))
    )


def figure_path(root: Path, study: Study) -> Path:
    """Return the path of a figure of curves that has none: beside the runs of its preset."""
    names = join_names([learner.encoding for learner in study.learners])
    return root / study.preset / f"curves-{names}.png"
