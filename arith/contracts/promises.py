"""Run the checks of a contract, and report which promises hold. Never imports torch.

A check takes what it checks and raises AssertionError with what broke, or returns why it does not
apply. Its docstring states the promise and, after "Usually:", what commonly breaks it.
"""

import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tape_arith.arith.errors import USER_CODE_ERRORS, Failure, UsageError, describe_error
from tape_arith.arith.registry.declarations import Declaration

T = TypeVar("T")
Check = Callable[[T], str | None]


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of one check.

    expected  the promise
    happened  what broke it, or why it does not apply
    cause     the usual causes, if it broke
    """

    check: str
    holds: bool
    expected: str
    happened: str = ""
    cause: str = ""
    applies: bool = True


@dataclass(frozen=True)
class ContractReport:
    """The outcomes of all checks of an encoding or of a task.

    sources   SHA-256, by name, of each file that is not built in
    warnings  facts that no check can test
    """

    name: str
    sources: dict[str, str]
    outcomes: tuple[CheckOutcome, ...]
    warnings: tuple[str, ...]

    @property
    def broken(self) -> CheckOutcome | None:
        """The first check that does not hold."""
        return next((outcome for outcome in self.outcomes if not outcome.holds), None)

    @property
    def holds(self) -> bool:
        return self.broken is None


def outcome_of(
    check: Check[T],
    subject: T,
    files: Sequence[Path | None],
    through: tuple[type[BaseException], ...] = (),
) -> CheckOutcome:
    """Run one check. An error breaks it, with the line of `files`, unless it may go `through`."""
    title = check.__name__.removeprefix("check_").replace("_", " ")
    expected, _, cause = " ".join((inspect.getdoc(check) or "").split()).partition(" Usually: ")
    try:
        reason = check(subject)
    except through:
        raise
    except USER_CODE_ERRORS as raised:
        # A task's errors come as Failures that advise to check it.
        error = raised.__cause__ or raised if isinstance(raised, Failure) else raised
        happened = describe_error(error, *files)
        origin = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        own = isinstance(error, AssertionError) and origin.parent == Path(__file__).parent
        if own or isinstance(error, UsageError):
            happened = str(error)
        if "can't allocate memory" in happened:  # as torch says on a CPU
            cause = "an option, or a table, that is larger than the memory."
        return CheckOutcome(title, False, expected, happened, cause)
    return CheckOutcome(title, True, expected, reason or "", applies=reason is None)


def declaration_warnings(declared: Declaration) -> Iterator[str]:
    """Describe what the file of an encoding or a task should declare but does not."""
    for key, option in declared.options.items():
        if option.problem:
            yield f"{declared.class_name}: option '{key}' {option.problem}"
    if not declared.summary:
        yield (
            f"{declared.class_name} has no docstring: its first line is what `tape-arith list` "
            "shows"
        )


def as_text(report: ContractReport) -> str:
    """Write one line per check, three for a broken one."""
    lines = [report.name]
    first_check: dict[str, str] = {}  # by message: one crash breaks many checks
    for outcome in report.outcomes:
        state = "BROKEN" if not outcome.holds else "holds " if outcome.applies else "none  "
        lines.append(f"  {state} {outcome.check}: {outcome.expected}")
        if not outcome.applies:
            lines.append(f"         does not apply: {outcome.happened}")
        elif outcome.happened in first_check:
            lines.append(f"         but: the same as in {first_check[outcome.happened]}")
        elif not outcome.holds:
            first_check[outcome.happened] = outcome.check
            lines += [f"         but: {outcome.happened}", f"         usually: {outcome.cause}"]
    lines += [f"  note: {warning}" for warning in report.warnings]
    applied = [outcome.holds for outcome in report.outcomes if outcome.applies]
    return "\n".join([*lines, f"{sum(applied)} of {len(applied)} checks hold"])
