"""The runs that a comparison asks for."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tape_arith.arith.compare.groups import (
    Excluded,
    choose_group,
    of_one_preset,
    run_words,
    scored_in_part,
    warn_excluded,
)
from tape_arith.arith.compare.labels import display_names
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import slug
from tape_arith.arith.grids.comparable import differences
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel, panels_of
from tape_arith.arith.registry.names import Name, parse, parse_or_split, parse_task
from tape_arith.arith.runs.command_lines import (
    completing_command,
    next_step,
    score_command,
    train_command,
)
from tape_arith.arith.runs.find import find_grids, find_runs, preset_folder
from tape_arith.arith.runs.preset import check_task
from tape_arith.arith.runs.run import RunState
from tape_arith.arith.terminal import say

Key = tuple[str, str, int]
"""Preset, encoding (as it was trained) and seed, which identify a run."""
T = TypeVar("T")
ALL = "all"
"""The value of `names` that selects every scored encoding of the preset."""
_MOST_NAMED = 8
"""The most encodings that a figure's file name lists."""


@dataclass(frozen=True)
class Selection:
    """The scored runs that a comparison asks for."""

    root: Path
    """The folder of runs, in which what is made has its default place."""
    names: str = ALL
    """Encodings with commas, or ALL."""
    preset: str | None = None
    """None: the preset that has every encoding."""
    task: str | None = None
    """Only runs of this task count; None: of any task."""
    evaluation_set: EvaluationSet = DEFAULT_SET
    more_roots: tuple[Path, ...] = ()
    """Further folders of runs, such as those of another lab; of a run in two the first counts."""

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.root, *self.more_roots

    @cached_property
    def named(self) -> list[Name]:
        """Return the encodings, each once; [] means all. Raises UsageError if `names` is empty."""
        if self.names == ALL:
            return []
        texts = filter(None, map(str.strip, self.names.split(",")))
        named = list(dict.fromkeys(map(self._parse, texts)))
        if not named:
            raise UsageError("nothing to compare: name encodings, as in --compare fire,tape")
        return named

    def _parse(self, text: str) -> Name:
        """Parse a name; accept that of a run whose encoding's file is missing, and labels."""
        try:
            return parse(text)
        except UsageError:
            name = parse_or_split(text)
            if find_runs(self.roots, self.preset, name.encoding):
                return name
            if text not in self._by_label:
                raise
            return self._by_label[text]

    @cached_property
    def _by_label(self) -> dict[str, Name]:
        """Return the encodings of runs by the labels that tables print."""
        recorded = {
            encoding: state.record.about
            for (preset, encoding, _), state in read_states(self.roots).items()
            if self.preset in (None, preset)
        }
        labels = display_names(recorded, recorded=recorded)
        return {label: parse_or_split(encoding) for encoding, label in labels.items()}

    @property
    def wanted(self) -> list[str]:
        return list(map(str, self.named))

    def grids(self, *, of_all: bool = False, name_corrupt: bool = True) -> list[Grid]:
        """Return the grids on the evaluation set, complete or not.

        of_all        whether to return those of every encoding, named or not
        name_corrupt  as for `find_grids`
        """
        named = None if of_all else self.named or None
        return find_grids(
            self.roots, self.preset, named, self.evaluation_set, name_corrupt=name_corrupt
        )

    def panels(
        self, runs: Mapping[Key, object] | None = None
    ) -> tuple[list[Panel], list[Excluded]]:
        """Return one panel per encoding, and the excluded runs, which are named on stderr.

        If `runs` (all runs below `root`) is given, comparable encodings that `names` lacks are
        appended. Raises UsageError as `of_one_preset` and `choose_group` do; if nothing is scored,
        its message has the commands that make what is missing.
        """
        read_all = runs is not None or not self.named
        # Whoever reads all runs names those that cannot be read.
        every_grid = self.grids(of_all=read_all, name_corrupt=not read_all)
        if self.task is not None:
            every_grid = _of_task(self.task, every_grid)
        grids, partial = self.split_complete(every_grid)
        candidates = of_one_preset(grids, self.wanted)
        if not candidates:
            raise self.nothing_scored(grids)
        shown, excluded = choose_group(candidates, differences, self.wanted)
        if read_all:
            scored = set(map(key, every_grid))
            unscored = [
                (name, seed)
                for preset, name, seed in (read_states(self.roots) if runs is None else runs)
                if preset == shown[0].preset and (preset, name, seed) not in scored
            ]
            if unscored:
                reason = f"not scored{self.evaluation_set} yet"
                excluded.append(Excluded(run_words(unscored), reason))
        warn_excluded(excluded)
        if partial := [grid for grid in partial if grid.preset == shown[0].preset]:
            excluded.append(scored_in_part(partial))
        return panels_of(shown, self.wanted), excluded

    def split_complete(self, grids: Sequence[Grid]) -> tuple[list[Grid], list[Grid]]:
        """Return the complete grids, and those scored in part, which are named on stderr."""
        partial = [grid for grid in grids if not grid.complete]
        for grid in partial:
            count = f"{grid.blocks_done} of {grid.evaluation.problems_per_cell} problems a cell"
            command = completing_command(self.root, grid, self.evaluation_set)
            say(f"note: left out: {grid.name} seed {grid.seed}: {count} are scored: {command}")
        return [grid for grid in grids if grid.complete], partial

    def nothing_scored(self, grids: Sequence[Grid] = ()) -> UsageError:
        """Return the error for missing grids, with the commands that make them.

        grids  the grids that are scored
        """
        check_task(self.preset)
        root, words = self.root, self.evaluation_set
        if not self.named:
            command = " ".join(["tape-arith score RUN", *words.options])
            if words == DEFAULT_SET:
                command = train_command(parse("rope"), self.preset, root)
            of_preset = f" of {self.preset}" if self.preset else ""
            return UsageError(
                f"no scored run{of_preset} in {root}{words}: "
                + next_step(root, f"{command} makes one")
            )
        scored: dict[str, set[str]] = {self.preset or "mini": set()}
        for grid in grids:
            scored.setdefault(grid.preset, set()).add(grid.name)
        # A user most probably means the preset that lacks the fewest.
        closest = max(scored, key=lambda name: len(scored[name].intersection(self.wanted)))
        missing = [name for name in self.named if str(name) not in scored[closest]]
        commands = "; ".join(score_command(root, closest, name, words) for name in missing)
        place = f"{', '.join(map(str, missing))} in {root / slug(closest)}{words}"
        return UsageError(f"no scored run of {place}: {next_step(root, commands)}")

    def figure_path(self, panels: Sequence[Panel], form: str = "") -> Path:
        """Return the default path of a heatmap, or another `form`: next to its preset's runs."""
        names = join_names([panel.name for panel in panels])
        file = f"{names}{self.evaluation_set.name}{form}.png"
        return preset_folder(self.root, panels[0].preset) / file


def _of_task(task: str, grids: Sequence[Grid]) -> list[Grid]:
    """Return the grids of a task. Raises UsageError if all grids are of other tasks."""
    task = canonical_task(task)
    tasks = {grid.evaluation.task for grid in grids}
    if tasks and task not in tasks:
        raise unknown("scored task", task, tasks)
    return [grid for grid in grids if grid.evaluation.task == task]


def canonical_task(text: str) -> str:
    """Return the name of a task as grids have it; the name of a missing task stays as it is."""
    with suppress(UsageError):
        return str(parse_task(text))
    return text


def join_names(names: Sequence[str]) -> str:
    """Join encodings into part of a file's name: the first eight, then the number of the others."""
    more = len(names) - _MOST_NAMED
    return "-".join(map(slug, names[:_MOST_NAMED])) + (f"-and-{more}-more" if more > 0 else "")


# ---- the files of runs -----------------------------------------------------------------------


class TolerantState(RunState):
    """The state of a run whose unreadable files are named once on stderr, then count as missing."""

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return or_default(self.run.metrics, [])


def read_states(roots: Path | Sequence[Path]) -> dict[Key, TolerantState]:
    """Return the runs below `roots` by the key in their run.json, also of unknown encodings."""
    states: dict[Key, TolerantState] = {}
    for run in find_runs(roots):
        state = TolerantState(run)
        try:
            record = state.record
        except Failure as error:
            say(f"note: {error}")
        else:
            states[record.preset, record.encoding, record.seed] = state
    return states


def key(grid: Grid) -> Key:
    """Return the key of the run that a grid belongs to."""
    return grid.preset, grid.encoding, grid.seed


def or_default(read: Callable[[], T], default: T) -> T:
    """Return the result of `read`, or `default` with a note on stderr if it fails."""
    try:
        return read()
    except (UsageError, Failure) as error:
        say(f"note: {error}")
        return default
