"""What to do at a step whose loss or gradient is not finite. Imports no torch."""

from tape_arith.arith.errors import Failure, unknown

# What to do at a step whose loss or gradient is not finite. Such a step never changes a weight: the
# optimizer leaves its update out, on the device, so that nothing waits for it. "stop" ends training
# there; "skip" counts the step and goes on. The policy is part of the run's record and not of its
# config, because it changes no number of a run without such steps.
POLICIES = ("stop", "skip")
MAX_SKIPPED_IN_A_ROW = 10  # more, each on other problems: the weights themselves are spoiled


class NotFinite(Failure):
    """Training diverged. `may_skip` says whether leaving this step out could help."""

    def __init__(self, message: str, may_skip: bool = True) -> None:
        super().__init__(message)
        self.may_skip = may_skip


def checked_policy(name: str) -> str:
    """Return `name`. Raises UsageError unless it is one of POLICIES."""
    if name not in POLICIES:
        raise unknown("policy for values that are not finite", name, POLICIES)
    return name
