"""What an encoding knows beside the tokens: its kinds, and the longest tested length.

Those of a user's encoding are read from its run's record, because comparing runs no code.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.registry.names import (
    Encoding,
    declared_kinds,
    is_builtin,
    parse,
    told_tested_length,
)


def kinds(panel: Panel) -> list[str] | None:
    """Return the kinds of an encoding's parts, each once; None if unknown."""
    if (encoding := _declared(panel)) is not None:
        return declared_kinds(encoding)
    return None if panel.about is None else panel.about.kinds


def is_told(panel: Panel) -> bool | None:
    """Tell whether its training depended on the longest tested length; None if unknown."""
    if (encoding := _declared(panel)) is not None:
        return told_tested_length(encoding)
    return None if panel.about is None else panel.about.told_tested_length


def is_structured(panel: Panel) -> bool:
    """Tell whether it is known to use where digits stand."""
    return "task-structured" in (kinds(panel) or ())


def prior_word(panel: Panel) -> str:
    """Return "structured" or "told", by which an encoding is ranked apart, or ""."""
    return "structured" if is_structured(panel) else "told" * bool(is_told(panel))


def told_note(panels: Iterable[Panel], labels: Mapping[str, str] | None = None) -> str:
    """Name the encodings that are told the tested length in a sentence; "" if there are none."""
    names = [(labels or {}).get(panel.name, panel.name) for panel in panels if is_told(panel)]
    return f" Told the tested length in training: {'; '.join(names)}." if names else ""


def _declared(panel: Panel) -> Encoding | None:
    """Return the encoding if its files say what it is; None if its record alone does."""
    with suppress(UsageError):
        encoding = parse(panel.encoding).encoding
        if panel.about is None or is_builtin(encoding):
            return encoding
    return None
