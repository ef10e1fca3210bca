"""Encodings that are not ours: looked at before they are trained, blamed for what they break.

A score is one teacher-forced pass: of an encoding that sees what comes later it would be no score.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from arith.errors import Failure, UsageError
from models import catalog
from models.catalog import Encoding
from models.registry import RAISED, Place, described


def all_ours(encoding: Encoding) -> bool:
    """Whether no part of it is somebody else's code."""
    return not _places(encoding)


def vet(encoding: Encoding) -> None:
    """Errors: UsageError where an encoding that is not all ours cannot be built, sees later tokens
    or has a parameter that no gradient reaches."""
    if not all_ours(encoding):
        _vet(str(encoding.own), tuple(sorted(catalog.sources(encoding).items())))


@lru_cache(maxsize=64)
def _vet(name: str, sources: tuple[tuple[str, str], ...]) -> None:
    from models import contract
    from models.examination import outcome

    for check in (
        contract.check_builds,
        contract.check_causal,
        contract.check_prefix,
        contract.check_no_dead_parameter,
    ):
        found = outcome(check, name)
        if not found.holds:
            raise UsageError(
                f"{name} breaks a promise ({found.check}): {found.happened}; "
                f"`tape-arith check {name}` looks at all of them"
            )


def blamed(error: BaseException, encoding: Encoding) -> Failure | None:
    """What to say of an error that the code of an encoding has raised; None where all of the
    encoding is ours, or the error is told in a line already, as that of a disk is."""
    places = _places(encoding)
    if not places or isinstance(error, UsageError | Failure | OSError):
        return None
    told = described(error, *places)[:500]
    return Failure(f"{encoding} failed: {told}; `tape-arith check {encoding.own}` looks into it")


@contextmanager
def blaming(encoding: Encoding) -> Iterator[None]:
    """What the code of `encoding` raises within is raised as what is `blamed` for it."""
    try:
        yield
    except RAISED as error:
        failure = blamed(error, encoding)
        if failure is None:
            raise
        raise failure from error


def _places(encoding: Encoding) -> list[Place]:
    found = (catalog.place("encoding", part.name) for part in encoding.parts)
    return [place for place in found if not place.ours]
