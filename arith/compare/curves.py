"""The curves of several runs: which belong together, and at which steps. No torch here."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tape_arith.arith.compare.select import listed, tell
from tape_arith.arith.compare.words import joined
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.figures.curves import Learner, Series, Study
from tape_arith.arith.runs.command_lines import other_run_roots, train_command
from tape_arith.arith.runs.folder import RunFolder, check_one_source, find_runs, slug
from tape_arith.arith.runs.metrics import by_length, curve, states
from tape_arith.arith.runs.record import RunRecord, load_preset, presets
from tape_arith.arith.terminal import say
from tape_arith.models.names.parse import Name, parse

Runs = list[tuple[RunFolder, RunRecord]]


def study(root: Path, names: Sequence[Name], preset: str | None = None) -> Study:
    """The curves of every run of `names` below `root`, all of one preset and budget, finished or
    not. Errors: UsageError where there are none, or such as must not be compared; Failure for a
    corrupt run."""
    if not names:
        raise UsageError("nothing to compare: name encodings, as in --compare fire,tape")
    for name in names:
        if name.extrapolation is not None:
            raise UsageError(f"{name} is trained as {name.encoding}: name that, for its curves")
    found = {name: _folders(root, name, preset) for name in names}
    there = [{path.parents[1].name for path in paths} for paths in found.values()]
    common = sorted(set.intersection(*there))
    if len(common) > 1:
        raise UsageError(f"there are runs in {', '.join(common)}: choose one with --preset")
    if not common:
        missing = next((name for name in names if not found[name]), names[-1])
        where = preset or "mini"
        raise UsageError(
            f"no run of {missing} in {root}/{preset or '*'}"
            f"{' beside the others' if len(names) > 1 else ''}: "
            f"{train_command(missing, where, root)}"
        )
    groups = {
        str(name): [RunFolder(path) for path in paths if path.parents[1].name == common[0]]
        for name, paths in found.items()
    }
    check_one_source([folder for folders in groups.values() for folder in folders])
    records = [folder.record() for folders in groups.values() for folder in folders]
    first = records[0]
    for record in records[1:]:
        if record.budget != first.budget:
            differs = first.config.differences(record.config) or "their budgets"
            raise UsageError(
                f"{first.encoding} (seed {first.seed}) and {record.encoding} (seed {record.seed}) "
                f"were not trained alike ({differs}): draw them apart, or train them alike"
            )
    return _study(groups, first)


def study_all(root: Path, preset: str | None = None) -> Study:
    """The curves of every run of one preset below `root` that was trained as most were, or as the
    preset says, by the encodings' names; what is left out is told on stderr. Errors: UsageError
    where there are none, or runs of several presets; Failure for corrupt metrics."""
    alike: dict[tuple[tuple[str, object], ...], Runs] = {}
    for folder in find_runs(root):
        try:
            record = folder.record()
        except Failure as error:
            say(f"note: {error}")
            continue
        if record.preset == (preset or record.preset):
            key = ("preset", record.preset), *sorted(record.budget.items())
            alike.setdefault(key, []).append((folder, record))
    found = sorted({record.preset for runs in alike.values() for _, record in runs})
    if len(found) > 1:
        raise UsageError(f"there are runs of {', '.join(found)}: choose one with --preset")
    if not found:
        of, how = f" of {preset}" if preset else "", train_command(parse("rope"), preset, root)
        raise UsageError(f"no run{of} in {root}: {how} makes one{other_run_roots(root)}")
    kept, *others = sorted(alike.values(), key=_claim, reverse=True)
    first = kept[0][1]
    for runs in others:
        why = runs[0][1].config.differences(first.config) or "not begun alike"
        seeds = {name: [record.seed for _, record in of] for name, of in _groups(runs).items()}
        tell([(listed(seeds), why)])
    folders = {name: [folder for folder, _ in of] for name, of in _groups(kept).items()}
    check_one_source([folder for of in folders.values() for folder in of])
    return _study(folders, first)


def _claim(runs: Runs) -> tuple[bool, bool, int, int]:
    """What decides which runs are drawn: whether they are the preset's own, then whether they began
    with weights of their own, then how many."""
    first, own = runs[0][1], False
    from_scratch = first.init_from is None
    if first.preset in presets() and from_scratch:
        own = first.config == load_preset(first.preset) and first.first_steps == first.config.steps
    return own, from_scratch, len(_groups(runs)), len(runs)


def _groups(runs: Runs) -> dict[str, Runs]:
    """The runs of each encoding."""
    result: dict[str, Runs] = {}
    for folder, record in runs:
        result.setdefault(record.encoding, []).append((folder, record))
    return result


def _study(groups: Mapping[str, Sequence[RunFolder]], first: RunRecord) -> Study:
    """The curves of `groups`, all trained as `first`."""
    return Study(
        tuple(learner(name, folders) for name, folders in groups.items()),
        first.preset,
        first.settings,
        first.config.task,
        first.config.trained_digits,
        first.config.tested_digits,
    )


def learner(encoding: str, folders: Sequence[RunFolder]) -> Learner:
    """The curves of one encoding, a row a seed."""
    runs = {folder.record().seed: folder.metrics() for folder in folders}
    seeds = tuple(sorted(runs))
    lines = [runs[seed] for seed in seeds]
    taken = [[line for line in run if line.get("exact_match") is not None] for run in lines]
    lengths = [by_length(run) for run in lines]
    measures = [states(run) for run in lines]
    return Learner(
        encoding,
        seeds,
        loss=together([[(line["step"], line["loss"]) for line in run] for run in lines]),
        held_out=together([[(line["step"], line["exact_match"]) for line in run] for run in taken]),
        in_distribution=together([curve(run, "in_distribution") for run in lines]),
        out_of_distribution=together([curve(run, "out_of_distribution") for run in lines]),
        by_length={n: together([of.get(n, []) for of in lengths]) for n in sorted(lengths[0])},
        state={name: _layers([of.get(name, []) for of in measures]) for name in measures[0]},
    )


def together(curves: Sequence[Sequence[tuple[int, float]]]) -> Series:
    """Curves of several seeds, at the steps that all of them have: else neighbouring points would
    be means over different runs."""
    values = [dict(points) for points in curves]
    steps = sorted(set.intersection(*(set(points) for points in values)))
    return Series(tuple(steps), tuple(tuple(points[step] for step in steps) for points in values))


def _layers(curves: Sequence[Sequence[tuple[int, list[float]]]]) -> tuple[Series, ...]:
    """A series a layer."""
    count = len(curves[0][0][1])
    return tuple(
        together([[(step, values[i]) for step, values in points] for points in curves])
        for i in range(count)
    )


def _folders(root: Path, name: Name, preset: str | None) -> list[Path]:
    """The runs of `name`, in whatever preset or in one."""
    files = root.glob(f"{preset or '*'}/{slug(str(name.encoding))}/seed-*/run.json")
    return sorted(file.parent for file in files)


def figure_path(root: Path, study: Study) -> Path:
    """Where curves are drawn unless said otherwise: beside the runs of their preset."""
    names = joined([learner.encoding for learner in study.learners])
    return root / study.preset / f"curves-{names}.png"
