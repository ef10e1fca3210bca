"""The problems that a grid is scored on, and how many they may be. Never imports torch."""

from dataclasses import dataclass, replace

from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.errors import UsageError

MOST_PER_CELL = 2**20
"""Most problems of a cell: up to here every sum of a grid is exact in float64."""
_MOST_PROBLEMS = 2**26
"""Most problems of a grid: more would be made for hours before the first is scored."""


@dataclass(frozen=True)
class EvaluationSet:
    """The problems of `split` with operands of up to `max_digits` digits.

    `max_digits` is None for the setting `tested_digits` of the run.
    """

    split: str = EVALUATION
    max_digits: int | None = None

    def normalized(self, tested_digits: int) -> "EvaluationSet":
        """Return the one form of this set for a run that tests to `tested_digits`."""
        return replace(self, max_digits=None) if self.max_digits == tested_digits else self

    @property
    def filename_parts(self) -> tuple[str, str]:
        """Parts of a grid's file name, before and after the extrapolation."""
        before = "" if self.split == EVALUATION else f"@{self.split}"
        return before, f"-to-{self.max_digits}" if self.max_digits else ""

    @property
    def name(self) -> str:
        """Suffix for the names of figures and pages, as in "@carry-to-24"; "" for DEFAULT_SET."""
        return "".join(self.filename_parts)

    @property
    def options(self) -> list[str]:
        """Command-line options that select this set; none for DEFAULT_SET."""
        split = [] if self.split == EVALUATION else ["--split", self.split]
        return [*split, *(["--max-digits", str(self.max_digits)] if self.max_digits else [])]

    def __str__(self) -> str:
        """Return " on the split carry to 24 digits" to follow the name of a run."""
        split = "" if self.split == EVALUATION else f" on the split {self.split}"
        return split + (f" to {self.max_digits} digits" if self.max_digits else "")


DEFAULT_SET = EvaluationSet()
"""The set that training scores at its end."""


def check_size(size: int, per_cell: int, trained_digits: int) -> None:
    """Raise UsageError if a grid to `size` digits cannot have `per_cell` problems a cell."""
    if size < trained_digits:
        raise UsageError(
            f"a grid to {size} digits does not cover the {trained_digits} trained digits: "
            f"score to {trained_digits} digits or more"
        )
    most = min(MOST_PER_CELL, _MOST_PROBLEMS // size**2)
    if not 1 <= per_cell <= most:
        raise UsageError(f"{per_cell:,} problems a cell to {size} digits: give 1 to {most:,}")
