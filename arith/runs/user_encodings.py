"""Encodings of users: checked before they are trained, named in the error when their code fails.

A score is one teacher-forced pass, so a score of an encoding that sees later tokens means nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.models.names.locate import USER_CODE_ERRORS, Location, describe_error, locate
from tape_arith.models.names.parse import Encoding, Name, source_hashes


def is_builtin(encoding: Encoding) -> bool:
    """Whether every part belongs to this suite."""
    return not _user_locations(encoding)


def check_user_encoding(encoding: Encoding) -> None:
    """Run the checks without which training or scoring makes no sense; built-in ones pass.

    Raises UsageError if the encoding cannot be built, sees later tokens or has a parameter without
    a gradient.
    """
    if not is_builtin(encoding):
        _check(Encoding(encoding.parts), tuple(sorted(source_hashes(encoding).items())))


@lru_cache(maxsize=64)
def _check(encoding: Encoding, sources: tuple[tuple[str, str], ...]) -> None:
    from tape_arith.models import contract

    for check in (
        contract.check_builds,
        contract.check_causal,
        contract.check_prefix,
        contract.check_no_dead_parameter,
    ):
        outcome = contract.run_check(check, Name(encoding))
        if not outcome.holds:
            raise UsageError(
                f"{encoding} breaks a promise ({outcome.check}): {outcome.happened}; "
                f"`tape-arith check {encoding}` looks at all of them"
            )


def as_user_error(error: BaseException, encoding: Encoding) -> Failure | None:
    """A Failure that names the user's line; None if all is built in or the error is one line."""
    locations = _user_locations(encoding)
    if not locations or isinstance(error, UsageError | Failure | OSError):
        return None
    reason = describe_error(error, *locations)[:500]
    return Failure(f"{encoding} failed: {reason}; `tape-arith check {encoding.own}` looks into it")


@contextmanager
def user_errors(encoding: Encoding) -> Iterator[None]:
    """Turn errors of a user's encoding into Failures by `as_user_error`."""
    try:
        yield
    except USER_CODE_ERRORS as error:
        failure = as_user_error(error, encoding)
        if failure is None:
            raise
        raise failure from error


def _user_locations(encoding: Encoding) -> list[Location]:
    locations = (locate("encoding", part.name) for part in encoding.parts)
    return [location for location in locations if not location.is_builtin]
