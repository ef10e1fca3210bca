"""Run all checks on an encoding or a model, say what its file lacks: `tape-arith check NAME`."""

from collections.abc import Iterable, Iterator

from tape_arith.arith.contracts import encoding, gradients, interface, model, task
from tape_arith.arith.contracts.promises import (
    Check,
    CheckOutcome,
    ContractReport,
    declaration_warnings,
    outcome_of,
)
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.registry.declarations import MODEL
from tape_arith.arith.registry.locate import (
    Location,
    declarations,
    is_encoding,
    known_names,
    trainable_names,
)
from tape_arith.arith.registry.names import Name, is_model, parse, source_hashes
from tape_arith.arith.tasks.load import is_task

CHECKS: tuple[Check[Name], ...] = (
    encoding.check_builds,
    interface.check_names,
    interface.check_tensors,
    interface.check_hooks,
    encoding.check_shape,
    encoding.check_deterministic,
    interface.check_device,
    interface.check_state,
    encoding.check_positions,
    encoding.check_causal,
    encoding.check_order,
    gradients.check_no_dead_parameter,
    gradients.check_gradient,
    encoding.check_rows,
    encoding.check_prefix,
    encoding.check_packed,
    encoding.check_bfloat16,
    encoding.check_told,
    encoding.check_costs,
)
GATES = {
    model.check_builds,
    model.check_deterministic,
    encoding.check_builds,
    interface.check_hooks,
    encoding.check_shape,
    encoding.check_deterministic,
}
"""Checks after which, if one fails, the later ones would only repeat what is wrong."""
NEEDED: tuple[Check[Name], ...] = (
    encoding.check_builds,
    interface.check_hooks,
    encoding.check_deterministic,
    encoding.check_positions,
    encoding.check_causal,
    encoding.check_rows,
    encoding.check_prefix,
    gradients.check_no_dead_parameter,
)
"""Checks on which training and scoring depend: a score is one teacher-forced pass, so that of an
encoding that sees later tokens, or other problems, is meaningless; resuming repeats a training only
if the keys decide what is drawn. All checks of a model are such."""


def check(text: str) -> ContractReport:
    """Run the checks on the task, encoding or model that `text` names. Raises UsageError."""
    if is_task(text):
        return task.examine(text)
    if not {"+", ":", "@"} & set(text) and not is_encoding(text):
        known = [*trainable_names(), *known_names("task")]
        raise unknown("encoding or task", text, known)
    return examine(parse(text))


def examine(name: Name) -> ContractReport:
    """Run the checks, up to the first of GATES that fails.

    Raises UsageError if a file of the encoding cannot be imported or its parts cannot be joined.
    """
    locations = name.encoding.locations()
    for location in locations:
        location.load()
    outcomes, warnings = list[CheckOutcome](), list[str]()
    checks = model.CHECKS if is_model(name.encoding) else CHECKS
    for check, outcome in zip(checks, run_checks(checks, name), strict=False):
        outcomes.append(outcome)
        if check in GATES and not outcome.holds:
            left = len(checks) - len(outcomes)
            warnings.append(f"the other {left} checks need that {outcome.check} holds")
            break
    warnings += [warning for location in locations for warning in _warnings(location)]
    if checks is CHECKS and not all(location.is_builtin for location in locations):
        warnings.append(
            "no check knows whether the formula is its paper's: write it once more as plain loops, "
            "in float64, and compare (models/README.md has such a twin)"
        )
    sources = source_hashes(name.encoding)
    return ContractReport(str(name), sources, tuple(outcomes), tuple(warnings))


def broken_promise(name: Name) -> CheckOutcome | None:
    """Run the checks that results depend on; return the first that breaks, None if all hold."""
    checks = model.CHECKS if is_model(name.encoding) else NEEDED
    return next((outcome for outcome in run_checks(checks, name) if not outcome.holds), None)


def run_checks(checks: Iterable[Check[Name]], name: Name) -> Iterator[CheckOutcome]:
    """Run checks one by one. Raises UsageError if the encoding refuses how it is used."""
    files = [location.file for location in name.encoding.locations()]
    for check in checks:
        yield outcome_of(check, name, files, through=(UsageError,))


def _warnings(location: Location) -> Iterator[str]:
    """Describe what the file at `location` should declare but does not."""
    declared = location.declaration()
    yield from declaration_warnings(declared)
    kinds = {known.kind for known in declarations("encoding") if not known.package}
    if declared.kind not in (*kinds, MODEL):
        kind = "no `kind` in its file, nor from a base of this suite"
        kind = f"the kind '{declared.kind}'" if declared.kind else kind
        yield f"{declared.class_name} has {kind}: it is one of {'; '.join(sorted(kinds))}"
    if not declared.paper:
        yield f"{declared.class_name} does not say its `paper`: author, year and arXiv number"
