"""The order of encodings in a comparison, and the leaderboard."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from tape_arith.arith.compare.board import Board, Row, Section
from tape_arith.arith.compare.costs import training_of
from tape_arith.arith.compare.effects import RANKED_BY, Effect, contrasts, effect, effects
from tape_arith.arith.compare.labels import is_told, kinds, prior_word
from tape_arith.arith.compare.selection import Key, Selection, TolerantState, key, read_states
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.registry.declarations import MODEL
from tape_arith.arith.terminal import say

_REFERENCES = ("rope", "tape")
"""The encodings against which every trained one is tested, whatever the results."""
AGNOSTIC, TOLD, _STRUCTURED = "Task-agnostic", "Told the tested length", "Task-structured"
ACROSS_TASKS = (AGNOSTIC, TOLD)
"""Sections whose encodings are ranked together across tasks: those told the length are few."""
_OTHER, _UNKNOWN, _NOT_RANKED = "Other models", "Of unknown kind", "Not ranked"
SECTIONS: Mapping[str, str] = {
    AGNOSTIC: "",
    TOLD: "the longest tested length sets their range of positions",
    _STRUCTURED: "these know where digits stand, a prior that the others do not have",
    _OTHER: "these stand in the place of the decoder, trained by the same recipe",
    _UNKNOWN: "their files are missing, so their kind is unknown",
    _NOT_RANKED: "a seed below 99 % in distribution, or a mean that is not known; by name",
}
"""The sections in their order, and why each is ranked apart."""


def by_rank(panel: Panel) -> tuple[bool, float, str]:
    """Return a sort key: by mean out of distribution, highest first; unranked last, by name."""
    return not panel.ranked, -level(panel) if panel.ranked else 0.0, panel.name


def level(panel: Panel) -> float:
    """Return the mean that ranks a panel, without the last bits: they depend on the addition."""
    return round(panel.mean(RANKED_BY) or 0.0, 12)


def sections(panels: Iterable[Panel]) -> dict[str, list[Panel]]:
    """Return the panels by section, in the order of SECTIONS and `by_rank`, without empty ones."""
    by_title: dict[str, list[Panel]] = {title: [] for title in SECTIONS}
    for panel in sorted(panels, key=by_rank):
        by_title[prior(panel) if panel.ranked else _NOT_RANKED].append(panel)
    return {title: members for title, members in by_title.items() if members}


def prior(panel: Panel) -> str:
    """Return the section of an encoding by what it knows, converged or not."""
    if kinds(panel) is None:
        return _UNKNOWN
    words = {"structured": _STRUCTURED, "told": TOLD, MODEL: _OTHER}
    return words.get(prior_word(panel), AGNOSTIC)


def sort_panels(panels: Sequence[Panel]) -> list[Panel]:
    """Return `panels` in the order of `sections`."""
    return [*chain.from_iterable(sections(panels).values())]


def heatmap_panels(
    selection: Selection, *, seed: int | None = None, sort: bool = False
) -> tuple[list[Panel], bool]:
    """Return the panels of a heatmap, and whether they are in the order of `sort_panels`.

    They are with `sort`, and always if ALL are selected. With `seed`, panels have that seed alone,
    and ALL selects the encodings that have it. Raises UsageError as `Selection.panels`.
    """
    panels, _ = selection.panels()
    if seed is not None:
        if not selection.named:
            panels = [panel for panel in panels if seed in panel.seeds]
        if not panels:
            place = f"{selection.root}{selection.evaluation_set}"
            raise UsageError(f"no scored run of seed {seed} in {place}")
        panels = [panel.only(seed) for panel in panels]
    if sort or not selection.named:
        return sort_panels(panels), True
    return panels, False


def describe_order(panels: Sequence[Panel]) -> str:
    """Describe the order of `sort_panels` in a clause."""
    first, *next_titles = sections(panels)
    if first == _NOT_RANKED:
        return "order: by name, because nothing is ranked"
    groups = ", ".join(next_titles).lower()
    return "order: by mean out of distribution" + (f", then {groups}" if groups else "")


# ---- the leaderboard ---------------------------------------------------------------------------


def build_board(
    selection: Selection,
    *,
    costs: bool = False,
    pairs: Iterable[tuple[str, str]] = (),
    among_shown: bool = False,
) -> Board:
    """Return the leaderboard of a selection.

    Ranks and tests are among all encodings, or only among those named. With `costs` it has
    parameters and FLOPs at the size that was trained. Raises UsageError as `Selection.panels` and
    `contrasts`.

    pairs  names that are tested among themselves, best decided before the results
    """
    runs = read_states(selection.roots)
    panels, excluded = selection.panels(runs)
    if among_shown and selection.named:
        panels = [panel for panel in panels if panel.name in selection.wanted]
    board = board_of(panels, runs, excluded, costs=costs, pairs=pairs)
    return board.only(selection.wanted) if selection.named else board


def board_of(
    panels: Sequence[Panel],
    runs: Mapping[Key, TolerantState],
    excluded: Sequence[tuple[str, str]] = (),
    *,
    costs: bool = False,
    pairs: Iterable[tuple[str, str]] = (),
) -> Board:
    """Return the leaderboard of `panels`; `runs` has times and costs. Raises as `build_board`."""
    ordered = sections(panels)
    compared, num_tests = effects([*chain.from_iterable(ordered.values())], _REFERENCES)

    def row(panel: Panel, title: str, rank: int) -> Row:
        best = next((each for each in ordered[title] if len(each.seeds) > 1), panel)
        files, about = [runs.get(key(grid)) for grid in panel.grids], panel.about if costs else None
        if costs and (about is None or about.parameters is None):
            say(f"note: no run of {panel.encoding} records its parameters and FLOPs")
        return Row(
            panel,
            title,
            rank=rank if panel.ranked else None,
            kind=" + ".join(["unknown"] if (known := kinds(panel)) is None else known),
            told=is_told(panel),
            effects=compared[panel.name],
            from_best=effect(panel, best) if panel.ranked and panel is not best else Effect(),
            runs=files,
            trainings=[training_of(run) for run in files] if costs else (),
            parameters=about.parameters if about else None,
            flops_a_token=about.flops_a_token if about else None,
        )

    ranked = []
    for title, members in ordered.items():
        levels = list(map(level, members))  # equal ones share a rank, and the next are left out
        ranks = [1 + sum(other > own for other in levels) for own in levels]
        rows = [row(panel, title, rank) for panel, rank in zip(members, ranks, strict=True)]
        ranked.append(Section(title, SECTIONS[title], rows))
    return Board(
        ranked,
        _REFERENCES,
        num_tests,
        num_encodings=len(panels),
        contrasts=contrasts(panels, pairs),
        costs=costs,
        left_out=excluded,
    )
