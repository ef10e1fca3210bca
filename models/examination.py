"""What comes of the contract's checks on an encoding, in words: `tape-arith check NAME`."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from models import catalog, contract, source
from models.errors import UsageError
from models.registry import RAISED, Place, described

FORMULA = (
    "no check knows whether the formula is its paper's: write it once more as plain loops, in "
    "float64, and compare (the README has such a twin)"
)


@dataclass(frozen=True)
class Outcome:
    """What came of one check: `expected` is what was promised, and where that does not hold
    `happened` says what was seen instead and `cause` how it usually comes about. What does not
    `apply` holds; `happened` says why."""

    check: str
    holds: bool
    expected: str
    happened: str = ""
    cause: str = ""
    applies: bool = True


@dataclass(frozen=True)
class Report:
    """What came of all checks of an encoding. `sources` has the hash of each file that is not
    ours; `warnings` says what no check can see."""

    name: str
    sources: dict[str, str]
    outcomes: tuple[Outcome, ...]
    warnings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return all(outcome.holds for outcome in self.outcomes)


def examine(name: str) -> Report:
    """Run every check on `name`, whatever others find; only one that cannot be built is checked no
    further. Errors: UsageError where `name` cannot be read or imported."""
    parsed = catalog.parse(name)
    places = [catalog.place("encoding", part.name) for part in parsed.encoding.parts]
    for place in places:
        place.load()
    name = str(parsed)
    outcomes = [outcome(contract.check_builds, name)]
    if outcomes[0].holds:
        outcomes += [outcome(check, name) for check in contract.CHECKS]
    warnings = [warning for place in places for warning in _warnings(place)]
    if not all(place.ours for place in places):
        warnings.append(FORMULA)
    return Report(name, catalog.sources(parsed.encoding), tuple(outcomes), tuple(warnings))


def outcome(check: Callable[[str], None], name: str) -> Outcome:
    """What comes of one check of `name`. Errors: UsageError where it says itself what is wrong with
    how it is used."""
    expected, _, cause = (inspect.getdoc(check) or "").partition("\n\nUsually: ")
    title, expected, cause = (
        " ".join(text.split())
        for text in (check.__name__.removeprefix("check_").replace("_", " "), expected, cause)
    )
    try:
        check(name)
    except UsageError:
        raise
    except contract.DoesNotApply as why:
        return Outcome(title, True, expected, str(why), applies=False)
    except RAISED as error:
        own = isinstance(error, AssertionError) and _raised_in(error) == contract.__file__
        parts = catalog.parse(name).encoding.parts
        files = [catalog.place("encoding", part.name) for part in parts]
        happened = str(error) if own else described(error, *files)
        return Outcome(title, False, expected, happened, cause)
    return Outcome(title, True, expected)


def _raised_in(error: BaseException) -> str:
    return traceback.extract_tb(error.__traceback__)[-1].filename


def _warnings(place: Place) -> Iterator[str]:
    """What the file at `place` leaves unsaid."""
    entry, kinds = (
        source.read(place),
        {e.kind for e in catalog.entries("encoding") if not e.package},
    )
    for option, declared in entry.options.items():
        if declared.problem:
            yield f"{entry.class_name}: option '{option}' {declared.problem}"
    if not entry.summary:
        yield f"{entry.class_name} has no docstring: its first line is what `tape-arith list` shows"
    if not entry.kind:
        yield f"{entry.class_name} does not say its `kind`: {'; '.join(sorted(kinds))}"
    elif entry.kind not in kinds:
        yield f"the kind '{entry.kind}' is none of {'; '.join(sorted(kinds))}"
    if not entry.paper:
        yield f"{entry.class_name} does not say its `paper`: author, year and arXiv number"


def as_text(report: Report) -> str:
    """A line a check, and more where one is broken."""
    lines = [report.name]
    seen: dict[str, str] = {}
    for found in report.outcomes:
        state = "BROKEN" if not found.holds else "holds " if found.applies else "none  "
        lines.append(f"  {state} {found.check}: {found.expected}")
        if not found.applies:
            lines.append(f"         does not apply: {found.happened}")
        elif not found.holds:
            first = seen.setdefault(found.happened, found.check)
            if first == found.check:
                lines += [f"         but: {found.happened}", f"         usually: {found.cause}"]
            else:  # one crash stops many checks
                lines.append(f"         but: the same as in {first}")
    lines += [f"  note: {warning}" for warning in report.warnings]
    applied = [found for found in report.outcomes if found.applies]
    held = sum(found.holds for found in applied)
    return "\n".join([*lines, f"{held} of {len(applied)} checks hold"])
