"""Checks of this machine, each with its result and how to fix it. Works without torch."""

import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tape_arith.arith.machine import project

STATES = ("ok", "slow", "missing", "broken")
"""Works; works but could be faster; absent and not required; fails."""
_OPTIONAL = {
    "triton": ("triton", "the fused attention kernel, on a GPU"),
    "flash-attn": ("tape-arith[flash]", "the flash-attn backend, on a GPU"),
    "pyarrow": ("tape-arith[data]", "generate --format parquet"),
    "transformers": ("tape-arith[hub]", "using exported models"),
    "tensorboard": ("tape-arith[tracking]", "following a training in TensorBoard"),
    "wandb": ("tape-arith[tracking]", "following a training in Weights & Biases"),
    "ray": ("tape-arith[ray]", "sweeps on a Ray cluster"),
}
"""Optional packages: how to install each, and its use."""


@dataclass(frozen=True)
class Check:
    """The result of one check: its state (one of STATES), an observation, and how to fix it."""

    name: str
    state: str
    result: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert self.state in STATES and (self.fix or self.state == "ok"), self

    def __str__(self) -> str:
        line = f"{self.state:<8} {self.name}: {self.result}"
        return line + (f"\n{'':8} -> {self.fix}" if self.fix else "")


def examine(preset: str | None, runs: Path, data: Path) -> Iterator[Check]:
    """Run all checks. One run of `preset` (None: the default of this machine) must fit on the disk
    of `runs`, its dataset on that of `data`."""
    yield from _packages()
    try:
        # Imported last: packages are checked even where torch cannot be imported.
        from tape_arith.arith.doctor import machine
    except (ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        yield Check("machine", "broken", reason, "install torch and tape-arith again")
        return
    yield from machine.device()
    yield from machine.attention()
    yield from machine.disk(preset, runs, data)


def works(checks: list[Check]) -> bool:
    """Return whether nothing is broken."""
    return all(check.state != "broken" for check in checks)


def summary(checks: list[Check]) -> str:
    """Count the checks in each state."""
    count = Counter(check.state for check in checks)
    return ", ".join(f"{count[state]} {state}" for state in STATES)


def _packages() -> Iterator[Check]:
    """Check the versions of Python, of required and of optional packages."""
    python, requirements = _declared()
    fits = platform.python_version() in SpecifierSet(python)
    fix = "" if fits else f"install Python {python}"
    yield Check("Python", "ok" if fits else "broken", platform.python_version(), fix)
    for requirement in map(Requirement, requirements):
        name, specifier = requirement.name, requirement.specifier
        installed = _version(name)
        install = f"pip install -U '{name}{specifier}'"
        if installed is None:
            yield Check(name, "broken", "not installed", install)
        elif not specifier.contains(installed, prereleases=True):
            yield Check(name, "broken", f"{installed}, but {specifier} is required", install)
        else:
            yield Check(name, "ok", installed)
    for name, (extra, use) in _OPTIONAL.items():
        installed = _version(name)
        if installed is None:
            yield Check(name, "missing", f"not installed: {use}", f"pip install '{extra}'")
        else:
            yield Check(name, "ok", f"{installed}: {use}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _declared() -> tuple[str, list[str]]:
    """Return the required Python and packages, of the source tree if there is one."""
    source = project()
    if source is not None:
        return source["requires-python"], source["dependencies"]
    about = metadata("tape-arith")
    required = [text for text in about.get_all("Requires-Dist") or [] if "extra ==" not in text]
    return str(about["Requires-Python"]), required
