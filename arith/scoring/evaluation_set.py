"""On which problems a grid is asked for. No torch here."""

from dataclasses import dataclass, replace

from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.scoring.grid import Grid


@dataclass(frozen=True)
class Asked:
    """The problems of `split` whose operands have up to `max_digits` digits; None: as many as the
    run's own setting `tested_digits` says."""

    split: str = EVALUATION
    max_digits: int | None = None

    def of(self, tested_digits: int) -> "Asked":
        """The same of a run that tests to `tested_digits`: there is one name for each grid."""
        return replace(self, max_digits=None) if self.max_digits == tested_digits else self

    def holds(self, grid: Grid, tested_digits: int) -> bool:
        """Whether `grid`, of a run that tests to `tested_digits`, is on these problems."""
        return (grid.split, grid.max_digits) == (self.split, self.max_digits or tested_digits)

    @property
    def file_ends(self) -> tuple[str, str]:
        """What stands in the name of a grid's file before and after the way it was scored."""
        before = "" if self.split == EVALUATION else f"@{self.split}"
        return before, f"-to-{self.max_digits}" if self.max_digits else ""

    @property
    def name(self) -> str:
        """ "@carry-to-24": in the names of figures and pages; nothing for the usual problems."""
        return "".join(self.file_ends)

    @property
    def options(self) -> list[str]:
        """As a command is told; nothing for the usual problems."""
        split = [] if self.split == EVALUATION else ["--split", self.split]
        return [*split, *(["--max-digits", str(self.max_digits)] if self.max_digits else [])]

    def __str__(self) -> str:
        """ " on the split carry to 24 digits", to follow what is said of runs; of the usual
        problems nothing is said."""
        on = "" if self.split == EVALUATION else f" on the split {self.split}"
        return on + (f" to {self.max_digits} digits" if self.max_digits else "")


USUAL = Asked()
"""What training scores at its end."""
