"""Where the numbers come from: the sections on runs, their settings, and how to make them again."""

from collections.abc import Iterable, Sequence

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.report.content import Report, Run
from tape_arith.arith.figures.report.markup import Markup, element, escaped, joined, scrolled

HASH = 12
"""So much of a hash tells two runs apart; the whole of it is in the list of facts."""


def summary(report: Report) -> Markup:
    """What is compared, in a list of terms."""
    first = report.ordered[0][0]
    evaluation = first.evaluation
    seeds = {len(panel) for panel in report.panels}
    many = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"{max(seeds)}"
    parameters = {
        "Preset": first.preset,
        "Task": f"{evaluation['task']}, version {evaluation['version']}",
        "Trained to": f"{first.trained_digits} digits",
        "Tested to": f"{first.max_digits} digits",
        "Encodings": len(report.panels),
        "Seeds an encoding": many,
        "Problems": captions.SPLITS.get(first.split, first.split) or "uniform digits",
        "Problems a cell": f"{evaluation['problems_per_cell']:,}",
        "Evaluation set": element("code", evaluation["sha256"][:HASH]),
    }
    terms = (
        element("div", element("dt", term), element("dd", value))
        for term, value in parameters.items()
    )
    return element("dl", *terms, class_="facts")


def provenance(runs: Sequence[Run]) -> Markup:
    """What each run is and what it ran on: once where it is the same for all, else a column."""
    if not runs:
        return element("p", "No run's record lies beside these grids.")
    names = list(runs[0].facts)
    same = [name for name in names if len({run.facts.get(name, "") for run in runs}) == 1]
    terms = (
        element("div", element("dt", name), element("dd", _fact(runs[0].facts[name])))
        for name in same
    )
    parts = [
        element("h3", f"The same for all {len(runs)} runs"),
        element("dl", *terms, class_="facts"),
    ]
    other = [name for name in names if name not in same]
    if other:
        head = element("tr", *(element("th", name, scope="col") for name in ["run", *other]))
        lines = (
            element(
                "tr",
                element("th", f"{run.encoding}, seed {run.seed}", scope="row"),
                *(element("td", _fact(run.facts.get(name, ""))) for name in other),
            )
            for run in runs
        )
        caption = element("caption", f"What differs; of a hash, its first {HASH} characters")
        table = element("table", caption, element("thead", head), element("tbody", *lines))
        parts.append(scrolled(table, "Runs"))
    return joined(parts)


def _fact(value: str) -> Markup:
    if _is_hash(value):
        return element("code", value[:HASH])
    return escaped(value) if value else element("span", "not recorded", class_="unknown")


def _is_hash(value: str) -> bool:
    return len(value) == 64 and set(value) <= set("0123456789abcdef")


def configuration(runs: Sequence[Run]) -> Markup:
    """The settings, once for the runs that agree: all that are compared, but for older versions."""
    of: dict[tuple[tuple[str, object], ...], list[str]] = {}
    for run in runs:
        of.setdefault(tuple(run.config.items()), []).append(f"{run.encoding}, seed {run.seed}")
    parts = []
    for settings, having in of.items():
        terms = [
            element("div", element("dt", key), element("dd", value)) for key, value in settings
        ]
        who = "The same for all runs" if len(of) == 1 else "; ".join(having)
        told = element("dl", *terms, class_="facts") if terms else element("p", "not recorded")
        parts += [element("p", who, class_="note"), told]
    return joined(parts)


def reproduction(runs: Sequence[Run]) -> Markup:
    """How to make each run again, an encoding at a time, and the hashes in full."""
    parts = []
    for encoding in dict.fromkeys(run.encoding for run in runs):
        entries = []
        for run in (run for run in runs if run.encoding == encoding):
            hashes = [(name, value) for name, value in run.facts.items() if _is_hash(value)]
            entries.append(element("h4", f"seed {run.seed}, ", element("code", run.folder)))
            entries.append(element("pre", element("code", "\n".join(run.commands))))
            if run.recorded:
                entries.append(element("p", "Recorded: ", element("code", run.recorded)))
            entries += [element("p", f"{key}: ", element("code", value)) for key, value in hashes]
        parts.append(element("details", element("summary", encoding), *entries, class_="again"))
    return joined(parts)


def left_out(entries: Iterable[tuple[str, str]]) -> Markup:
    """What is not compared, and why."""
    lines = [element("li", element("code", what), f": {why}") for what, why in entries]
    if not lines:
        return element("p", "Nothing: every run that was found is in this report.")
    return element("ul", *lines, class_="left-out")
