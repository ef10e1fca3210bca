"""Changes to an encoding at test time, which training never sees.

One file each in models/extrapolations; the folder is the registry, as for encodings. What a kind of
them changes lies with the encodings that have it: `Rescaling` in families/rotary.py, `Numbering` in
families/randomized.py.
"""

from typing import ClassVar

from models.encoding import PositionalEncoding


class Extrapolation:
    """Base. Stateless: the same call gives the same answer, whatever was asked before it.

    Keyword-only arguments of a subclass are its options.
    """

    kind: ClassVar[str] = "at test time"
    paper: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()

    def lacks(self, encoding: PositionalEncoding) -> str | None:
        """Why it cannot change `encoding`, as what follows its own name; None where it can."""
        raise NotImplementedError

    def give(self, encoding: PositionalEncoding) -> None:
        """Have `encoding` evaluate with this change."""
        raise NotImplementedError
