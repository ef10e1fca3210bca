"""The stage of starting up."""

import pytest

from tape_arith.arith.bench import startup
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.errors import Failure

REPORT = """\
import time: self [us] | cumulative | imported package
import time:      2000 |       2000 |   numpy
import time:      1000 |       3000 | arith
import time:        10 |    1500000 |     torch
import time:      4000 |    1504000 | models
noise
"""


def test_the_report_of_imports() -> None:
    found = startup.imported(REPORT)
    assert found == pytest.approx({"arith": 0.003, "torch": 1.5, "models": 1.504})


def test_help_is_measured() -> None:
    (line,) = startup.measure(Options(quick=True))
    assert line.value and line.limit and line.value > line.limit
    assert "no torch, no pandas" in line.note and "cli" in line.note


def test_what_is_heavy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "HELP", "import matplotlib")
    (line,) = startup.measure(Options(quick=True))
    assert "IMPORTS matplotlib" in line.note


def test_an_interpreter_that_fails() -> None:
    with pytest.raises(Failure, match="ModuleNotFoundError"):
        startup.python("-c", "import no_such_module")
