"""BibTeX of the methods behind names, and of this suite.

The class of an encoding names its papers by arXiv number; models/papers.bib has the entries.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from tape_arith import models
from tape_arith.arith.errors import UsageError
from tape_arith.arith.export.source_files import involved
from tape_arith.arith.machine import own_version
from tape_arith.arith.registry.locate import KINDS, locate, locations
from tape_arith.arith.registry.names import Encoding, Name, parse, parse_extrapolation, parse_list

_PAPERS = Path(models.__file__).parent / "papers.bib"
_SUITE = {
    "title": "tape-arith: a benchmark of length generalization in arithmetic for positional "
    "encodings",
    "author": "{The tape-arith authors}",
    "year": "2026",
}
"""The facts of CITATION.cff, which an installed package does not have."""


@cache
def entries() -> dict[str, str]:
    """Return the entries of papers.bib by arXiv number, OpenReview's, or address."""
    texts = re.findall(r"^@.*?^}\n", _PAPERS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {re.findall(r"^  eprint +=\s*{(.*)},$", text, re.MULTILINE)[0]: text for text in texts}


def cited(text: str) -> str:
    """Format BibTeX of the encodings named in `text`, or of "all". Raises UsageError if empty."""
    names = all_names() if text == "all" else parse_list(text)
    if not names:
        raise UsageError("--cite is empty: name an encoding, as in --cite tape")
    return bibtex(names)


def bibtex(names: Sequence[Name]) -> str:
    """Format this suite's entry, then one for each paper behind `names`, under its methods.

    Methods are a name's parts, the encodings in their options, the encoding that training began
    from, and the extrapolation.
    """
    methods_of: dict[str, list[str]] = {}
    for name in names:
        methods = [("encoding", part) for part in _encodings(name.encoding)]
        if name.extrapolation is not None:
            methods.append(("extrapolation", name.extrapolation.name))
        for kind, method in methods:
            for paper in papers(locate(kind, method).declaration().paper):
                methods_of.setdefault(paper, []).append(method)
    suite = dict(_SUITE)
    with suppress(PackageNotFoundError):  # neither a source tree nor installed
        suite["version"] = own_version()
    lines = "".join(f"  {key:<13} = {{{value}}},\n" for key, value in suite.items())
    blocks = [f"@software{{tapearith,\n{lines}}}\n"]
    for paper, cited_for in methods_of.items():
        entry = f"\n{entries()[paper]}" if paper in entries() else f": {paper} (no entry)\n"
        blocks.append(f"% {', '.join(dict.fromkeys(cited_for))}{entry}")
    return "\n".join(blocks)


def _encodings(encoding: Encoding) -> list[str]:
    origin = encoding.origin
    return [*involved(encoding.parts), *([] if origin is None else _encodings(origin.encoding))]


def papers(text: str) -> list[str]:
    """Return the keys of entries in `text`, such as arXiv numbers, and the text of unknown papers.

    >>> papers("Li et al. 2023, arXiv 2310.04418; Somebody 1999, a book")
    ['2310.04418', 'Somebody 1999, a book']
    """
    return [
        paper
        for part in filter(None, map(str.strip, text.split(";")))
        for paper in [number for number in entries() if number in part] or [part]
    ]


def all_names() -> list[Name]:
    """Return a name for each built-in encoding, extrapolation, modifier and model."""
    encodings, extrapolations, modifiers, models = (
        sorted(location.name for location in locations(kind) if location.is_builtin)
        for kind in (*KINDS, "model")
    )
    rope = parse("rope").encoding
    extrapolated = [Name(rope, parse_extrapolation(name)) for name in extrapolations]
    modified = [parse(f"{name}-rope") for name in modifiers]
    return [*map(parse, encodings), *extrapolated, *modified, *map(parse, models)]
