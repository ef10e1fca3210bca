"""Tables, figures and reports say in the file which version, commit and command made them."""

import re
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image

from tape_arith.arith import origin
from tape_arith.arith.figures.style import save
from tape_arith.arith.machine import ROOT, own_version

COMMAND = ["leaderboard", "--preset", "mini", "--compare", "fox:b_f=5, rope"]
TYPED = "tape-arith leaderboard --preset mini --compare 'fox:b_f=5, rope'"


@pytest.fixture(params=[Path("/usr/bin/tape-arith"), ROOT / "__main__.py"])
def typed(request: pytest.FixtureRequest, here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a file holds that a command of ours makes."""
    monkeypatch.setattr(sys, "argv", [str(request.param), *COMMAND])
    monkeypatch.setattr(origin, "commit", lambda: "0123456789ab+")
    return f"tape-arith {own_version()}, commit 0123456789ab+: {TYPED}"


def test_tables_end_with_a_comment(typed: str) -> None:
    for name, comment in {"a.md": f"\n<!-- {typed} -->\n", "a.TEX": f"% {typed}\n"}.items():
        origin.write_table(Path(name), "| 1 |\n")
        assert Path(name).read_text("utf-8") == f"| 1 |\n{comment}"
    for name in ("a.csv", "a.json", "a.txt"):
        origin.write_table(Path(name), "1\n")
        assert Path(name).read_text("utf-8") == "1\n"


def test_figures_hold_it_as_metadata(typed: str) -> None:
    for name in ("a.png", "a.svg", "a.pdf"):
        save(Figure(), Path(name))
    with Image.open("a.png") as image:
        assert image.info["Description"] == typed
    assert typed in Path("a.svg").read_text("utf-8").replace("&#39;", "'")
    subject = re.search(rb"/Subject \((.*?)\)\n", Path("a.pdf").read_bytes())
    assert subject and subject[1].decode() == typed


def test_other_programs_are_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's own command line holds paths of its machine."""
    for program in ("ipykernel_launcher.py", "elsewhere/__main__.py", ""):
        monkeypatch.setattr(sys, "argv", [program, "-f", "/home/me/kernel.json"])
        assert origin.command_line() == "Python"
