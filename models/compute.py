"""What is to compute, as somebody asks for it. No torch here."""

from typing import NamedTuple


class Compute(NamedTuple):
    """The backend of attention (a name of models/backends, or "auto"), and whether blocks are
    compiled (None: on a GPU they are, on a CPU not)."""

    attention: str = "auto"
    compiled: bool | None = None

    @property
    def for_scoring(self) -> "Compute":
        """The same for a grid: on a CPU it is scored before its blocks would be compiled."""
        return self if self.compiled is not True else self._replace(compiled=None)

    @property
    def options(self) -> list[str]:
        """As a command is told; nothing for what is usual."""
        attention = [] if self.attention == "auto" else ["--attention", self.attention]
        if self.compiled is None:
            return attention
        return [*attention, "--compile" if self.compiled else "--no-compile"]


AUTO = Compute()
