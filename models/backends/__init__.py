"""The backends of attention, one file each, and the choice among them."""

import importlib

from tape_arith.models.backends.backend import Backend, Needs
from tape_arith.models.errors import UsageError
from tape_arith.models.hardware import Hardware
from tape_arith.models.names.backends import backend_names, known_backend

# `auto` takes the first that meets the needs. On a CPU plain products are the fastest at these
# lengths; "flex" is only used on request.
PREFERENCE = {"cpu": ("eager",), "cuda": ("fused", "flash-attn", "sdpa", "eager")}


def load(name: str) -> Backend:
    """Load a backend. Raises UsageError for an unknown name."""
    known_backend(name)
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    own = (kind for kind in vars(module).values() if getattr(kind, "name", None) == name)
    backend: Backend = next(own)()
    return backend


def choose(request: str, needs: Needs, hardware: Hardware) -> Backend:
    """Choose the backend for an encoding.

    Raises UsageError that names the alternatives if the requested backend does not meet `needs`; it
    never falls back silently.
    """
    if request == "auto":
        preferred = (load(name) for name in PREFERENCE[hardware.device])
        return next(b for b in preferred if b.why_unsupported(needs, hardware) is None)
    backend = load(request)
    reason = backend.why_unsupported(needs, hardware)
    if reason is not None:
        able = [n for n in backend_names() if load(n).why_unsupported(needs, hardware) is None]
        raise UsageError(
            f"attention backend '{request}' {reason}; what can do it here: "
            f"{', '.join(['auto', *able])}"
        )
    return backend
