"""The leaderboard: the scored encodings of a preset, ranked and tested. Torch only for costs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from tape_arith.arith.compare.order import SECTIONS, Panels, kinds, sections
from tape_arith.arith.compare.panels import ALL, select_panels
from tape_arith.arith.compare.run_files import Key, RunFiles, key, or_default, read_runs
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.figures.captions import Panel, footnote, source
from tape_arith.arith.figures.tables import Board, Comparison, Row, Section, Training
from tape_arith.arith.runs.metrics import last_states
from tape_arith.arith.runs.record import check_can_continue
from tape_arith.arith.scoring.grid import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.statistics import holm, welch
from tape_arith.arith.terminal import say
from tape_arith.arith.training.config import Config
from tape_arith.models.names import parse, parse_list

_REFERENCES = ("rope", "tape")
"""The encodings against which every other is tested (the protocol)."""


def board(
    root: Path,
    names: str = ALL,
    preset: str | None = None,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    *,
    costs: bool = False,
) -> Board:
    """Return the leaderboard of the encodings in `names`, ranked and tested among all.

    With `costs` it has parameters and FLOPs at the size that was trained. Raises UsageError as
    `select_panels`, Failure if costs are asked for and no record tells the size.
    """
    panels, excluded = select_panels(root, names, preset, evaluation_set, with_others=True)
    made = build_board(panels, excluded, read_runs(root), costs=costs)
    return made if names == ALL else made.only(list(map(str, parse_list(names))))


def build_board(
    panels: Panels,
    excluded: Sequence[tuple[str, str]],
    runs: Mapping[Key, RunFiles],
    *,
    costs: bool,
) -> Board:
    """Return the leaderboard of `panels`, whose runs left their files in `runs`."""
    by_name = {panel[0].name: panel for panel in panels}
    ordered = sections(panels)
    rows = {row.encoding: row for members in ordered.values() for row in members}
    tests, num_tests = significance_tests(rows, by_name)
    first = panels[0][0]
    config = _config(first.name, runs.get(key(first))) if costs else None

    def complete(row: Row, place: int) -> Row:
        grids = by_name[row.encoding]
        files = [runs.get(key(grid)) for grid in grids]
        # Training knows nothing of what is added at test time.
        trained = [
            None if grid.extrapolation else run for grid, run in zip(grids, files, strict=True)
        ]
        states = [last_states(run.metrics) if run else [] for run in trained]
        row = replace(
            row,
            rank=place if row.ranked else None,
            kind=" + ".join(kinds(row.encoding) or ("unknown",)),
            tests=tests[row.encoding],
            last_states=[[value for _, value in points] or None for points in states],
            last_steps=[tuple(step for step, _ in points) for points in states if points],
            train_seconds=[run.seconds.get("train") if run else None for run in files],
        )
        return row if config is None else _with_costs(row, files, config)

    shown = [by_name[name] for name in rows]
    return Board(
        first.preset,
        {
            "settings": next((g.settings for panel in panels for g in panel if g.settings), {}),
            "trained_digits": first.trained_digits,
            "max_digits": first.max_digits,
            "budget": first.budget,
            "evaluation": first.evaluation,
        },
        source(shown),
        footnote(shown),
        [
            Section(title, SECTIONS[title], [complete(row, n) for n, row in enumerate(members, 1)])
            for title, members in ordered.items()
        ],
        _REFERENCES,
        excluded,
        num_tests,
        len(panels),
        costs,
    )


def significance_tests(
    rows: Mapping[str, Row], panels: Mapping[str, Panel]
) -> tuple[dict[str, dict[str, Comparison]], int]:
    """Test each encoding against the references; return the tests and how many different ones.

    Holm's p is over all of them. A test of two references is one, on both their rows. What is not
    ranked is not tested; nor are two ways of scoring the same training runs, whose means are not
    independent, as Welch's test takes them to be.
    """
    tests: dict[tuple[str, str], Comparison] = {}
    means = {name: row.values["out_of_distribution"] for name, row in rows.items()}
    for name, reference in product(rows, _REFERENCES):
        reason = _why_no_test(name, reference, rows, panels)
        result = None if reason else welch(means[name], means[reference])
        if result is None:
            reason = reason or "neither varies between seeds"
        tests[name, reference] = Comparison(result, None, reason)
    p = {frozenset(pair): test.welch.p for pair, test in tests.items() if test.welch}
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    by_name: dict[str, dict[str, Comparison]] = {}
    for (name, reference), test in tests.items():
        p_holm = adjusted.get(frozenset((name, reference)))
        by_name.setdefault(name, {})[reference] = replace(test, p_holm=p_holm)
    return by_name, len(p)


def _why_no_test(
    name: str, reference: str, rows: Mapping[str, Row], panels: Mapping[str, Panel]
) -> str | None:
    """Return why an encoding is not tested against a reference, as far as that is known before."""
    if name == reference:
        return "the reference itself"
    if reference not in rows:
        return f"no scored run of {reference}"
    pair = (rows[name], rows[reference])
    for row in pair:
        if not row.ranked:
            return f"{row.encoding} is not ranked"
    if panels[name][0].encoding == panels[reference][0].encoding:
        return "the same training runs"
    return next((f"one seed of {row.encoding}" for row in pair if len(row.seeds) < 2), None)


# ---- costs -------------------------------------------------------------------------------------


def _config(name: str, run: RunFiles | None) -> Config:
    """Return the size that was trained. Raises Failure if no record tells it."""
    if run is None:
        raise Failure(f"{name} has no run.json that tells its size: leave --costs out")
    return run.record.config


def _with_costs(row: Row, runs: Sequence[RunFiles | None], config: Config) -> Row:
    """Add parameters, FLOPs and how training went, as far as they are known."""
    from tape_arith.arith.runs.build import cost

    size = None
    if _is_unchanged(runs[0]):
        size = or_default(lambda: cost(parse(row.encoding), config), None)
    return replace(
        row,
        parameters=size.parameters if size else None,
        flops_a_token=size.flops_a_token if size else None,
        trainings=[_training(run, row.encoding, config) for run in runs],
    )


def _training(run: RunFiles | None, name: str, config: Config) -> Training:
    """Return what the last line of metrics.jsonl, which counts all of the run, says."""
    if run is None or not run.metrics or not run.metrics[-1]["seconds"]:
        return Training()
    last = run.metrics[-1]
    rate = last["tokens"] / last["seconds"]
    return Training(last["loss"], rate, _mfu(rate, name, config, run))


def _mfu(rate: float, name: str, config: Config, run: RunFiles) -> float | None:
    from tape_arith.arith.runs.build import training_flops_a_token
    from tape_arith.models.hardware import datasheet

    limit = datasheet(run.environment.hardware) if run.environment else None
    if limit is None or not _is_unchanged(run):
        return None
    flops = or_default(lambda: training_flops_a_token(parse(name), config), None)
    return flops and rate * flops / limit


def _is_unchanged(run: RunFiles | None) -> bool:
    """Tell whether the encoding is that of the training: computing its size runs its code."""
    if run is None:
        return False
    try:
        check_can_continue(run.folder.path, run.record)
    except (UsageError, Failure) as error:
        say(f"note: {error}")
        return False
    return True
