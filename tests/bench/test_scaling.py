"""The stage of scaling: its points, its exponents and its figure."""

from pathlib import Path

import pytest

from tape_arith.arith.bench import scaling
from tape_arith.arith.bench.measure import TURN, Options, Timing
from tape_arith.arith.bench.scaling import Sizes, lines, measure, sweeps_over
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.scaling import Series
from tape_arith.models.names.parse import parse
from tests.helpers.small_training import small

NAMES = [parse("rope"), parse("tape")]


def test_points_exponents_and_a_figure(tmp_path: Path) -> None:
    plot = tmp_path / "scaling.png"
    found = list(measure(Options(quick=True, plot=plot, encodings=(parse("rope"),))))
    names = [line.name for line in found]
    assert len(set(names)) == len(names)
    for what in ("batch, problems 4", "longest operand, digits 3", "layers 2"):
        (line,) = (line for line in found if line.name == f"rope: {what}")
        assert line.value and line.unit == "tokens/s" and line.repeats == TURN
    exponents = [line for line in found if "exponent" in line.name]
    assert len(exponents) == 4
    assert all(line.value is not None and "3 sizes" in line.note for line in exponents)
    assert plot.stat().st_size > 20_000


def test_no_figure_is_drawn_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(measure(Options(quick=True, encodings=(parse("nope"),), lengths=(2, 3))))
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_cannot_be_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(UsageError, match="cannot draw"):
        next(measure(Options(quick=True, plot=Path("x.gif"))))


def test_each_sweep_varies_one_size() -> None:
    base = small(trained_digits=20, tested_digits=40, batch_size=64, num_layers=4)
    sizes = Sizes((16, 128), (5, 80), (1, 8), (4, 8), 1)
    batch, length, layers = sweeps_over(sizes, base)
    assert batch.config(base, 128).differences(base) == "batch_size: 128, not 64"
    assert layers.config(base, 8).differences(base) == "num_layers: 8, not 4"
    for digits in length.values:
        config = length.config(base, digits)
        assert config.trained_digits == digits and config.num_layers == 4
        assert config.batch_size * digits == 64 * 20  # as many tokens a step


def test_what_the_time_left_out_is_not_measured() -> None:
    measured = {("rope", x): Timing(3.0 * x**2, 0.1, 5) for x in (2, 4, 8)}
    measured["tape", 2] = Timing(1.0, 0.0, 1)
    found: list[Series] = []
    told = {line.name: line for line in lines("side", (2, 4, 8, 16), NAMES, measured, "s", found)}
    assert told["rope: side 4"].value == 48.0 and told["rope: side 4"].repeats == 5
    assert told["rope: side 16"].value is None
    assert told["rope: side 16"].note == "the time was up"
    assert told["rope: exponent of s over side"].value == pytest.approx(2.0)
    assert "3 sizes" in told["rope: exponent of s over side"].note
    assert told["tape: exponent of s over side"].value is None
    assert [series.x for series in found] == [(2.0, 4.0, 8.0), (2.0,)]


def test_two_sizes_are_measured_whatever_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(scaling, "monotonic", lambda: float(next(clock)))
    found = {line.name: line for line in measure(Options(quick=True, encodings=(parse("rope"),)))}
    assert found["rope: layers 2"].value is not None
    assert found["rope: layers 3"].value is None
    assert found["rope: exponent of tokens/s over layers"].value is not None
