"""Write the words around a comparison: means, intervals, seeds, settings, footnotes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from tape_arith.arith.compare.labels import prior_word, told_note
from tape_arith.arith.compare.lengths import cell, trained_and_tested
from tape_arith.arith.data.bucket import CARRY, EVALUATION
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.axes import REGION_WORDS, Region
from tape_arith.arith.grids.grid import CONVERGED, SLACK, Grid
from tape_arith.arith.grids.panel import FINAL_ANSWERS, Panel, seed_words
from tape_arith.arith.grids.statistics import Interval
from tape_arith.arith.registry.declarations import MODEL
from tape_arith.arith.registry.names import task_location
from tape_arith.arith.tasks.load import load_task

NBSP = "\N{NO-BREAK SPACE}"
MEANS: tuple[Region, ...] = ("out_of_distribution", "in_distribution", "all_cells")
"""The means that every figure prints, in this order."""
SPLIT_WORDS = {EVALUATION: "", CARRY: "hard problems: long carry chains"}
"""Names of the splits in notes; the usual split has none."""
RANGES = f"Where ± would leave 0 to 100{NBSP}%, the lowest and the highest seed are in brackets."
ONE_SEED = "\N{DAGGER}"
"""The sign of a ± that is over problems, not over seeds."""
_PRIORS = {
    "told": "told: training covers the tested length",
    "structured": "structured: the encoding knows where digits stand",
    MODEL: f"{MODEL}: in the place of the decoder",
}
"""What the words of `prior_word` mean."""
_MOST_NAMED = 4
"""The most settings that a footnote names, and the most encodings of which it lists uncommon seeds;
more are counted."""


def percent(interval: Interval | None, seeds: Sequence[float] = ()) -> str:
    """Return a mean with its interval in percent: "18.2 ± 3.1"; "-" for no mean.

    `seeds` are the means of single seeds. Where ± would leave 0 to 100 %, the lowest and highest
    seed are printed instead: "45.3 (4.1\N{EN DASH}91.2)". A mean just below convergence gets
    enough decimals to stay below it: "98.95".
    """
    if interval is None:
        return "-"
    mean, half = 100 * interval.mean, 100 * interval.half_width
    text = percent_alone(interval.mean)
    shares = [100 * value for value in seeds]
    middle, arm = round(10 * mean), round(10 * half)  # in tenths, as printed
    if len(shares) > 1 and arm and not 0 <= middle - arm <= middle + arm <= 1000:
        low, high = f"{min(shares):.1f}", f"{max(shares):.1f}"
        return text if low == high else f"{text} ({low}\N{EN DASH}{high})"
    # A half-width that rounds to 0.0 must not read as zero.
    return f"{text} ± {'<0.1' if 0 < half < 0.05 else f'{half:.1f}'}"


def percent_of(panel: Panel, region: Region) -> str:
    """Return the mean of a region as `percent`."""
    return percent(panel.interval(region), panel.seed_means(region))


def percent_alone(share: float | None) -> str:
    """Return a percentage with one decimal, or enough that 98.95 is not printed as 99.0."""
    if share is None:
        return "-"
    decimals = 1
    while share < CONVERGED - SLACK and round(100 * share, decimals) >= 100 * CONVERGED:
        decimals += 1
    return f"{100 * share:.{decimals}f}"


def mean_line(panel: Panel, region: Region, labels: Mapping[Region, str] = REGION_WORDS) -> str:
    """Return "out of distribution 18.2 ± 3.1 %", or "out of distribution: none scored"."""
    if panel.mean(region) is None:
        return f"{labels[region]}: none scored"
    return f"{labels[region]} {percent_of(panel, region)} %"


def difference_line(
    one: Panel, other: Panel, region: Region, labels: Mapping[Region, str] = REGION_WORDS
) -> str:
    """Return "out of distribution +12.3 points": `one` minus `other`, without an interval."""
    first, second = one.mean(region), other.mean(region)
    if first is None or second is None:
        return f"{labels[region]}: none scored"
    return f"{labels[region]} {signed(100 * (first - second), 1)} points"


def signed(points: float, places: int) -> str:
    """Return "+12.3"; a negative number gets a real minus sign, and 0.0 gets no sign."""
    text = f"{abs(points):.{places}f}"
    if float(text) == 0:
        return text
    return ("+" if points > 0 else "\N{MINUS SIGN}") + text


def seeds_line(panel: Panel) -> str:
    """Return "seed 3" or "5 seeds"."""
    return seed_words(panel.seeds) if len(panel.seeds) == 1 else f"{len(panel.seeds)} seeds"


def footnote(
    panels: Sequence[Panel],
    labels: Mapping[str, str] = {},
    means: Sequence[Region] = MEANS,
) -> str:
    """Describe the task, lengths, problems, evaluation set, seeds and ± of a table or a page.

    labels  the names to print for encodings
    means   the regions whose means are printed
    """
    each, has_spread = cell(panels[0].axes), any(len(panel.seeds) > 1 for panel in panels)
    values = "Cells" if each == "cell" else "Values"
    sentences = [
        source(panels, labels) + told_note(panels, labels),
        f"{_interval_words(panels)}.",
        RANGES * has_ranges(panels, means),
        f"{values} are means over seeds; in a mean every {each} weighs the same."
        if has_spread
        else f"In a mean every {each} weighs the same.",
        *convergence_notes(panels),
        *untrained_notes(panels, labels),
    ]
    return " ".join(filter(None, sentences))


def caption(
    panels: Sequence[Panel],
    labels: Mapping[str, str],
    clauses: Iterable[str],
    means: Sequence[Region] = MEANS,
) -> str:
    """Say in a sentence where the numbers of a figure come from, in another what limits them.

    Names no encodings but those of which indices were never trained: `prior_word` and
    `convergence` mark them in the figure.

    clauses  what else the second sentence says
    means    the regions whose means are printed
    """
    limits = [
        _interval_words(panels) * bool(means),
        "in brackets the lowest and the highest seed" * has_ranges(panels, means),
        *clauses,
        *[meaning for word, meaning in _PRIORS.items() if word in map(prior_word, panels)],
        *_convergence_clauses(panels),
    ]
    clause = "; ".join(filter(None, limits))
    second = f"{clause[0].upper()}{clause[1:]}." if clause else ""
    sentences = [source(panels, labels), second, *untrained_notes(panels, labels)]
    return " ".join(filter(None, sentences))


def _interval_words(panels: Sequence[Panel]) -> str:
    """Return what ± is."""
    counts = {len(panel.seeds) for panel in panels}
    problems, interval = "over problems, not over seeds", f"± is the 95{NBSP}% interval:"
    if counts == {1}:
        return f"{interval} {problems} (one seed)"
    alone = f"; where there is one seed, {problems}" * (1 in counts)
    return f"{interval} Student{NBSP}t over seeds{alone}"


def has_ranges(panels: Sequence[Panel], means: Sequence[Region]) -> bool:
    """Tell whether a mean has the lowest and the highest seed in place of ±."""
    return any("\N{EN DASH}" in mean_line(panel, region) for panel in panels for region in means)


def untrained_notes(panels: Sequence[Panel], labels: Mapping[str, str] = {}) -> list[str]:
    """Return a sentence for each length beyond which encodings have untrained indices."""
    named: dict[str, list[str]] = {}
    for panel in panels:
        named.setdefault(panel.untrained, []).append(labels.get(panel.name, panel.name))
    return [
        f"Indices were never trained in {words}: {', '.join(names)}."
        for words, names in named.items()
        if words
    ]


def convergence_notes(panels: Sequence[Panel]) -> list[str]:
    """Return sentences on the problems in distribution that training has seen, and on runs that
    have not converged, if any."""
    return [f"{clause[0].upper()}{clause[1:]}." for clause in _convergence_clauses(panels)]


def _convergence_clauses(panels: Sequence[Panel]) -> list[str]:
    judged = _judged(panels)
    known = [grid for grid in judged if grid.seen_share is not None]
    clauses = [seen_in_training(panels)] if known else []
    if any(grid.converged is False for panel in panels for grid in panel.grids):
        usual = " on the usual problems" if SPLIT_WORDS.get(panels[0].first.split, True) else ""
        if not known:
            counted = " (problems that training has seen count too)"
        elif len(known) < len(judged):
            counted = " (where it is not recorded which problems training has seen, all count)"
        else:
            unseen_decide = all(grid.unseen_decide for grid in known)
            counted = ", of what training has not seen" if unseen_decide else ""
        clauses.append(f"not converged: below 99{NBSP}% in distribution{usual}{counted}")
    return clauses


def _judged(panels: Sequence[Panel]) -> list[Grid]:
    """Return the grids that decide whether the runs of panels have converged."""
    grids = (grid.judged for panel in panels for grid in panel.grids)
    return [grid for grid in grids if grid is not None]


def seen_in_training(panels: Sequence[Panel]) -> str:
    """Return `seen_words` of the mean over the grids that know their share; "" if none does."""
    known = [(one, share) for one in _judged(panels) if (share := one.seen_share) is not None]
    if not known:
        return ""
    mean = fsum(share for _, share in known) / len(known)
    return seen_words(mean, all(grid.unseen_decide for grid, _ in known))


def seen_words(share: float, unseen_decide: bool = True) -> str:
    """Return what follows for convergence from the share of problems that training has seen.

    unseen_decide  whether the others are enough to decide it

    >>> seen_words(0.066).replace(NBSP, " ")
    'training has seen 6.6 % of the problems in distribution'
    >>> seen_words(0.99, unseen_decide=False).replace(NBSP, " ")
    'training has seen 99.0 % of the problems in distribution, so that convergence is recall'
    """
    percentage = "all" if share == 1 else f"{100 * share:.{1 if share < 0.9995 else 3}f}{NBSP}%"
    text = f"training has seen {percentage} of the problems in distribution"
    if share == 1 or (share > 0.5 and not unseen_decide):
        return f"{text}, so that convergence is recall"
    return f"{text}; the others decide convergence" if share > 0.5 else text


def source(panels: Sequence[Panel], labels: Mapping[str, str] = {}) -> str:
    """Describe the task, lengths, problems, evaluation set and seeds in one sentence."""
    first, evaluation = panels[0], panels[0].first.evaluation
    seeds = {labels.get(panel.name, panel.name): panel.seeds for panel in panels}
    problems = SPLIT_WORDS.get(evaluation.split, evaluation.split)
    hard = f", {problems}," if problems else ","
    scratchpad = "exact match of the whole answer, scratchpad included, " * has_scratchpad(first)
    guess = guess_words(evaluation.task)
    guessed = f" ({guess})" if guess else ""
    elsewhere = "" if first.first.budget.steps else "not trained here, where runs are "
    return (
        f"Task {evaluation.task}{hard} {elsewhere}{trained_and_tested(first.axes)} "
        f"(preset {recipe(panels)}), {scratchpad}"
        f"{evaluation.problems_per_cell} problems a {cell(first.axes)}{guessed}, "
        f"evaluation set {evaluation.sha256[:8]}, {describe_seeds(seeds)}."
    )


def left_out(excluded: Iterable[tuple[str, str]]) -> list[str]:
    """Return a sentence for each excluded group of runs, given as (runs, reason)."""
    return [f"Left out: {runs}: {reason}." for runs, reason in excluded]


def recipe(panels: Sequence[Panel]) -> str:
    """Return the preset of panels and the settings that differ from it, as `preset_words`."""
    settings = next((panel.settings for panel in panels if panel.settings), {})
    return preset_words(panels[0].preset, settings)


def chance(task: str) -> float | None:
    """Return the share of problems that the best guess gets right; 0 if it falls with length.

    None if the task's file is missing. A user's file is read, not executed, because its name may
    come with the results of another person.
    """
    try:
        location = task_location(task)
        return load_task(task).chance if location.is_builtin else location.declaration().chance
    except UsageError:
        return None


def needs_positions(task: str) -> bool:
    """Tell whether a task's answer depends on the order of its tokens; true if it is unknown."""
    try:
        return task_location(task).declaration().needs_positions
    except UsageError:
        return True


def guess_words(task: str) -> str:
    """Return "a guess is right in 50 %", or "" if that falls with length."""
    share = chance(task)
    if share is None:
        return "chance level unknown: the task's file is missing"
    return f"a guess is right in {100 * share:.2g}{NBSP}%" if share else ""


def has_scratchpad(panel: Panel) -> bool:
    """Tell whether an answer begins with the steps of the calculation, which must be right too."""
    scoring = panel.first.scoring
    return task_has_scratchpad(panel.task) or any(key.startswith(FINAL_ANSWERS) for key in scoring)


def task_has_scratchpad(task: str) -> bool:
    """Tell whether the name of a task asks for a scratchpad."""
    return "scratchpad=true" in task.split(":")[1:]


def preset_words(preset: str, settings: Mapping[str, int | float | str]) -> str:
    """Return "mini", "mini with steps=2,000, batch_size=64" or "mini, from runs of 1,000 steps"."""

    def text(value: int | float | str) -> str:
        if isinstance(value, str | bool):
            return str(value)
        return f"{value:{',' if isinstance(value, int) else 'g'}}"

    changed = [f"{key}={text(value)}" for key, value in settings.items() if key != "steps_before"]
    named, more = changed[:_MOST_NAMED], len(changed[_MOST_NAMED:])
    words = f"{preset} with {', '.join(named)}" if named else preset
    words += f" and {more} more" if more else ""
    if before := settings.get("steps_before"):
        words += f", from runs of {text(before)} steps"
    return words


def describe_seeds(seeds: Mapping[str, Sequence[int]]) -> str:
    """Return the seeds that most encodings have, then those of the others.

    >>> describe_seeds({"rope": (0, 1), "fire": (0, 1), "tape": (0,)})
    'seeds 0, 1 (tape: 0)'

    If more than four encodings differ, they are counted: "(4 encodings: 0; 1 encoding: 2)".
    """
    each = [tuple(numbers) for numbers in seeds.values()]
    common = max(each, key=lambda numbers: (each.count(numbers), len(numbers)))
    rare = [(name, tuple(own)) for name, own in seeds.items() if tuple(own) != common]
    if len(rare) > _MOST_NAMED:
        counts = Counter(numbers for _, numbers in rare).most_common()
        rare = [(f"{count} encoding{'s' * (count > 1)}", numbers) for numbers, count in counts]
    words = [f"{name}: {', '.join(map(str, numbers))}" for name, numbers in rare]
    return seed_words(common) + (f" ({'; '.join(words)})" if words else "")
