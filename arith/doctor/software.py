"""Python and packages: what is needed in which version, what else there is. No torch here."""

import platform
from importlib.metadata import PackageNotFoundError, metadata, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tape_arith.arith.doctor.finding import Finding
from tape_arith.arith.version import project

OPTIONAL = {
    "triton": ("triton", "the fused attention kernel, on a GPU"),
    "flash-attn": ("tape-arith[flash]", "the flash-attn backend, on a GPU"),
    "pyarrow": ("tape-arith[data]", "generate --format parquet"),
    "transformers": ("tape-arith[hub]", "using exported models"),
    "tensorboard": ("tape-arith[tracking]", "following a training in TensorBoard"),
    "wandb": ("tape-arith[tracking]", "following a training in Weights & Biases"),
    "ray": ("ray", "sweeps on a Ray cluster"),
}
"""Packages that are asked for by one thing alone: how they are installed, and that thing."""


def software() -> list[Finding]:
    """Python, what the package needs, what it can use."""
    python, needed = _declared()
    found = platform.python_version()
    fits = found in SpecifierSet(python)
    mend = "" if fits else f"install Python {python}"
    findings = [Finding("Python", "ok" if fits else "broken", found, mend)]
    findings += [_needed(Requirement(text)) for text in needed]
    return findings + [_optional(name, *about) for name, about in OPTIONAL.items()]


def _needed(requirement: Requirement) -> Finding:
    there = _version(requirement.name)
    wanted = f"{requirement.name}{requirement.specifier}"
    if there is None:
        return Finding(requirement.name, "broken", "not installed", f"pip install '{wanted}'")
    if not requirement.specifier.contains(there, prereleases=True):
        found = f"{there}, where {requirement.specifier} is needed"
        return Finding(requirement.name, "broken", found, f"pip install -U '{wanted}'")
    return Finding(requirement.name, "ok", there)


def _optional(name: str, install: str, use: str) -> Finding:
    there = _version(name)
    if there is None:
        mend = f"pip install '{install}', if you want it"
        return Finding(name, "missing", f"not installed: {use}", mend)
    return Finding(name, "ok", f"{there}: {use}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _declared() -> tuple[str, list[str]]:
    """The Python and the packages that are needed: of the source tree, or as installed."""
    source = project()
    if source is not None:
        return source["requires-python"], source["dependencies"]
    about = metadata("tape-arith")
    needed = [text for text in about.get_all("Requires-Dist") or [] if "extra ==" not in text]
    return str(about["Requires-Python"]), needed
