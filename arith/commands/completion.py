"""Complete names as a shell asks for them; slow packages are imported only then."""

from collections.abc import Callable, Iterable
from dataclasses import fields

from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import known_names, locate, trainable_names
from tape_arith.arith.runs.config import Config


def complete_encoding(incomplete: str) -> list[str]:
    """Complete the last name: an encoding or, after a plus, also an extrapolation."""
    cut = max(map(incomplete.rfind, ",+")) + 1
    head, last = incomplete[:cut], incomplete[cut:]
    known = trainable_names()
    if head.endswith("+"):
        known += known_names("extrapolation")
    return [head + name for name in known if name.startswith(last)]


def complete_among(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion of `names()`, which is called when a shell completes a name."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def complete_task(incomplete: str) -> list[str]:
    """Complete a task or, after a colon, its option."""
    name, *options = incomplete.split(":")
    if not options:
        return [task for task in known_names("task") if task.startswith(name)]
    try:
        declared = locate("task", name).declaration().options
    except UsageError:
        return []
    *earlier, last = options
    used = {option.partition("=")[0] for option in earlier}
    endings = [
        f"{key}={value}"
        for key, option in declared.items()
        if key not in used
        for value in option.choices or [""]
    ]
    head = ":".join([name, *earlier])
    return [f"{head}:{ending}" for ending in endings if ending.startswith(last)]


def complete_part(incomplete: str) -> list[str]:
    """Complete an encoding or a task."""
    return complete_encoding(incomplete) + complete_task(incomplete)


def _sweep_names() -> list[str]:
    from tape_arith.arith.sweeps.sweep import sweep_names

    return sweep_names()


def _backend_names() -> list[str]:
    from tape_arith.models.backends import BACKENDS

    return ["auto", *BACKENDS]


def _gpu_names() -> list[str]:
    from tape_arith.arith.sweeps.gpus import gpu_names

    return gpu_names()


complete_sweep = complete_among(_sweep_names)
complete_backend = complete_among(_backend_names)
complete_gpu = complete_among(_gpu_names)
complete_setting = complete_among(lambda: [f"{field.name}=" for field in fields(Config)])
