"""The interface of a change at test time, unseen in training."""

from abc import ABC, abstractmethod
from typing import ClassVar

from tape_arith.models.encoding import PositionalEncoding


class Extrapolation(ABC):
    """Base of all extrapolations. Keyword-only arguments of a subclass are its options.

    Stateless: equal calls give equal results, whatever was called before.
    """

    name: ClassVar[str] = ""
    """Name after a plus on the command line; a class without a name is a base."""
    label: ClassVar[str] = ""
    kind: ClassVar[str] = "at test time"
    paper: ClassVar[str] = ""

    @abstractmethod
    def why_unsupported(self, encoding: PositionalEncoding) -> str | None:
        """Say why this cannot change `encoding`, in words after its own name; None if it can."""

    @abstractmethod
    def apply(self, encoding: PositionalEncoding) -> None:
        """Make `encoding` use this change in evaluation."""
