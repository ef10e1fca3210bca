"""Tables in a terminal: what is shown of them, and that it fits."""

import io
import re
import sys

import pytest
from rich.cells import cell_len
from rich.console import Console

from tape_arith.arith.compare.captions import percent_of
from tape_arith.arith.compare.columns import choose, texts
from tape_arith.arith.compare.tables import pipe_table
from tape_arith.arith.compare.terminal import print_board, print_markdown
from tests.helpers.pages import grid, report

NAMES = ("rope", "tape:start=learned", "my_folder/mine.py:Mine:scale=2:other=3", "[bold]x\x1b[2J")
BOARD = report(grid(name, seed) for name in NAMES for seed in (0, 1)).board


def printed(width: int, wide: bool = False) -> str:
    file = io.StringIO()
    print_board(BOARD, wide=wide, console=Console(file=file, width=width))
    return file.getvalue()


def test_what_fits_is_shown_and_the_rest_is_named() -> None:
    for width in range(40, 201, 32):
        assert max(map(cell_len, printed(width).splitlines())) <= width
    counts = []
    heads = {column.key for column in choose(BOARD.columns, ())} - {
        "vs_rope",
        "last_states",
    }  # of which none knows
    for width in (60, 80, 100, 120):
        text = printed(width)
        unfolded = "".join(text.split())
        hidden = set(unfolded.split("Notshown:")[1].split(".--wide")[0].split(","))
        assert hidden < heads and not hidden & {"rank", "encoding", "out_of_distribution"}
        counts.append(len(heads) - len(hidden))
        (line,) = (line for line in text.splitlines() if "tape:start=learned" in line)
        row = next(row for row in BOARD.rows if row.panel.name == "tape:start=learned")
        assert percent_of(row.panel, "out_of_distribution") in line
        assert "my_folder/mine.py:Mine:sca" in text and "[bold]x\\x1b[2J" in text
    assert counts == sorted(counts) and counts[0] < counts[-1]
    wide = printed(60, wide=True)
    assert "Not shown" not in wide and NAMES[2] in wide
    shown = choose(BOARD.columns, ["kind", "each_seed", "all_cells"])
    for cells in texts(shown, BOARD.rows).to_numpy():
        assert any(all(cell in line for cell in cells) for line in wide.splitlines())


def test_markdown_of_a_study_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["encoding", "one_longer", "both_longer", "all_cells"]
    table = texts(choose(BOARD.columns, keys), BOARD.rows)
    text = f"Title\n\n{pipe_table(table, ['encoding'])}\n{'Words of a note. ' * 9}\n"
    print_markdown(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "84")
    monkeypatch.setenv("TERM", "xterm")
    print_markdown(text)
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert lines[0].strip() == "Title" and max(map(cell_len, lines)) <= 84
    assert any(
        all(str(cell) in line for cell in table[table.encoding == "rope"].iloc[0]) for line in lines
    )
    monkeypatch.setenv("COLUMNS", "50")  # in parts, each with the names
    print_markdown(text)
    parts = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert max(map(cell_len, parts.splitlines())) <= 50 and parts.count("\nrope") == 3
    assert "|" not in "".join(lines) and sum("note." in line for line in lines) > 1
