"""The learning rate of each step: warm-up, constant, cool-down. No torch here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Steps of a run. A run that is extended keeps the warm-up it had, so that its steps before
    the cool-down are those of a longer run with the same warm-up."""

    steps: int
    warmup_steps: int
    cooldown_steps: int

    @classmethod
    def of(cls, steps: int, first_steps: int, warmup: float, cooldown: float) -> "Schedule":
        """`warmup` is a share of the budget that the run began with, `cooldown` of the present."""
        return cls(steps, round(warmup * first_steps), round(cooldown * steps))

    @property
    def cooldown_start(self) -> int:
        """The first step of the cool-down; the state before it is kept."""
        return self.steps - self.cooldown_steps

    def factor(self, step: int) -> float:
        """What the learning rate is multiplied by at `step` (0-based): rises to 1 over the
        warm-up, falls towards 0 over the cool-down.

        >>> [Schedule(10, 2, 4).factor(step) for step in range(10)]
        [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
        """
        rise = (step + 1) / self.warmup_steps if self.warmup_steps else 1.0
        fall = (self.steps - step) / self.cooldown_steps if self.cooldown_steps else 1.0
        return min(1.0, rise, fall)
