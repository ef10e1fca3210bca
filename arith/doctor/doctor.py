"""What works on this machine, what is slow or missing, and how to mend it."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tape_arith.arith.doctor.finding import STATES, Finding

SCHEMA = 1


def examine(preset: str | None, runs: Path, data: Path) -> Iterator[Finding]:
    """Look at everything, one thing after the other. `preset`: what has to fit on the disk; None:
    the one that suits this machine."""
    yield from _part("packages", _software)
    yield from _part("machine", _machine)
    yield from _part("attention", _attention)
    yield from _part("disk", lambda: _disk(preset, [runs, data]))


def works(findings: list[Finding]) -> bool:
    """Nothing is broken."""
    return all(finding.state != "broken" for finding in findings)


def content(findings: list[Finding]) -> dict[str, Any]:
    """For `--json`: keys are stable."""
    told = [asdict(finding) for finding in findings]
    return {"schema": SCHEMA, "works": works(findings), "findings": told}


def summary(findings: list[Finding]) -> str:
    """How many there are of each state."""
    count = Counter(finding.state for finding in findings)
    return ", ".join(f"{count[state]} {state}" for state in STATES)


def as_line(finding: Finding) -> str:
    """For a pipe: the state, what, what was found; what to do in a line of its own."""
    line = f"{finding.state:<8} {finding.what}: {finding.found}"
    return line + (f"\n{'':8} -> {finding.mend}" if finding.mend else "")


def _part(what: str, look: Callable[[], list[Finding]]) -> Iterator[Finding]:
    # Imported only now, each by itself: without torch the rest is still told.
    try:
        yield from look()
    except (ImportError, OSError) as error:
        yield Finding(what, "broken", " ".join(str(error).split()), "install the package anew")


def _software() -> list[Finding]:
    from tape_arith.arith.doctor.software import software

    return software()


def _machine() -> list[Finding]:
    from tape_arith.arith.doctor.machine import machine

    return machine()


def _attention() -> list[Finding]:
    from tape_arith.arith.doctor.backends import attention

    return attention()


def _disk(preset: str | None, folders: list[Path]) -> list[Finding]:
    from tape_arith.arith.doctor.disk import disk
    from tape_arith.models.hardware import detect

    return disk(preset or ("paper-40" if detect().device == "cuda" else "mini"), folders)
