"""What people and programs read: the table and the JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.bench import report
from tape_arith.arith.bench.measure import Measurement, Options, not_measured
from tape_arith.arith.errors import Failure
from tape_arith.models.names.parse import parse

FULL = Measurement("train", "rope: step", 0.3, "s", 0.2, "rope's", "a note", 0.03, 5)
MISSING = not_measured("train", "rope: MFU", "FLOP/s", "there is no GPU")
LINES = [FULL, MISSING]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0 s"),
        (0.0000123, "s", "12.3 µs"),
        (0.0123, "s", "12.3 ms"),
        (123.0, "s", "123 s"),
        (1500.0, "s", "1,500 s"),
        (999.0, "B", "999 B"),
        (1.5e9, "B/s", "1.5 GB/s"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (21.7e15, "FLOP", "21.7 PFLOP"),
        (180.69e9, "MAC", "181 GMAC"),
        (41_234.0, "tokens/s", "41.2 k tokens/s"),
        (2_800_000.0, "problems/s", "2.8 M problems/s"),
        (12.0, "rows/s", "12 rows/s"),
        (0.5, "rows/s", "0.5 rows/s"),
        (54.321, "%", "54.3 %"),
        (1.25, "x", "1.25 x"),
        (-1.018, "", "-1.02"),
        (154_890_000.0, "", "154,890,000"),
        (None, "FLOP/s", "not measured"),
    ],
)
def test_figures(value: float | None, unit: str, text: str) -> None:
    assert report.figure(value, unit) == text


def test_a_line_shows_both_figures_and_their_ratio() -> None:
    assert report.cells(FULL) == (
        "train",
        "rope: step",
        "300 ms ±10%",
        "200 ms rope's",
        "1.5",
        "a note",
    )
    cells = report.cells(MISSING)
    assert cells == ("train", "rope: MFU", "not measured", "", "", "there is no GPU")


def test_the_plain_table_is_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(report.shown(LINES)) == LINES
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 4 and set(rows[1]) <= set("| -:")
    for row in rows:
        assert row.startswith("| ") and row.endswith(" |")
        assert row.count("|") == len(report.COLUMNS) + 1
    # Columns stand below each other.
    bars = [[i for i, c in enumerate(row) if c == "|"][:-1] for row in rows]
    assert all(places == bars[0] for places in bars)


def test_a_line_is_shown_before_the_next_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    lines = report.shown(iter(LINES))
    next(lines)
    shown = capsys.readouterr().out
    assert "rope: step" in shown and "rope: MFU" not in shown


def test_a_terminal_gets_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    assert list(report.shown(LINES)) == LINES
    shown = capsys.readouterr().out
    for text in (*report.COLUMNS, *report.cells(FULL), "not measured", "quartiles"):
        assert text in shown


def test_the_json(tmp_path: Path) -> None:
    options = Options(
        encodings=(parse("fire:width=8"),),
        settings={"steps": "3"},
        lengths=(20, 40),
        directory=tmp_path,
        quick=True,
    )
    path = tmp_path / "new" / "bench.json"
    report.write(path, LINES, {"torch": "2"}, options, complete=False)
    content: dict[str, Any] = json.loads(path.read_text())
    keys = ["schema", "kind", "complete", "environment", "options", "measurements", "checksum"]
    assert list(content) == keys
    assert (content["schema"], content["kind"], content["complete"]) == (2, "bench", False)
    asked = content["options"]
    assert asked["encodings"] == ["fire:width=8"] and asked["settings"] == {"steps": "3"}
    assert asked["lengths"] == [20, 40] and asked["directory"] == str(tmp_path)
    assert asked["run"] is None and asked["quick"] is True
    full, missing = content["measurements"]
    assert full == {
        "stage": "train",
        "name": "rope: step",
        "value": 0.3,
        "unit": "s",
        "limit": 0.2,
        "limit_name": "rope's",
        "note": "a note",
        "spread": 0.03,
        "repeats": 5,
        "ratio": pytest.approx(1.5),
    }
    assert missing.keys() == full.keys()
    assert missing["value"] is None and missing["ratio"] is None
    assert missing["note"] == "there is no GPU"
    assert [file.name for file in path.parent.iterdir()] == ["bench.json"]


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="cannot write"):
        report.write(tmp_path / "file" / "bench.json", LINES, {}, Options(), complete=True)
