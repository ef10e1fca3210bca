"""What a sweep measures before its first run: the limits of the machine, which kernels attend, and
a training step of the encodings that come first. Rented minutes are worth knowing about."""

import sys
from contextlib import redirect_stdout
from pathlib import Path

from tape_arith.arith.bench.measure import Options
from tape_arith.arith.bench.running import run
from tape_arith.arith.documents import read_content
from tape_arith.arith.errors import Failure
from tape_arith.arith.sweeps.sweep import Sweep, folder_of
from tape_arith.arith.terminal import say
from tape_arith.models.hardware import detect
from tape_arith.models.names.backends import AUTO, AttentionChoice
from tape_arith.models.names.parse import Name

STAGES = ("ceilings", "attention", "train")
ENCODINGS = 4
"""As many as are compiled and timed within a minute or two."""


def measure_first(sweep: Sweep, out: Path, compute: AttentionChoice = AUTO) -> Path | None:
    """Measure what a sweep's `measure` asks for, on stderr and into bench.json of its folder; what
    was measured on this machine already is not measured again. The file, or None if none is asked.

    A stage that fails says so in its lines and keeps no run from being trained.
    """
    if not sweep.measure:
        return None
    file = folder_of(sweep, out) / "bench.json"
    if _measured_here(file):
        return file
    options = Options(
        encodings=first_encodings(sweep),
        preset=sweep.preset,
        settings={key: str(value) for key, value in sweep.settings.items()},
        attention=compute.attention,
        compiled=compute.compiled,
        seconds=sweep.measure / len(STAGES),
    )
    say(f"measuring first, about {sweep.measure} s: {', '.join(STAGES)}")
    try:
        with redirect_stdout(sys.stderr):
            run(STAGES, options, file)
    except Exception as error:
        # Whatever is wrong with measuring, with a kernel that a machine cannot compile say, the
        # runs that were asked for are worth more.
        say(f"not measured: {type(error).__name__}: {error}")
    return file


def first_encodings(sweep: Sweep) -> tuple[Name, ...]:
    """The first encodings of a sweep, as they are trained."""
    trained = dict.fromkeys(Name(name.encoding) for name in sweep.names)
    return tuple(trained)[:ENCODINGS]


def _measured_here(file: Path) -> bool:
    if not file.exists():
        return False
    try:
        before = read_content(file, "bench")
    except Failure as error:
        say(f"measuring again: {error}")
        return False
    environment = before.get("environment")
    machine = environment.get("hardware") if isinstance(environment, dict) else None
    return before.get("complete") is True and machine == detect().name
