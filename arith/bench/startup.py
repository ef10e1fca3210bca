"""How long `tape-arith --help` takes, and which imports it spends its time on."""

import re
import subprocess
import sys
from collections.abc import Iterator

from tape_arith.arith.bench.measure import Measurement, Options, child_environment, interleaved
from tape_arith.arith.errors import Failure

STAGE = "startup"
TAKES: frozenset[str] = frozenset()

REPEATS, QUICK_REPEATS = 15, 1
HEAVY = ("torch", "pandas", "matplotlib")
HELP = "import sys; sys.argv[1:] = ['--help']; from tape_arith import cli; cli.main()"
_IMPORT = re.compile(r"import time:\s+\d+ \|\s+(\d+) \| ( *)(\S+)")


def measure(options: Options) -> Iterator[Measurement]:
    """The whole process, beside an interpreter that does nothing."""
    times = interleaved(
        {"help": lambda: python("-c", HELP), "bare": lambda: python("-c", "pass")},
        repeats=QUICK_REPEATS if options.quick else REPEATS,
        seconds=options.seconds,
    )
    imports = imported(python("-X", "importtime", "-c", HELP))
    slowest = sorted(imports, key=lambda name: -imports[name])[:5]
    heavy = [name for name in HEAVY if name in imports]
    listed = ", ".join(f"{name} {1e3 * imports[name]:.0f} ms" for name in slowest)
    yield Measurement(
        STAGE,
        "tape-arith --help",
        times["help"].median,
        "s",
        times["bare"].median,
        "an interpreter that does nothing",
        f"slowest imports: {listed}"
        + (f"; IMPORTS {', '.join(heavy)}" if heavy else "; no torch, no pandas"),
        times["help"].spread,
        times["help"].repeats,
    )


def python(*arguments: str) -> str:
    """Run this interpreter on the benchmark's own code; what it wrote to stderr.

    Errors: Failure with its last line where it fails.
    """
    result = subprocess.run(
        [sys.executable, *arguments],
        env=child_environment(),
        capture_output=True,
        text=True,
    )
    if result.returncode:
        raise Failure(f"{sys.executable} failed: {(result.stderr.splitlines() or [''])[-1]}")
    return result.stderr


def imported(report: str) -> dict[str, float]:
    """Seconds of each outermost import, those within it included, from -X importtime; and of the
    heavy ones wherever they stand.

    >>> imported("import time:   5 |    7 |   b\\nimport time:  10 |   17 | a")
    {'a': 1.7e-05}
    """
    found: dict[str, float] = {}
    for micro, indent, name in _IMPORT.findall(report):
        if not indent or name in HEAVY:
            found[name] = 1e-6 * int(micro)
    return found
