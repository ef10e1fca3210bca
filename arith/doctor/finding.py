"""One thing that was looked at, and what to do about it."""

from dataclasses import dataclass

STATES = ("ok", "slow", "missing", "broken")
"""As it should be; works, and could be faster; not there, and not needed; what fails."""


@dataclass(frozen=True)
class Finding:
    """`what` was looked at, how it stands (one of STATES), what was `found`, and how to `mend` it:
    a sentence, empty where there is nothing to mend."""

    what: str
    state: str
    found: str
    mend: str = ""

    def __post_init__(self) -> None:
        assert self.state in STATES and (self.mend or self.state == "ok"), self


def size(count: float) -> str:
    """A number of bytes for people.

    >>> size(1_500_000_000)
    '1.5 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
