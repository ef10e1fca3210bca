"""BibTeX of the methods that names stand for, and of this suite. No torch here.

The class of an encoding names its papers by their arXiv numbers; models/papers.bib holds the entry
of each number.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from tape_arith import models
from tape_arith.arith.export.source_files import involved
from tape_arith.arith.version import own_version
from tape_arith.models.names.declarations import declaration
from tape_arith.models.names.locate import locations
from tape_arith.models.names.parse import Encoding, Name, parse, parse_extrapolation

PAPERS = Path(models.__file__).parent / "papers.bib"
SUITE = """@software{tapearith,
  title         = {tape-arith: a benchmark of length generalization in addition for positional encodings},
  author        = {{The tape-arith authors}},
  year          = {2026},%s
}
"""  # noqa: E501
"""As CITATION.cff says it, which an installed package does not have at hand."""
_NUMBER = re.compile(r"\d{4}\.\d{5}")


@dataclass(frozen=True)
class Cited:
    """A paper, the names that it is cited for, and its entry; without a number in papers.bib, what
    the encoding says of it, and no entry."""

    paper: str
    names: tuple[str, ...]
    bibtex: str

    @property
    def key(self) -> str:
        return self.bibtex.partition("{")[2].partition(",")[0]


@cache
def entries() -> dict[str, str]:
    """The entries of papers.bib by their arXiv numbers."""
    found = {}
    for entry in re.findall(r"^@.*?^}\n", PAPERS.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        (number,) = re.findall(r"^  eprint +=\s*{(.*)},$", entry, re.MULTILINE)
        assert number not in found, f"{number} stands twice in {PAPERS.name}"
        found[number] = entry
    return found


def suite() -> str:
    """The entry of this suite."""
    try:
        of_version = f"\n  version       = {{{own_version()}}},"
    except PackageNotFoundError:  # neither a source tree nor installed
        of_version = ""
    return SUITE % of_version


def cited(names: Sequence[Name]) -> list[Cited]:
    """The papers of `names`: of all parts, of what an option of a part names, of the encoding that
    training began from, of what is added at test time. Each once, in the order of its first name.

    Errors: UsageError as `declaration`.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        parts = [("encoding", part) for part in _encodings(name.encoding)]
        if name.extrapolation is not None:
            parts.append(("extrapolation", name.extrapolation.name))
        for kind, part in parts:
            for paper in papers(declaration(kind, part).paper):
                of = found.setdefault(paper, [])
                if part not in of:
                    of.append(part)
    return [Cited(paper, tuple(of), entries().get(paper, "")) for paper, of in found.items()]


def everything() -> list[Name]:
    """A name for each encoding and each extrapolation that come along."""
    ours = [place.name for place in locations("encoding") if place.is_builtin]
    names = [parse(name) for name in sorted(ours)]
    added = [place.name for place in locations("extrapolation") if place.is_builtin]
    rotary = parse("rope").encoding
    return [*names, *(Name(rotary, parse_extrapolation(x)) for x in sorted(added))]


def papers(text: str) -> list[str]:
    """The arXiv numbers in what an encoding says of its papers; where papers.bib has no such entry,
    what it says as it stands.

    >>> papers("Li et al. 2023, arXiv 2310.04418; Somebody 1999, a book")
    ['2310.04418', 'Somebody 1999, a book']
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    numbers = [[n for n in _NUMBER.findall(part) if n in entries()] for part in parts]
    return [x for part, of in zip(parts, numbers, strict=True) for x in (of or [part])]


def bibtex(found: Sequence[Cited]) -> str:
    """One file of BibTeX: this suite, then each paper under the names that it is cited for."""
    blocks = [suite()]
    for one in found:
        names = ", ".join(one.names)
        blocks.append(f"% {names}\n{one.bibtex}" if one.bibtex else f"% {names}: {one.paper}\n")
    return "\n".join(blocks)


def _encodings(encoding: Encoding) -> list[str]:
    """The names of all that is in an encoding, and in the one that its training began from."""
    origin = encoding.origin
    return [*involved(encoding.parts), *([] if origin is None else _encodings(origin.encoding))]
