"""Encodings that are not ours: looked at before they are trained, blamed for what they break.

A score is one teacher-forced pass: of an encoding that sees what comes later it would be no score.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from arith.errors import Failure, UsageError
from models.names.locate import USER_CODE_ERRORS, Location, describe_error, locate
from models.names.parse import Encoding, source_hashes


def is_builtin(encoding: Encoding) -> bool:
    """Whether no part of it is somebody else's code."""
    return not _places(encoding)


def check_user_encoding(encoding: Encoding) -> None:
    """Errors: UsageError where an encoding that is not all ours cannot be built, sees later tokens
    or has a parameter that no gradient reaches."""
    if not is_builtin(encoding):
        _vet(str(encoding.own), tuple(sorted(source_hashes(encoding).items())))


@lru_cache(maxsize=64)
def _vet(name: str, sources: tuple[tuple[str, str], ...]) -> None:
    from models import contract
    from models.contract import run_check

    for check in (
        contract.check_builds,
        contract.check_causal,
        contract.check_prefix,
        contract.check_no_dead_parameter,
    ):
        found = run_check(check, name)
        if not found.holds:
            raise UsageError(
                f"{name} breaks a promise ({found.check}): {found.happened}; "
                f"`tape-arith check {name}` looks at all of them"
            )


def as_user_error(error: BaseException, encoding: Encoding) -> Failure | None:
    """What to say of an error that the code of an encoding has raised; None where all of the
    encoding is ours, or the error is told in a line already, as that of a disk is."""
    places = _places(encoding)
    if not places or isinstance(error, UsageError | Failure | OSError):
        return None
    told = describe_error(error, *places)[:500]
    return Failure(f"{encoding} failed: {told}; `tape-arith check {encoding.own}` looks into it")


@contextmanager
def user_errors(encoding: Encoding) -> Iterator[None]:
    """What the code of `encoding` raises within is raised as what is `as_user_error` for it."""
    try:
        yield
    except USER_CODE_ERRORS as error:
        failure = as_user_error(error, encoding)
        if failure is None:
            raise
        raise failure from error


def _places(encoding: Encoding) -> list[Location]:
    found = (locate("encoding", part.name) for part in encoding.parts)
    return [place for place in found if not place.is_builtin]
