"""`tape-arith list`: all there is, and one thing in full; the keys of its JSON are promises."""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith import catalogue
from tape_arith.arith.catalogue import describe
from tape_arith.arith.decoders.cost import cost
from tape_arith.arith.export.citations import entries as bibliography
from tape_arith.arith.export.citations import papers
from tape_arith.arith.registry.locate import known_names, locate
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.terminal import show
from tests.helpers.tiny_runs import done


def test_list_as_json(comparison: Path) -> None:
    content = json.loads(done("list", "--json").out)
    assert list(content) == [
        *("schema", "encodings", "combinations", "extrapolations", "modifiers", "models"),
        *("presets", "tasks", "task_entries", "task_packages", "runs"),
    ]
    assert content["schema"] == 1 and content["tasks"][0] == "addition"
    assert content["task_packages"] == {}
    keys = ["name", "kind", "summary", "paper", "options", "told_by", "package", "problem"]
    for kind in ("encoding", "extrapolation", "model"):
        entries = content[f"{kind}s"]
        assert [entry["name"] for entry in entries] == known_names(kind)
        for entry in entries:
            assert list(entry) == keys
            assert entry["kind"] and entry["summary"].endswith(".")
            cited = papers(entry["paper"])
            assert cited and set(cited) <= bibliography().keys()
            for option in entry["options"].values():
                assert list(option) == ["type", "default", "meaning"] and option["meaning"]
    for task in content["task_entries"]:
        assert all(option["meaning"] for option in task["options"].values())
    kinds = {entry["name"]: entry["kind"] for entry in content["encodings"]}
    both = {entry["name"]: entry["kind"] for entry in content["combinations"]}
    assert both.keys() == {"abacus+fire", "abacus+rope"}
    for name, kind in both.items():
        assert kind == " + ".join(kinds[part] for part in name.split("+"))
    assert all(list(entry) == keys for entry in content["combinations"])
    for preset in content["presets"]:
        assert list(preset) == ["name", "summary", "config"]
    paths = [run["path"] for run in content["runs"]]
    assert paths == sorted(paths)
    assert content["runs"][2] == {
        "path": "runs/mini/rope/seed-0",
        "preset": "mini",
        "encoding": "rope",
        "seed": 0,
        "state": "trained",
        "grids": ["grid"],
    }


@pytest.fixture(scope="module")
def mini() -> tuple[dict[str, Any], str]:
    """The preset mini in full, of which training has seen a share that takes a while to count."""
    return describe("mini")


def test_one_thing_in_full(
    mini: tuple[dict[str, Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("encoding", "extrapolation"):
        for name in known_names(kind):
            (part,) = describe(name)[0]["parts"]
            declared = locate(kind, name).declaration()
            assert part["name"] == name and part["description"].startswith(part["summary"])
            for option, facts in part["options"].items():
                for choice in facts["choices"]:
                    assert declared.options[option].read(choice) is not None
    words = done("list", "tape:width=3+yarn").out.split()
    assert "48;" in words[words.index("width") :][:4] and "2501.00712" in words
    assert words[len(words) - words[::-1].index("ramp") :][:2] == ["code,", "paper;"]
    (sums,) = json.loads(done("list", "modular-sum:modulus=97", "--json").out)["parts"]
    modulus = sums["options"]["modulus"]
    assert (modulus["type"], modulus["default"], modulus["choices"]) == ("int", 10, [])
    assert [axis["name"] for axis in sums["axes"]] == ["terms"] and sums["tokens"] == "3+5+9=71"
    text = done("list", "sort").out
    assert text.split()[text.split().index("pad") :][1:3] == ["true,", "false;"]
    assert "start, a place from 1 to 5; digits" in done("list", "passkey:depths=5").out
    assert "numbers; digits\n" in text and text.count("most blanks") == 1
    assert mini[0]["config"] == load_preset("mini").as_dict()
    assert re.search(r"^  cooldown +0\.1 +share of steps ", mini[1], re.MULTILINE)
    assert max(map(len, mini[1].splitlines())) <= 90
    monkeypatch.setattr(catalogue, "sweep_names", lambda: ["paper-40"])
    (sweep,) = json.loads(done("list", "sweeps", "--json").out)["sweeps"]
    assert sweep.pop("summary").endswith(".")
    assert sweep == {"name": "paper-40", "preset": "paper-40", "runs": 21}
    text = done("list", "sweeps").out
    assert re.search(r"^  paper-40  +paper-40  +21 runs  +\w", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "columns", "row"),
    [
        ("", 2, "rand-sinusoidal"),
        ("mini", 3, "groups"),
    ],
)
def test_columns_stay_apart_and_a_terminal_breaks_lines_below_their_last(
    name: str,
    columns: int,
    row: str,
    mini: tuple[dict[str, Any], str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = mini[1] if name else done("list").out.rstrip("\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    show(text)
    broken = capsys.readouterr().out
    assert broken.split() == text.split()
    assert max(map(len, broken.splitlines())) <= 80 < max(map(len, text.splitlines()))
    (line,) = (line for line in text.splitlines() if line.startswith(f"  {row} "))
    cells = re.split(" {2,}", line.strip())
    assert len(cells) == columns
    after = broken[broken.index(f"\n  {row} ") + 1 :].splitlines()[1]
    assert len(after) - len(after.lstrip()) == line.index(cells[-1])


def test_costs_are_those_of_what_is_built() -> None:
    names = ("nope", "fire", "tape", "learned", "abacus", "rope", "abacus+fire", "abacus+rope")
    costs = {name: asdict(cost(parse(name))) for name in names}
    # By hand, at 16 layers, hidden 1024, 16 heads of 64 and 124 tokens.
    assert (costs["nope"]["parameters"], costs["nope"]["flops_a_token"]) == (0, 0)
    assert costs["fire"]["parameters"] == 16 * (1 + 1 + 64 + 32 * 16 + 16)
    assert costs["fire"]["flops_a_token"] == 16 * 2 * 124 * (32 + 32 * 16)
    assert costs["tape"]["parameters"] == 15 * (64 * 48 + 48 + 96 + 96)
    assert costs["learned"]["parameters"] == 244 * 1024
    for second in ("fire", "rope"):
        both, parts = costs[f"abacus+{second}"], (costs["abacus"], costs[second])
        for key in ("parameters", "flops_a_token"):
            assert both[key] == sum(part[key] for part in parts)
