"""The tables and the figure of stability, from made-up numbers."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.lines import Line2D

from tape_arith.arith.studies.stability_report import (
    CHANGES,
    Precision,
    Series,
    StabilityStudy,
    compose,
    to_csv,
    to_json,
    to_markdown,
)
from tests.helpers.figures import assert_nothing_is_cut_off, words

EVALUATION: dict[str, Any] = {"task": "addition", "version": 1, "seed": 0, "max_digits": 16}
EVALUATION |= {"problems": 200, "sha256": "0123456789abcdef"}


def run_series(
    encoding: str,
    shift: float,
    *,
    seed: int = 0,
    bos: int = 0,
    positional: bool = True,
    precision: Precision = "float32",
) -> list[Series]:
    """A run whose attention changes by `shift` under a shift and by 0.5 behind [BOS]."""
    series = []
    for change in CHANGES:
        measures = ["attention", "inner products"]
        measures += ["attention, renormalised"] * (change == "BOS")
        for measure in measures:
            size = shift if change != "BOS" else 0.5
            values: tuple[float, ...] | None = (size, 2 * size, 3 * size)
            why = None
            if measure == "inner products" and not positional:
                values, why = None, "no positional state"
            facts = (f"runs/{encoding}/seed-{seed}", encoding, seed, bos, precision)
            series.append(Series(*facts, change, measure, values, why))
    return series


def study(*runs: list[Series]) -> StabilityStudy:
    return StabilityStudy(tuple(one for run in runs for one in run), "mini", EVALUATION)


def points(line: Line2D) -> int:
    return np.size(line.get_xdata())


def test_markdown() -> None:
    text = to_markdown(
        study(
            run_series("rope", 1e-7, seed=0),
            run_series("rope", 3e-7, seed=1),
            run_series("rope", 1e-7, seed=0, bos=3),
            run_series("fire", 0.0123, positional=False),
            run_series("nope", 0.0, positional=False),
        )
    )
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]
    first = rows[0]
    assert (first["seeds"], first["trained with"]) == ("0, 1", "no [BOS]")
    assert (first["change"], first["of"]) == ("indices start at 3", "attention weights")
    # Student t of two seeds: 12.706 x 1e-7.
    assert first["layer 1"] == "2.0e-07 ± 1.3e-06 r" and first["layer 3"].startswith("6.0e-07")
    with_bos = [row for row in rows if row["trained with"] == "0 to 3 [BOS]"]
    assert len(with_bos) == 7 and all(row["seeds"] == "0" for row in with_bos)
    fire = [row for row in rows if row["encoding"] == "fire"]
    assert fire[0]["layer 2"] == "0.0246"  # no mark
    assert [row["layer 1"] for row in fire if "inner" in row["of"]] == ["none"] * 3
    assert next(row for row in rows if row["encoding"] == "nope")["layer 1"] == "0"
    assert "none (no positional state): fire, inner products of positions; nope" in text
    assert "[BOS] not trained" in text and "95 % interval over seeds" in text
    assert "200 problems, the first of the evaluation set" in text and "01234567" in text


def test_missing_numbers_have_their_reason() -> None:
    lost = study(
        [
            replace(one, values=None, why="its table ends") if one.change == "start 1000" else one
            for one in run_series("learned", 0.3, bos=3)
        ]
    )
    text = to_markdown(lost)
    assert "none (its table ends): learned, 0 to 3 [BOS], indices start at 1000, attention" in text
    assert "[BOS] not trained" not in text and "Student" not in text
    assert "none" in words(compose(lost))


def test_json_and_csv_agree() -> None:
    both = study(run_series("rope", 1e-7), run_series("fire", 0.1, positional=False))
    content = json.loads(to_json(both))
    assert (content["schema"], content["kind"], content["preset"]) == (1, "stability", "mini")
    assert content["rounding_level"] == {"float32": 3e-5} and content["evaluation"] == EVALUATION
    rows = iter(csv.DictReader(io.StringIO(to_csv(both))))
    for one in content["series"]:
        for layer, value in enumerate(one["values"] or [None], start=1):
            row = next(rows)
            for key in ("run", "encoding", "change", "measure"):
                assert row[key] == one[key]
            if value is None:
                assert (row["layer"], row["value"], row["why"]) == ("", "", "no positional state")
                assert one["at_rounding_level"] is None
            else:
                assert row["layer"] == str(layer)
                assert float(row["value"]) == pytest.approx(value, rel=1e-9)
                small = one["at_rounding_level"][layer - 1]
                assert small == (value < 1e-5) and row["at_rounding_level"] == str(small)
    assert next(rows, None) is None


def test_panels_and_marks() -> None:
    runs = run_series("rope", 1e-7, bos=3), run_series("fire", 0.1), run_series("nope", 0.0)
    figure = compose(study(*runs))
    assert len(figure.axes) == 6
    for text in ("three [BOS] in front", "exactly 0", "rope, 0 to 3 [BOS]", "[BOS] not trained"):
        assert text in words(figure)
    shift, _, bos = figure.axes[:3]
    lines = [line for line in shift.get_lines() if line.get_linestyle() == "-"]
    np.testing.assert_allclose(np.asarray(lines[0].get_ydata()), [1e-7, 2e-7, 3e-7])
    zeros = [line for line in shift.get_lines() if line.get_marker() == "x" and points(line)]
    assert len(zeros) == 1
    # Hollow behind [BOS] where it was not trained: fire and nope, renormalised and raw.
    drawn = [line for line in bos.get_lines() if points(line) == 3]
    faces = [line.get_markerfacecolor() for line in drawn]
    assert len(drawn) == 6 and faces.count("white") == 4
    without_states = compose(study(run_series("fire", 0.1, positional=False)))
    assert len(without_states.axes) == 3 and "One run each" in words(without_states)


def test_several_seeds_are_thin_around_their_mean() -> None:
    seeds = [run_series("tape", value, bos=3, seed=s) for s, value in enumerate((0.1, 0.2, 0.6))]
    figure = compose(study(*seeds))
    assert "Mean over runs (seeds), each run a thin line" in words(figure)
    shift, _, bos = figure.axes[:3]
    for ax in (shift, bos):  # behind [BOS] raw ones are drawn as their mean alone
        drawn = [line for line in ax.get_lines() if points(line) == 3]
        thin = [line.get_ydata() for line in drawn if not line.get_markersize()]
        (mean,) = (line for line in drawn if line.get_markersize() and line.get_linestyle() == "-")
        assert len(thin) == 3
        np.testing.assert_allclose(np.asarray(mean.get_ydata()), np.mean(np.array(thin), axis=0))


def test_the_finer_precision_is_drawn() -> None:
    both = [*run_series("rope", 1e-7), *run_series("rope", 1e-15, precision="float64")]
    figure = compose(study(both))
    (line,) = (one for one in figure.axes[0].get_lines() if one.get_linestyle() == "-")
    np.testing.assert_allclose(np.asarray(line.get_ydata()), [1e-15, 2e-15, 3e-15])
    assert "in float64" in words(figure)


def test_nothing_is_cut_off() -> None:
    seeds = range(1, 7), (0, 1)
    many = [run_series(f"tape:width={8 * i}", 10.0**-i, seed=s) for i in seeds[0] for s in seeds[1]]
    assert_nothing_is_cut_off(compose(study(*many)))
