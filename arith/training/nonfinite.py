"""What is done about a step whose loss or gradient is not finite. No torch here.

Such a step never changes a weight: the optimizer leaves its update out, on the device, so that
nobody waits for one. "stop" ends training at it; "skip" goes on and counts it. The policy changes
no number of a run that meets no such step, so it is no setting: the run's record says it, and
`train RUN --on-nonfinite` changes it there, from where the run stands.
"""

from arith.errors import Failure, unknown

POLICIES = ("stop", "skip")
# So many steps, one after the other, on other problems each: it is the weights that are spoiled.
MOST_IN_A_ROW = 10


class NotFinite(Failure):
    """Training went astray: in words, at which step and at which learning rate. `may_skip` says
    whether leaving that step out could help."""

    def __init__(self, told: str, may_skip: bool = True) -> None:
        super().__init__(told)
        self.may_skip = may_skip


def known_policy(name: str) -> str:
    """`name`, which must be one of POLICIES. Errors: UsageError."""
    if name not in POLICIES:
        raise unknown("way with what is not finite", name, POLICIES)
    return name
