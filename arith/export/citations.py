"""BibTeX of the methods behind names, and of this suite. Never imports torch.

The class of an encoding names its papers by arXiv number; models/papers.bib has the entries.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from tape_arith import models
from tape_arith.arith.export.source_files import involved
from tape_arith.arith.machine import own_version
from tape_arith.models.names.locate import locate, locations
from tape_arith.models.names.parse import Encoding, Name, parse, parse_extrapolation

_PAPERS = Path(models.__file__).parent / "papers.bib"
_TITLE = "tape-arith: a benchmark of length generalization in addition for positional encodings"
_AUTHORS, _YEAR = "The tape-arith authors", 2026
"""As in CITATION.cff, which an installed package does not have."""


@dataclass(frozen=True)
class Paper:
    """A paper: its arXiv number, the names that it is cited for, and its entry.

    Without an entry in papers.bib, `paper` is the text that the encoding declares.
    """

    paper: str
    names: tuple[str, ...]
    bibtex: str

    @property
    def key(self) -> str:
        """The key of its entry."""
        return self.bibtex.partition("{")[2].partition(",")[0]


@cache
def entries() -> dict[str, str]:
    """Return the entries of papers.bib by arXiv number."""
    text = _PAPERS.read_text("utf-8")
    return {
        re.findall(r"^  eprint +=\s*{(.*)},$", entry, re.MULTILINE)[0]: entry
        for entry in re.findall(r"^@.*?^}\n", text, re.MULTILINE | re.DOTALL)
    }


def suite_entry() -> str:
    """Return the entry of this suite."""
    fields = {"title": _TITLE, "author": f"{{{_AUTHORS}}}", "year": str(_YEAR)}
    with suppress(PackageNotFoundError):  # neither a source tree nor installed
        fields["version"] = own_version()
    lines = "".join(f"  {key:<13} = {{{value}}},\n" for key, value in fields.items())
    return f"@software{{tapearith,\n{lines}}}\n"


def cited_papers(names: Sequence[Name]) -> list[Paper]:
    """Return the papers of all parts of `names`, of the encodings in their options, of those that
    training started from, and of extrapolations; each once, in the order of its first name."""
    cited: dict[str, dict[str, None]] = {}
    for name in names:
        methods = [("encoding", part) for part in _encodings(name.encoding)]
        if name.extrapolation is not None:
            methods.append(("extrapolation", name.extrapolation.name))
        for kind, method in methods:
            for paper in papers(locate(kind, method).declaration().paper):
                cited.setdefault(paper, {})[method] = None
    return [Paper(paper, tuple(by), entries().get(paper, "")) for paper, by in cited.items()]


def _encodings(encoding: Encoding) -> list[str]:
    origin = encoding.origin
    return [*involved(encoding.parts), *([] if origin is None else _encodings(origin.encoding))]


def papers(text: str) -> list[str]:
    """Return the arXiv numbers in an encoding's declaration of its papers, and as text a paper
    without an entry in papers.bib.

    >>> papers("Li et al. 2023, arXiv 2310.04418; Somebody 1999, a book")
    ['2310.04418', 'Somebody 1999, a book']
    """
    parts = filter(None, (part.strip() for part in text.split(";")))
    return [
        paper
        for part in parts
        for paper in [n for n in re.findall(r"\d{4}\.\d{5}", part) if n in entries()] or [part]
    ]


def all_names() -> list[Name]:
    """Return a name for each built-in encoding and each built-in extrapolation."""
    encodings, extrapolations = (
        sorted(location.name for location in locations(kind) if location.is_builtin)
        for kind in ("encoding", "extrapolation")
    )
    rope = parse("rope").encoding
    extrapolated = [Name(rope, parse_extrapolation(name)) for name in extrapolations]
    return [*map(parse, encodings), *extrapolated]


def bibtex(cited: Sequence[Paper]) -> str:
    """Format BibTeX of this suite, then of each paper under the names that it is cited for."""
    blocks = [
        f"% {', '.join(paper.names)}"
        + (f"\n{paper.bibtex}" if paper.bibtex else f": {paper.paper}\n")
        for paper in cited
    ]
    return "\n".join([suite_entry(), *blocks])
