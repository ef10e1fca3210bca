"""The names that figures print."""

from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.compare.labels import display_names, read_labels
from tape_arith.arith.compare.leaderboard import board_of
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.registry.locate import known_names, locate
from tests.helpers.made_grids import flat

MINE = "class Mine: ...\n\n\nclass Other:\n    label = 'Another'\n"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("rand-rope", "Randomized RoPE"),
        ("fox:b_f=5", "FoX (b_f=5)"),
        ("abacus+fire:init_l=512:width=64", "Abacus + FIRE (init_l=512, width=64)"),
        ("rope+yarn:ramp=paper", "RoPE + YaRN (ramp=paper)"),
        ("tape@only-positional-from=rope+pi", "TAPE (only positional, from RoPE) + PI"),
        ("gone.py:Mine+yarn", "gone.py:Mine+yarn"),
    ],
)
def test_an_encoding_as_its_paper_writes_it(name: str, label: str) -> None:
    assert display_names([name]) == {name: label}


def test_each_encoding_has_a_label_of_its_own() -> None:
    labels = display_names(known_names("encoding"))
    assert not set(labels) & {text for name, text in labels.items() if name != "t5"}
    written = {locate("encoding", name).declaration().label for name in labels}
    assert len(written) == len(labels)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("rope=RoPE (base=3)", {"rope": "RoPE (base=3)"}),
        ("fire:init_l=512=FIRE, 512", {"fire:init_l=512": "FIRE, 512"}),
        ("mine.py:Mine:a=1=a = 1", {"mine.py:Mine:a=1": "a = 1"}),
    ],
)
def test_a_label_may_hold_an_equals_sign(setting: str, expected: dict[str, str]) -> None:
    assert read_labels([setting]) == expected


def test_labels_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    names = ["mine.py:Mine", "mine.py:Mine+yarn", "mine.py:Other", "tape", "fire:init_l=512"]
    mine, extrapolated, other, *_ = display_names(names).values()
    assert (mine, extrapolated, other) == ("Mine", f"{mine} + YaRN", "Another")
    own = read_labels(["mine.py:Mine=Ours", "fire:init_l=512=FIRE, 512"])
    labelled = display_names(names, own)
    own |= {"mine.py:Mine+yarn": f"{own['mine.py:Mine']} + YaRN"}
    assert labelled == {**display_names(names), **own}
    assert read_labels(["tape=A", "tape=A"]) == {"tape": "A"}
    with pytest.raises(UsageError, match="tape twice"):
        read_labels(["tape=A", "tape=B"])
    # Two that would look alike keep their names.
    assert display_names(["tape", "fire"], {"fire": "TAPE"}) == {"tape": "tape", "fire": "fire"}
    with pytest.raises(UsageError, match="'rope'"):
        display_names(["tape"], {"rope": "R"})
    for wrong in ("tape", "=Ours", "tape="):
        with pytest.raises(UsageError, match="NAME=TEXT"):
            read_labels([wrong])


def test_a_label_is_one_line_that_can_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert display_names(["tape"], {"tape": " Ours\n\u00a0now "}) == {"tape": "Ours now"}
    wrong: list[Any] = ["\x1b[31m", "a\u202eb", "", " ", 3, None]
    for label in wrong:
        with pytest.raises(UsageError, match="label"):
            display_names(["tape"], {"tape": label})
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("class Mine:\n    label = 'a\\x1b'\n")
    assert display_names(["mine.py:Mine"]) == {"mine.py:Mine": "mine.py:Mine"}


@pytest.mark.parametrize(
    ("name", "kind", "title"),
    [
        ("alibi", "relative bias", "Task-agnostic"),
        ("alibi+coupling", "relative bias + task-structured", "Task-structured"),
        ("abacus+rope", "task-structured + rotary", "Task-structured"),
        ("learned+rand-rope", "absolute + randomized", "Told the tested length"),
    ],
)
def test_a_joined_encoding_is_ranked_by_what_any_part_knows(
    name: str, kind: str, title: str
) -> None:
    (section,) = board_of([Panel.of([flat(name)])], {}).sections
    (row,) = section.rows
    assert (section.title, row.kind) == (title, kind)
