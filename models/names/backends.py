"""Names of attention backends and the choice among them, without torch."""

from pathlib import Path
from typing import NamedTuple

from tape_arith.models.errors import unknown

_FOLDER = Path(__file__).parents[1] / "backends"


class AttentionChoice(NamedTuple):
    """The options --attention and --compile.

    attention  "auto" or a name of `backend_names`
    compiled   whether blocks are compiled; None: on a GPU only
    """

    attention: str = "auto"
    compiled: bool | None = None

    @property
    def for_scoring(self) -> "AttentionChoice":
        """The same choice for a grid, which a CPU scores faster than it compiles the blocks."""
        return self if self.compiled is not True else self._replace(compiled=None)

    @property
    def options(self) -> list[str]:
        """Command-line options that make this choice; none for the defaults."""
        attention = [] if self.attention == "auto" else ["--attention", self.attention]
        if self.compiled is None:
            return attention
        return [*attention, "--compile" if self.compiled else "--no-compile"]


AUTO = AttentionChoice()


def backend_names() -> list[str]:
    """Names of attention backends: the files of models/backends."""
    own = ("__init__", "backend")
    return sorted(f.stem.replace("_", "-") for f in _FOLDER.glob("*.py") if f.stem not in own)


def known_backend(name: str) -> str:
    """Return `name` if it is "auto" or a backend. Raises UsageError otherwise."""
    known = ["auto", *backend_names()]
    if name not in known:
        raise unknown("attention backend", name, known)
    return name
