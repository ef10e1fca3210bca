"""The problems that a grid is scored on, and how they are named in files, options and words."""

from dataclasses import dataclass, replace

from tape_arith.arith.data.bucket import EVALUATION


@dataclass(frozen=True)
class EvaluationSet:
    """The problems of `split` with operands of up to `max_digits` digits.

    If `max_digits` is None, it is the run's setting `tested_digits`.
    """

    split: str = EVALUATION
    max_digits: int | None = None

    def normalized(self, tested_digits: int) -> "EvaluationSet":
        """Return this set with None as `max_digits` if that is the run's `tested_digits`."""
        return replace(self, max_digits=None) if self.max_digits == tested_digits else self

    @property
    def filename_parts(self) -> tuple[str, str]:
        """Parts of a grid's file name, before and after the extrapolation's name."""
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
        """Return words to follow a run's name, as in " on the split carry to 24 digits"."""
        split = "" if self.split == EVALUATION else f" on the split {self.split}"
        return split + (f" to {self.max_digits} digits" if self.max_digits else "")


DEFAULT_SET = EvaluationSet()
"""The set that training scores at its end."""
