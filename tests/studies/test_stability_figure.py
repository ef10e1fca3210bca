"""The table and the figure of stability: what they say, and what they mark."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tape_arith.arith.errors import UsageError
from tape_arith.arith.studies.stability_figure import (
    CHANGES,
    Precision,
    Series,
    Study,
    compose,
    draw,
)
from tape_arith.arith.studies.stability_table import to_csv, to_json, to_markdown

EVALUATION: dict[str, Any] = {"task": "addition", "version": 1, "seed": 0, "max_digits": 16}
EVALUATION |= {"problems": 200, "sha256": "0123456789abcdef"}


def of_run(
    encoding: str,
    shift: float,
    *,
    seed: int = 0,
    bos: int = 0,
    positional: bool = True,
    precision: Precision = "float32",
) -> list[Series]:
    """A run whose attention changes by `shift` under a shift and by 0.5 behind [BOS]."""
    made = []
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
            made.append(Series(*facts, change, measure, values, why))
    return made


def study(*runs: list[Series]) -> Study:
    return Study(tuple(one for run in runs for one in run), "mini", EVALUATION)


def table(text: str) -> list[dict[str, str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_markdown() -> None:
    text = to_markdown(
        study(
            of_run("rope", 1e-7, seed=0),
            of_run("rope", 3e-7, seed=1),
            of_run("rope", 1e-7, seed=0, bos=3),
            of_run("fire", 0.0123, positional=False),
            of_run("nope", 0.0, positional=False),
        )
    )
    rows = table(text)
    first = rows[0]
    assert (first["encoding"], first["seeds"], first["trained with"]) == (
        "rope",
        "0, 1",
        "no [BOS]",
    )
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


def test_a_reason_is_told() -> None:
    lost = [
        replace(one, values=None, why="its table ends") if one.change == "start 1000" else one
        for one in of_run("learned", 0.3, bos=3)
    ]
    text = to_markdown(study(lost))
    assert "none (its table ends): learned, 0 to 3 [BOS], indices start at 1000, attention" in text
    assert "[BOS] not trained" not in text and "Student" not in text
    assert len(compose(study(lost)).axes) == 6


def test_json_and_csv_say_the_same() -> None:
    made = study(of_run("rope", 1e-7), of_run("fire", 0.1, positional=False))
    content = json.loads(to_json(made))
    assert (content["schema"], content["kind"], content["preset"]) == (1, "stability", "mini")
    assert content["rounding_level"] == {"float32": 3e-5} and content["evaluation"] == EVALUATION
    rows = list(csv.DictReader(io.StringIO(to_csv(made))))
    number = 0
    for one in content["series"]:
        for layer, value in enumerate(one["values"] or [None], start=1):
            row = rows[number]
            number += 1
            assert [row[key] for key in ("run", "encoding", "change", "measure")] == [
                one[key] for key in ("run", "encoding", "change", "measure")
            ]
            if value is None:
                assert (row["layer"], row["value"], row["why"]) == ("", "", "no positional state")
                assert one["at_rounding_level"] is None
            else:
                assert row["layer"] == str(layer)
                assert float(row["value"]) == pytest.approx(value, rel=1e-9)
                small = one["at_rounding_level"][layer - 1]
                assert small == (value < 1e-5) and row["at_rounding_level"] == str(small)
    assert number == len(rows)


def points(line: Line2D) -> int:
    return np.size(line.get_xdata())


def words(figure: Figure) -> str:
    texts = [text.get_text() for text in figure.texts]
    texts += [text.get_text() for text in figure.legends[0].get_texts()]
    texts += [ax.get_title(loc="left") for ax in figure.axes]
    return "\n".join(texts)


def test_the_figure_s_panels_and_marks() -> None:
    figure = compose(study(of_run("rope", 1e-7, bos=3), of_run("fire", 0.1), of_run("nope", 0.0)))
    assert len(figure.axes) == 6
    told = words(figure)
    for text in (
        "three [BOS] in front",
        "not told from rounding",
        "exactly 0",
        "rope, 0 to 3 [BOS]",
    ):
        assert text in told
    assert "[BOS] not trained" in told and "raw, not renormalised" in told
    shift, _, bos = figure.axes[:3]
    lines = [line for line in shift.get_lines() if line.get_linestyle() == "-"]
    np.testing.assert_allclose(np.asarray(lines[0].get_ydata()), [1e-7, 2e-7, 3e-7])
    zeros = [line for line in shift.get_lines() if line.get_marker() == "x" and points(line)]
    assert len(zeros) == 1
    # Hollow behind [BOS] where it was not trained: fire and nope, renormalised and raw.
    drawn = [line for line in bos.get_lines() if points(line) == 3]
    faces = [line.get_markerfacecolor() for line in drawn]
    assert len(drawn) == 6 and faces.count("white") == 4


def test_several_seeds_are_thin_around_their_mean() -> None:
    seeds = [of_run("tape", value, bos=3, seed=s) for s, value in enumerate((0.1, 0.2, 0.6))]
    figure = compose(study(*seeds))
    assert "Mean over runs (seeds), each run a thin line" in words(figure)
    shift, _, bos = figure.axes[:3]
    for ax in (shift, bos):  # there raw ones are drawn as their mean alone
        drawn = [line for line in ax.get_lines() if points(line) == 3]
        thin = [line.get_ydata() for line in drawn if not line.get_markersize()]
        (mean,) = (line for line in drawn if line.get_markersize() and line.get_linestyle() == "-")
        assert len(thin) == 3
        np.testing.assert_allclose(np.asarray(mean.get_ydata()), np.mean(np.array(thin), axis=0))


def test_without_positional_states_there_is_one_row() -> None:
    figure = compose(study(of_run("fire", 0.1, positional=False)))
    assert len(figure.axes) == 3 and "One run each" in words(figure)


def test_the_finer_numbers_are_drawn() -> None:
    both = [*of_run("rope", 1e-7), *of_run("rope", 1e-15, precision="float64")]
    figure = compose(study(both))
    (line,) = (one for one in figure.axes[0].get_lines() if one.get_linestyle() == "-")
    np.testing.assert_allclose(np.asarray(line.get_ydata()), [1e-15, 2e-15, 3e-15])
    assert "in float64" in words(figure)


def test_nothing_is_cut_off() -> None:
    many = [of_run(f"tape:width={8 * i}", 10.0**-i, seed=s) for i in range(1, 7) for s in (0, 1)]
    figure = compose(study(*many))
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    texts = [*figure.texts, *figure.legends[0].get_texts()]
    for ax in figure.axes:
        texts += [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
    for text in texts:
        extent = text.get_window_extent(renderer)
        assert extent.x0 >= 0 and extent.x1 <= figure.bbox.x1, text.get_text()
        assert extent.y0 >= 0 and extent.y1 <= figure.bbox.y1, text.get_text()
    legend = figure.legends[0].get_window_extent(renderer)
    note = figure.texts[0].get_window_extent(renderer)
    labels = [ax.xaxis.label.get_window_extent(renderer) for ax in figure.axes]
    assert note.y1 <= legend.y0 + 1 and legend.y1 <= min(label.y0 for label in labels)


@pytest.mark.parametrize("kind", ["svg"])
def test_files(tmp_path: Path, kind: str) -> None:
    one, two = tmp_path / f"one.{kind}", tmp_path / f"two.{kind}"
    for path in (one, two):
        draw(study(of_run("rope", 1e-7)), path)
    assert one.read_bytes() == two.read_bytes() and one.stat().st_size > 5_000
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        draw(study(of_run("rope", 1e-7)), tmp_path / "x.gif")
