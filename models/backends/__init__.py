"""Ways to compute attention beside the reference `attention.Eager`, one file each.

sdpa.py        torch's own kernels
flash_attn.py  the library of that name
fused.py       the Triton kernel of models/kernels
This file chooses among them, and imports torch only to do so.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from tape_arith.models.errors import UsageError, unknown

if TYPE_CHECKING:
    from tape_arith.models.attention import Backend, Needs
    from tape_arith.models.hardware import Hardware

_CLASSES = {
    "eager": "attention.Eager",
    "flash-attn": "backends.flash_attn.FlashAttn",
    "fused": "backends.fused.Fused",
    "sdpa": "backends.sdpa.SDPA",
}
BACKENDS = tuple(_CLASSES)
"""The names after --attention, besides "auto"."""

# `auto` takes the first that meets the needs. On a CPU plain products are the fastest at these
# lengths.
_PREFERENCE = {"cpu": ("eager",), "cuda": ("fused", "flash-attn", "sdpa", "eager")}


class AttentionChoice(NamedTuple):
    """The options --attention and --compile.

    attention  "auto" or one of BACKENDS
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


def known_backend(name: str) -> str:
    """Return `name` if it is "auto" or a backend. Raises UsageError otherwise."""
    if name not in ("auto", *BACKENDS):
        raise unknown("attention backend", name, ("auto", *BACKENDS))
    return name


def load(name: str) -> "Backend":
    """Import and build the backend `name`. Raises UsageError for an unknown name."""
    module, _, class_name = _CLASSES[known_backend(name)].rpartition(".")
    backend: Backend = getattr(import_module(f"tape_arith.models.{module}"), class_name)()
    return backend


def choose(request: str, needs: "Needs", hardware: "Hardware") -> "Backend":
    """Choose the backend for an encoding.

    Raises UsageError that names the alternatives if the requested backend does not meet `needs`; it
    never falls back silently.
    """
    if request == "auto":
        preferred = (load(name) for name in _PREFERENCE[hardware.device])
        return next(b for b in preferred if b.why_unsupported(needs, hardware) is None)
    backend = load(request)
    reason = backend.why_unsupported(needs, hardware)
    if reason is not None:
        able = [name for name in BACKENDS if load(name).why_unsupported(needs, hardware) is None]
        raise UsageError(
            f"attention backend '{request}' {reason}; what can do it here: "
            f"{', '.join(['auto', *able])}"
        )
    return backend
