"""The report's page: its numbers, its words, and that nothing in it is more than text."""

import base64
import hashlib
import re
from dataclasses import replace
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures import captions
from tape_arith.arith.figures.leaderboard_data import Training
from tape_arith.arith.figures.leaderboard_table import columns
from tape_arith.arith.figures.report.board import reach, sort_values, unknown_columns
from tape_arith.arith.figures.report.content import (
    CURVES,
    MOST_POINTS,
    Run,
    colours,
    content,
    thinned,
)
from tape_arith.arith.figures.report.markup import element, named
from tape_arith.arith.figures.report.page import page
from tests.helpers.pages import HOSTILE, Page, data, grid, report, run


def lose(made: object, row: int, column: int) -> None:
    made.exact[row, column] = made.total[row, column] = 0  # type: ignore[attr-defined]


def test_the_page_holds_the_counts_of_the_grids() -> None:
    panels = [[grid("fire", seed) for seed in (1, 0)], [grid("rope")]]
    lose(panels[1][0], 5, 4)
    told = data(page(report(panels)))
    assert {e["name"] for e in told["encodings"]} == {"fire", "rope"}
    assert told["max_digits"] == 6 and told["trained_digits"] == 3 and told["seeds"] == [0, 1]
    for encoding in told["encodings"]:
        panel = sorted(
            next(p for p in panels if p[0].name == encoding["name"]), key=lambda g: g.seed
        )
        assert [g["seed"] for g in encoding["grids"]] == [g.seed for g in panel]
        for shown, one in zip(encoding["grids"], panel, strict=True):
            assert np.array_equal(shown["exact"], one.exact)
            assert np.array_equal(np.broadcast_to(shown["total"], one.total.shape), one.total)
    assert isinstance(told["encodings"][0]["grids"][0]["total"], int)


def test_what_is_said_of_each_seed_is_what_the_figures_say() -> None:
    panels = [[grid("fire", seed) for seed in (0, 1)], [grid("rope")]]
    told = data(page(report(panels)))
    by = {e["name"]: e["said"] for e in told["encodings"]}
    assert set(by["fire"]) == {"mean", "0", "1"} and set(by["rope"]) == {"mean", "0"}
    for region, line in zip(captions.MEANS, by["fire"]["mean"]["lines"], strict=True):
        assert line == captions.mean_line(panels[0], region)
        values = [one.mean(region).value for one in panels[0]]
        assert by["fire"]["mean"]["means"][region] == pytest.approx(np.mean(values))  # type: ignore[arg-type]
    assert by["fire"]["1"]["lines"][0] == captions.mean_line([panels[0][1]], "out_of_distribution")
    assert "these runs only" in told["footnotes"]["mean"]
    assert "seed 1." in told["footnotes"]["1"] and "preset mini" in told["footnotes"]["1"]


def test_a_missing_cell_is_never_a_number() -> None:
    panel = [grid("rope", 0), grid("rope", 1)]
    lose(panel[1], 5, 5)
    made = report([panel, [grid("fire")]])
    said = next(e for e in content(made)["encodings"] if e["name"] == "rope")["said"]
    assert said["mean"]["means"]["out_of_distribution"] is None
    assert said["0"]["means"]["out_of_distribution"] is not None
    row = next(row for row in Page(page(made)).rows if "rope" in row[0])
    assert row[2] == "-" and row[2] != "0.0"


def test_the_leaderboard_says_what_its_other_forms_say() -> None:
    wild = grid("wild")
    wild.exact[0, 0] = 0
    made = report([[grid("fire", s) for s in (0, 1)], [grid("rope")], [wild]])
    found = Page(page(made)).rows
    head = found[0]
    standings = {s.row.encoding: s for s in made.board.standings}
    checked = 0
    for row in found[2:5]:
        name = next(name for name in standings if name in row[0])
        for column in columns(made.board):
            if column.head in head:
                text = row[head.index(column.head)]
                if column.head not in ("encoding", "seeds"):
                    assert text == column.cell(standings[name])
                    checked += 1
    assert checked == 3 * 8
    assert [row[0] for row in found[2:5]][-1] == "wild not converged"
    assert {head.index("seeds"), 1} == {1} and {row[1] for row in found[2:5]} == {"2", "1†"}
    assert set(sort_values(made.board)) <= {column.head for column in columns(made.board)}
    assert unknown_columns(made) == ["vs rope", "last states"]
    assert "without a column: vs rope, last states" in page(made)


def test_costs_have_columns_that_sort() -> None:
    made = report([[grid("fire", s) for s in (0, 1)], [grid("rope")]])
    trainings = [Training(0.1, 5000.0), Training(0.3, 7000.0)]
    costly = [
        replace(s, parameters=1234, flops_a_token=5.5, trainings=trainings)
        for s in made.board.standings
    ]
    section = made.board.sections[0]._replace(standings=costly)
    made = replace(made, board=replace(made.board, sections=[section], costs=True))
    head, _, *lines = Page(page(made)).rows[:4]
    assert head[-4:] == ["parameters", "FLOPs a token", "loss", "tokens/s"]  # of MFU no run tells
    assert all(line[-4:] == ["1,234", "6", "0.2000", "6,000"] for line in lines)
    values = sort_values(made.board)
    assert [values[name](costly[0]) for name in head[-4:]] == [1234, 5.5, 0.2, 6000.0]
    assert unknown_columns(made)[-1] == "MFU, %"


def test_points_of_seeds_lie_where_their_means_are() -> None:
    panel = [grid("fire", 0), grid("fire", 1)]
    made = report([panel])
    bound = reach(made)
    found = [a for tag, a in Page(page(made)).elements if tag == "circle"]
    means = [one.mean("out_of_distribution").value for one in panel]
    assert [float(a["cx"] or 0) for a in found] == pytest.approx(
        [3 + 96 * (mean or 0) / bound for mean in means], abs=0.006
    )


def test_colours_are_those_of_the_figures() -> None:
    table = colours("viridis")
    assert len(table) == 6 * 256
    viridis = mpl.colormaps["viridis"]
    for share in (0.0, 0.004, 0.37, 0.5, 0.996, 1.0):
        place = min(255, int(256 * share))
        assert "#" + table[6 * place : 6 * place + 6] == mpl.colors.to_hex(viridis(share))


def test_hostile_names_stay_text() -> None:
    hostile = run(
        HOSTILE,
        folder=HOSTILE,
        facts={HOSTILE: HOSTILE, "commit": HOSTILE},
        config={"task": HOSTILE, HOSTILE: 1},
        commands=[HOSTILE],
        recorded=HOSTILE,
    )
    panels = [[grid(HOSTILE, settings={"task": HOSTILE})], [grid("rope")]]
    tame = Page(page(report([[grid("tame")], [grid("rope")]], runs=[run("tame"), run("rope")])))
    # The command differs from what {{command}} in the name must not become.
    left = [(HOSTILE, HOSTILE)]
    made = report(panels, runs=[hostile, run("rope")], left_out=left, command="</script>")
    text = page(made)
    found = Page(text)
    # No element and no attribute that a page of tame names has not.
    assert {tag for tag, _ in found.elements} - {"li"} <= {tag for tag, _ in tame.elements}
    of = {(tag, name) for tag, attributes in tame.elements for name in attributes}
    extra = {(tag, name) for tag, attributes in found.elements for name in attributes} - of
    assert extra <= {("ul", "class")}
    assert [tag for tag, _ in found.elements].count("script") == 2
    assert "onerror='" not in text and "<img" not in text
    assert sum(HOSTILE in piece for piece in found.texts) > 10
    assert {e["name"] for e in data(text)["encodings"]} == {HOSTILE, "rope"}
    assert "{{" not in text.replace("{{command}}", "")


def test_the_page_allows_itself_and_no_other() -> None:
    text = page(report([[grid("fire")]]))
    found = Page(text)
    policy = next(a["content"] for tag, a in found.elements if a.get("http-equiv")) or ""
    assert policy.startswith("default-src 'none';")
    for name, kind in (("style", "style-src"), ("script", "script-src")):
        piece = re.findall(rf"<{name}>(.*?)</{name}>", text, flags=re.DOTALL)
        assert len(piece) == 1
        digest = base64.b64encode(hashlib.sha256(piece[0].encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    addresses = re.findall(r"\w+://[^\"'\s)]*", text)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    for tag, attributes in found.elements:
        assert "src" not in attributes and "style" not in attributes, tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert (attributes.get("href") or "#").startswith("#")


def test_the_page_can_be_read_by_ear() -> None:
    found = Page(page(report([[grid("fire")]], runs=[run("fire")])))
    ids = [a["id"] for _, a in found.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    for tag, attributes in found.elements:
        if tag in ("select", "input"):
            named = [a for t, a in found.elements if t == "label" and a.get("for")]
            assert attributes["id"] in {a["for"] for a in named}
        if tag == "th":
            assert attributes.get("scope")
        for name in ("aria-labelledby", "for", "list"):
            if name in attributes:
                assert attributes[name] in ids
        if (attributes.get("href") or "").startswith("#"):
            assert (attributes["href"] or "")[1:] in ids
    levels = [int(tag[1]) for tag, _ in found.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_facts_of_runs_stand_once_where_they_are_the_same() -> None:
    runs = [run("fire", 0), run("fire", 1)]
    text = page(report([[grid("fire", 0), grid("fire", 1)]], runs=runs))
    found = Page(text)
    assert found.rows[-3:] == [
        ["run", "commit"],
        ["fire, seed 0", "0abc"],
        ["fire, seed 1", "1abc"],
    ]
    assert "The same for all 2 runs" in text and text.count("c" * 64) == 2
    assert "not recorded" in text  # attention
    assert "tape-arith train --pe fire --seed 1" in text
    assert "Nothing: every run" in text
    left = page(report([[grid("fire")]], left_out=[("rope seed 3", "not scored yet")]))
    assert "<code>rope seed 3</code>: not scored yet" in left


def test_curves_keep_their_ends_and_drop_what_is_no_number() -> None:
    long = [(step, 1.0 / (step + 1)) for step in range(1001)]
    kept = thinned(long)
    assert len(kept) <= MOST_POINTS + 1 and kept[0][0] == 0 and kept[-1][0] == 1000
    assert thinned([(1, float("nan")), (2, float("inf")), (3, 0.123456)]) == [(3, 0.1235)]
    assert thinned([]) == []
    told = content(report([[grid("fire")]], runs=[run("fire"), Run("rope", 0, "mini/rope")]))
    assert [curve["encoding"] for curve in told["curves"]] == ["fire"]


def test_learning_of_lengths_is_the_mean_of_the_seeds_that_logged_it() -> None:
    late = {length: [(500, 0.0)] for length in range(1, 7)}
    runs = [run("fire", 0), run("fire", 1), run("fire", 2, by_length={}), run("rope", by_length={})]
    (told,) = content(report([[grid("fire")]], runs=runs))["lengths"]
    assert told["encoding"] == "fire" and told["seeds"] == [0, 1]
    assert told["lengths"] == [1, 2, 3, 4, 5, 6] and told["steps"] == [100, 200, 300, 400, 500]
    assert told["values"][2] == [0.0, 0.0, 1.0, 1.0, 1.0]
    runs[1] = run("fire", 1, by_length=late)
    (told,) = content(report([[grid("fire")]], runs=runs))["lengths"]
    assert told["steps"] == [500] and [row[0] for row in told["values"]] == [0.5] * 5 + [0.0]


@pytest.mark.slow
def test_thirty_encodings_of_five_seeds_fit() -> None:
    panels = [[grid(f"pe-{n}", seed, digits=80) for seed in range(5)] for n in range(30)]
    steps = range(20, 100_020, 20)
    runs = [
        run(
            f"pe-{n}",
            seed,
            curves={name: [(step, 1 / (step + n * seed)) for step in steps] for name in CURVES},
            by_length={
                length: [(step, 0.5) for step in steps[::500]] for length in range(5, 85, 5)
            },
        )
        for n in range(30)
        for seed in range(5)
    ]
    size = len(page(report(panels, runs=runs)).encode())
    # Counts drawn at random: no real grid is as hard to pack.
    assert size < 2_000_000, size


def test_the_same_report_is_the_same_page() -> None:
    panels = [[grid("fire")], [grid("rope")]]
    assert page(report(panels, runs=[run("fire")])) == page(report(panels, runs=[run("fire")]))


def test_what_must_not_be_compared() -> None:
    other = grid("rope")
    other.budget = {"steps": 3}
    with pytest.raises(UsageError, match="steps"):
        page(replace(report([[grid("fire")]]), panels=[[grid("fire")], [other]]))


def test_an_element_escapes_what_is_not_markup() -> None:
    inner = element("b", "a<b")
    assert element("p", inner, "<i>", None, title='"', class_="x", hidden=False) == (
        '<p title="&quot;" class="x"><b>a&lt;b</b>&lt;i&gt;</p>'
    )
    assert named("path/mine.py:Mine") == (
        '<span class="whole">path/mine.py</span><wbr><span class="whole">:Mine</span>'
    )
    assert named("<b>" + 30 * "x") == "&lt;b&gt;" + 30 * "x"  # too long to be kept whole
    assert element("input", type="range", aria_label="s", disabled=True) == (
        '<input type="range" aria-label="s" disabled>'
    )
