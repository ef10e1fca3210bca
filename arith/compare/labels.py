"""Names of encodings as papers write them, and what encodings know besides the tokens.

Both are read from an encoding's file, or for a user's encoding from its run's record, because
comparing runs no code.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.facts import About
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.registry.declarations import MODEL
from tape_arith.arith.registry.locate import locate
from tape_arith.arith.registry.names import (
    Encoding,
    Name,
    NamePart,
    declared_kinds,
    is_builtin,
    parse,
    parse_or_split,
    told_tested_length,
)


def display_names(
    names: Iterable[str],
    own: Mapping[str, str] | None = None,
    recorded: Mapping[str, About | None] | None = None,
) -> dict[str, str]:
    """Return the label of each name: that of its class, unless `own` labels the name or a part.

    recorded  what runs recorded about their encoding, such as the label of a user's encoding

    >>> list(display_names(["tape+yarn", "fire:init_l=512", "tape@from=rope"]).values())
    ['TAPE + YaRN', 'FIRE (init_l=512)', 'TAPE (from RoPE)']

    Labels are plain text in figures, tables and pages: no character is markup. A name stays as it
    is if its label is unknown or equals that of another name. Raises UsageError for a key of `own`
    that no name contains, and for a label that cannot be printed.
    """
    own, recorded = {key: _plain(text) for key, text in (own or {}).items()}, recorded or {}
    used: set[str] = set()

    def chosen(*keys: str) -> str | None:
        key = next((key for key in keys if key in own), None)
        used.update([key] if key is not None else [])
        return None if key is None else own[key]

    def of_part(kind: str, part: NamePart) -> str:
        if (label := chosen(str(part))) is not None:
            return label
        label = chosen(part.name) or locate(kind, part.name).declaration().label
        options = str(part)[len(part.name) + 1 :].replace(":", ", ")
        return f"{label} ({options})" if options else label

    def of_encoding(encoding: Encoding) -> str:
        if (label := chosen(str(encoding))) is not None:
            return label
        about = None if is_builtin(encoding) else recorded.get(str(encoding))
        if about is not None and own.keys().isdisjoint(part.name for part in encoding.parts):
            return about.label
        label = chosen(encoding.own) or " + ".join(of_part("encoding", p) for p in encoding.parts)
        if encoding.origin is None:
            return label
        only = "only positional, " if encoding.origin.only_positional else ""
        return f"{label} ({only}from {of_encoding(encoding.origin.encoding)})"

    def of_name(name: Name) -> str:
        label = of_encoding(name.encoding)
        added = name.extrapolation
        return label if added is None else f"{label} + {of_part('extrapolation', added)}"

    labels = {}
    for name in names:
        with suppress(UsageError):
            labels[name] = _plain(chosen(name) or of_name(parse_or_split(name)))
        labels.setdefault(name, name)
    if unused := [key for key in own if key not in used]:
        raise UsageError(f"no encoding '{unused[0]}' to label, only {', '.join(labels)}")
    counts = Counter(labels.values())
    return {name: text if counts[text] == 1 else name for name, text in labels.items()}


def _plain(label: object) -> str:
    """Return a label as one line. Raises UsageError if it cannot be printed."""
    text = " ".join(label.split()) if isinstance(label, str) else ""
    if not text or not text.isprintable():
        raise UsageError(f"a label is a line of text that can be printed, not {label!r:.80}")
    return text


def panel_labels(
    panels: Iterable[Panel], own: Mapping[str, str] | None = None, *more: str
) -> dict[str, str]:
    """Return the label of each panel's name and encoding, and of `more`, as `display_names`."""
    panels = list(panels)
    names = [name for panel in panels for name in (panel.name, panel.encoding)]
    recorded = {panel.encoding: panel.about for panel in panels}
    return display_names([*names, *more], own, recorded)


def read_labels(settings: Sequence[str] | None) -> dict[str, str]:
    """Read the values of `--label`. Raises UsageError for one that is not NAME=TEXT."""
    labels: dict[str, str] = {}
    for setting in settings or ():
        # A name has no space, but equals signs in its options; a text may have both.
        parts = re.fullmatch(r"([^\s(]+)=(.*\S.*)", setting)
        if parts is None:
            raise UsageError(f"--label reads NAME=TEXT, as in --label tape=Ours, not '{setting}'")
        if labels.setdefault(parts[1], parts[2]) != parts[2]:
            raise UsageError(f"--label names {parts[1]} twice: leave one out")
    return labels


# ---- kinds, and the tested length -----------------------------------------------------------


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


def prior_word(panel: Panel) -> str:
    """Return "structured", "told" or "other model", by which it is ranked apart, or ""."""
    known_kinds = kinds(panel) or ()
    if MODEL in known_kinds:
        return MODEL
    if "task-structured" in known_kinds:
        return "structured"
    return "told" if is_told(panel) else ""


def told_note(panels: Iterable[Panel], labels: Mapping[str, str]) -> str:
    """Name the encodings that are told the tested length in a sentence; "" if there are none."""
    names = [labels.get(panel.name, panel.name) for panel in panels if is_told(panel)]
    return f" Told the tested length in training: {'; '.join(names)}." if names else ""


def _declared(panel: Panel) -> Encoding | None:
    """Return the encoding if its files say what it is; None if its record alone does."""
    with suppress(UsageError):
        encoding = parse(panel.encoding).encoding
        if panel.about is None or is_builtin(encoding):
            return encoding
    return None
