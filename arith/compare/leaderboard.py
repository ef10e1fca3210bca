"""The leaderboard: what the runs of a preset say, gathered. No torch, unless costs are wanted."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

from tape_arith.arith.compare.order import NOT_RANKED, SECTIONS, kinds, sections
from tape_arith.arith.compare.panels import all_panels
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.figures.captions import Panel, footnote, source
from tape_arith.arith.figures.leaderboard_data import Board, Comparison, Section, Standing, Training
from tape_arith.arith.figures.tables import Row
from tape_arith.arith.runs.folder import RunFolder, find_runs
from tape_arith.arith.runs.metrics import LastStates, last_states
from tape_arith.arith.runs.record import check_can_continue
from tape_arith.arith.scoring.comparisons import Welch, holm, welch
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.grid import SOLVED, Grid, solved_to
from tape_arith.arith.terminal import say
from tape_arith.arith.training.config import Config
from tape_arith.models.names.parse import parse

REFERENCES = ("rope", "tape")
"""What every encoding is tested against (the protocol)."""
Key = tuple[str, str, int]
"""Preset, encoding and seed: which run it is."""


def board(
    root: Path,
    preset: str | None = None,
    *,
    evaluation_set: EvaluationSet = DEFAULT_SET,
    costs: bool = False,
) -> Board:
    """The leaderboard of `preset`, or of the one that has runs; with `costs`, parameters and FLOPs
    at the size that was trained. Errors: UsageError where nothing is scored, or in several presets;
    Failure for a corrupt grid."""
    panels, left_out = all_panels(root, preset, evaluation_set)
    of = {panel[0].name: panel for panel in panels}
    ordered = sections(panels)
    shown = [of[row.encoding] for rows in ordered.values() for row in rows]
    ranked = {
        row.encoding for title, rows in ordered.items() if title != NOT_RANKED for row in rows
    }
    tests = tested(of, ranked)
    folders = _folders(root)
    first = panels[0][0]
    config = _config(first, folders) if costs else None

    def standing(row: Row, place: int) -> Standing:
        panel = of[row.encoding]
        kind = kinds(row.encoding)
        runs = [folders.get(_key(grid)) for grid in panel]
        last = [_last(grid, run) for grid, run in zip(panel, runs, strict=True)]
        parameters, flops = _cost(row.encoding, config, runs[0]) if config else (None, None)
        return Standing(
            row,
            place if row.ranked else None,
            "unknown" if kind is None else " + ".join(kind),
            {share: solved_to(panel, share) for share in SOLVED},
            tests[row.encoding],
            [states.values if states else None for states in last],
            [_train_seconds(run) for run in runs],
            parameters,
            flops,
            [_training(run, row.encoding, config) for run in runs] if config else (),
            [states.steps for states in last if states],
        )

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
            Section(title, SECTIONS[title], [standing(row, n) for n, row in enumerate(rows, 1)])
            for title, rows in ordered.items()
        ],
        REFERENCES,
        left_out,
        costs,
    )


def tested(panels: Mapping[str, Panel], ranked: set[str]) -> dict[str, dict[str, Comparison]]:
    """For each encoding its tests against REFERENCES, with Holm over all that could be made. A
    reference against another is one test, told on both rows.

    What is not ranked is not tested; nor are two ways of scoring the same training runs, whose
    means are not independent, as Welch's test takes them to be.
    """
    made: dict[tuple[str, str], Welch] = {}
    why: dict[tuple[str, str], str] = {}
    for name, reference in product(panels, REFERENCES):
        reason = _no_test(name, reference, panels, ranked)
        test = None if reason else welch(_means(panels[name]), _means(panels[reference]))
        if test is None:
            why[name, reference] = reason or "neither varies between seeds"
        else:
            made[name, reference] = test
    p = {frozenset(pair): test.p for pair, test in made.items()}
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))

    def comparison(name: str, reference: str) -> Comparison:
        pair = (name, reference)
        return Comparison(made.get(pair), adjusted.get(frozenset(pair)), why.get(pair))

    return {name: {ref: comparison(name, ref) for ref in REFERENCES} for name in panels}


def _no_test(
    name: str, reference: str, panels: Mapping[str, Panel], ranked: set[str]
) -> str | None:
    """Why an encoding is not tested against a reference, as far as that is known beforehand."""
    if name == reference:
        return "the reference itself"
    if reference not in panels:
        return f"no scored run of {reference}"
    for one in (name, reference):
        if one not in ranked:
            return f"{one} is not ranked"
    if panels[name][0].encoding == panels[reference][0].encoding:
        return "the same training runs"
    for one in (name, reference):
        if len(panels[one]) < 2:
            return f"one seed of {one}"
    return None


def _means(panel: Panel) -> list[float]:
    values = [grid.mean("out_of_distribution").value for grid in panel]
    return [value for value in values if value is not None]  # all are there: it is ranked


def _key(grid: Grid) -> Key:
    return grid.preset, grid.encoding, grid.seed


def _folders(root: Path) -> dict[Key, RunFolder]:
    """The folder of each run, by what its run.json says: of an encoding that is not known any more
    too. What cannot be read has no folder here; its grid is shown all the same."""
    found: dict[Key, RunFolder] = {}
    for folder in find_runs(root):
        try:
            record = folder.record()
        except Failure as error:
            say(f"note: {error}")
            continue
        found[record.preset, record.encoding, record.seed] = folder
    return found


def _last(grid: Grid, run: RunFolder | None) -> LastStates | None:
    if run is None or grid.extrapolation:  # training knows nothing of what is added at test time
        return None
    try:
        return last_states(run.metrics())
    except Failure as error:
        say(f"note: {error}")
        return None


def _train_seconds(run: RunFolder | None) -> float | None:
    if run is None:
        return None
    try:
        return run.timings().get("train")
    except Failure as error:
        say(f"note: {error}")
        return None


def _training(run: RunFolder | None, name: str, config: Config) -> Training:
    """As the last line of metrics.jsonl has it, which counts the whole of it."""
    if run is None:
        return Training()
    try:
        lines, environment = run.metrics(), run.environment()
    except Failure as error:
        say(f"note: {error}")
        return Training()
    if not lines or not lines[-1]["seconds"]:
        return Training()
    rate = lines[-1]["tokens"] / lines[-1]["seconds"]
    mfu = _mfu(rate, name, config, environment.hardware, run)
    return Training(lines[-1]["loss"], rate, mfu)


def _mfu(rate: float, name: str, config: Config, hardware: object, run: RunFolder) -> float | None:
    from tape_arith.arith.runs.build import training_flops_a_token
    from tape_arith.models.hardware import datasheet

    limit = datasheet(str(hardware))
    if limit is None or not _trusted(run):
        return None
    try:
        return rate * training_flops_a_token(parse(name), config) / limit
    except (UsageError, Failure) as error:  # not known any more, or it cannot tell
        say(f"note: {error}")
        return None


def _trusted(run: RunFolder | None) -> bool:
    """Whether the encoding of `run` is what it was trained with: to compute its size is to run
    its code."""
    if run is None:
        return False
    try:
        check_can_continue(run.path, run.record())
    except (UsageError, Failure) as error:
        say(f"note: {error}")
        return False
    return True


def _config(grid: Grid, folders: Mapping[Key, RunFolder]) -> Config:
    """The size that was trained. Errors: UsageError or Failure where no run tells."""
    run = folders.get(_key(grid))
    if run is None:
        raise Failure(
            f"{grid.name} seed {grid.seed} has no run.json that tells its size: leave --costs out"
        )
    return run.record().config


def _cost(name: str, config: Config, run: RunFolder | None) -> tuple[int | None, float | None]:
    from tape_arith.arith.runs.build import cost

    if not _trusted(run):
        return None, None
    try:
        found = cost(parse(name), config)
    except (UsageError, Failure) as error:  # not known any more, or it cannot tell
        say(f"note: {error}")
        return None, None
    return found.parameters, found.flops_a_token
