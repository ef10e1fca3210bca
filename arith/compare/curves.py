"""The curves of several runs: which belong together, and at which steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tape_arith.arith.compare.order import join_names
from tape_arith.arith.compare.panels import (
    ALL,
    budget_preference,
    describe_seeds,
    warn_excluded,
)
from tape_arith.arith.compare.run_files import or_default
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.curves import Learner, Series, Study
from tape_arith.arith.runs.command_lines import other_run_roots, train_command
from tape_arith.arith.runs.folder import RunFolder, check_one_source, find_runs
from tape_arith.arith.runs.metrics import by_length, curve, states
from tape_arith.arith.runs.record import RunRecord
from tape_arith.models.names.parse import Name, parse, parse_list

_Runs = list[tuple[RunFolder, RunRecord]]


def study(root: Path, names: str = ALL, preset: str | None = None) -> Study:
    """Return the curves of every run of `names` below `root`, finished or not.

    All are of one preset and were trained alike; of several such groups this is the one with most
    of `names`, then the preset's own, and the others are named on stderr. Raises UsageError if
    there are no such runs, Failure for corrupt metrics.
    """
    named = None if names == ALL else _check_names(parse_list(names))
    wanted = None if named is None else {str(name) for name in named}
    by_preset: dict[str, _Runs] = {}
    for folder in find_runs(root):
        record = or_default(folder.record, None)
        if record is not None and (wanted is None or record.encoding in wanted):
            by_preset.setdefault(record.preset, []).append((folder, record))
    complete = [
        name
        for name, runs in by_preset.items()
        if preset in (None, name) and set(_by_encoding(runs)).issuperset(wanted or ())
    ]
    if len(complete) > 1:
        raise UsageError(f"there are runs of {', '.join(complete)}: choose one with --preset")
    if not complete:
        raise _no_runs(root, named, preset, by_preset)
    alike: dict[tuple[tuple[str, object], ...], _Runs] = {}
    for folder, record in by_preset[complete[0]]:
        alike.setdefault(tuple(sorted(record.budget.items())), []).append((folder, record))

    def order(runs: _Runs) -> tuple[int, bool, bool, int, int]:
        record, size = runs[0][1], len(_by_encoding(runs))
        preferred = budget_preference(record.preset, record.budget)
        return (size if wanted else 0, *preferred, size, len(runs))

    shown, *others = sorted(alike.values(), key=order, reverse=True)
    first = shown[0][1]
    excluded = []
    for runs in others:
        why = runs[0][1].config.differences(first.config) or "not begun alike"
        seeds = {name: [r.seed for _, r in members] for name, members in _by_encoding(runs).items()}
        excluded.append((describe_seeds(seeds), why))
    if missing := (wanted or set()).difference(_by_encoding(shown)):
        raise UsageError(
            f"{', '.join(sorted(missing))} and {first.encoding} were not trained alike "
            f"({'; '.join(why for _, why in excluded)}): draw them apart, or train them alike"
        )
    warn_excluded(excluded)
    check_one_source([folder for folder, _ in shown])
    groups = _by_encoding(shown)
    return Study(
        tuple(_learner(name, groups[name]) for name in (map(str, named) if named else groups)),
        first.preset,
        first.settings,
        first.config.task,
        first.config.trained_digits,
        first.config.tested_digits,
    )


def _check_names(names: Sequence[Name]) -> list[Name]:
    if not names:
        raise UsageError("nothing to compare: name encodings, as in --compare fire,tape")
    for name in names:
        if name.extrapolation is not None:
            raise UsageError(f"{name} is trained as {name.encoding}: name that, for its curves")
    return list(dict.fromkeys(names))


def _no_runs(
    root: Path,
    named: Sequence[Name] | None,
    preset: str | None,
    by_preset: Mapping[str, _Runs],
) -> UsageError:
    """Return the error for missing runs, with a command that makes one."""
    if named is None:
        of_preset, command = (
            f" of {preset}" if preset else "",
            train_command(parse("rope"), preset, root),
        )
        return UsageError(
            f"no run{of_preset} in {root}: {command} makes one{other_run_roots(root)}"
        )
    trained = {
        encoding
        for name, runs in by_preset.items()
        if preset in (None, name)
        for encoding in _by_encoding(runs)
    }
    missing = next((name for name in named if str(name) not in trained), named[-1])
    beside = " beside the others" if len(named) > 1 else ""
    return UsageError(
        f"no run of {missing} in {root}/{preset or '*'}{beside}: "
        f"{train_command(missing, preset or 'mini', root)}"
    )


def _by_encoding(runs: _Runs) -> dict[str, _Runs]:
    groups: dict[str, _Runs] = {}
    for folder, record in runs:
        groups.setdefault(record.encoding, []).append((folder, record))
    return groups


def _learner(encoding: str, runs: _Runs) -> Learner:
    """Return the curves of one encoding, a row a seed."""
    by_seed = {record.seed: folder.metrics() for folder, record in runs}
    seeds = tuple(sorted(by_seed))
    lines = [by_seed[seed] for seed in seeds]
    lengths, measures = list(map(by_length, lines)), list(map(states, lines))
    return Learner(
        encoding,
        seeds,
        loss=align([[(line["step"], line["loss"]) for line in run] for run in lines]),
        held_out=align(
            [
                [
                    (line["step"], line["exact_match"])
                    for line in run
                    if line["exact_match"] is not None
                ]
                for run in lines
            ]
        ),
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
