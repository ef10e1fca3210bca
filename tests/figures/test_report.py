"""The report's page: its numbers and words, and that nothing in it is more than text."""

import base64
import hashlib
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.columns import texts
from tape_arith.arith.figures.report.content import content
from tape_arith.arith.figures.report.page import page
from tape_arith.arith.grids.panel import Panel, significant_cells
from tape_arith.arith.grids.statistics import wilson
from tests.helpers.pages import HOSTILE, Page, data, grid, logs, report, run, with_costs


def test_the_page_holds_the_counts_and_words_of_the_grids() -> None:
    grids = [grid(name, seed) for name in ("fire", "rope") for seed in (1, 0)]
    content = data(page(report(grids)))
    assert content["shape"] == [6, 6] and content["choices"] == ["mean", "0", "1"]
    assert "over seeds" in content["footnotes"]["mean"] and "seed 1." in content["footnotes"]["1"]
    for encoding in content["encodings"]:
        panel = Panel.of(one for one in grids if one.name == encoding["name"])
        chosen = {"mean": panel, "0": panel.only(0), "1": panel.only(1)}
        assert encoding["choices"].keys() == chosen.keys()
        for key, one in chosen.items():
            shown = encoding["choices"][key]
            assert np.array_equal(shown["exact"], np.ravel(sum(g.exact for g in one.grids)))
            shares = np.divide(shown["exact"], shown["total"])
            np.testing.assert_allclose(shares, one.cell_means.ravel(), rtol=1e-12)
            lines = [captions.mean_line(one, region) for region in captions.MEANS]
            assert shown["lines"] == lines and shown["mark"] is None
    regions = [content["regions"]["words"][int(part)] for part in content["regions"]["cells"]]
    assert regions[2] == "in distribution" and regions[3] == regions[18] == "one longer"
    assert regions[21] == "both longer"


def test_intervals_and_differences_are_those_of_python() -> None:
    fire, rope = [grid("fire", s) for s in range(3)], [grid("rope", s) for s in range(2)]
    numbers = content(report([*fire, *rope]))
    low, high = wilson(37, 300)
    ends = re.findall(r"[\d.]+", numbers["intervals"][300][37])
    assert ends == [f"{100 * low:.1f}", f"{100 * high:.1f}"]
    assert set(numbers["intervals"]) == {100, 200, 300}
    places = [e["name"] for e in numbers["encodings"]]
    sign = 1 if places == ["fire", "rope"] else -1
    pair = numbers["pairs"]["mean"]["0 1"]
    marked = significant_cells(Panel.of(fire), Panel.of(rope))
    assert 0 < marked.sum() < 36 and pair["limit"] == 80
    bits = np.unpackbits(np.frombuffer(base64.b64decode(pair["cells"]), np.uint8))[:36]
    assert np.array_equal(bits, marked.ravel())
    assert pair["words"].startswith(f"{marked.sum()} of 36") and pair["points"][1] == 0
    means = [one.mean("out_of_distribution") or 0 for one in (fire[0], rope[0])]
    expected = 100 * sign * (means[0] - means[1])
    assert numbers["pairs"]["0"]["0 1"]["points"][0] == pytest.approx(expected)
    assert numbers["pairs"]["2"] == {}  # rope has no seed 2


def test_the_leaderboard_equals_its_other_forms() -> None:
    wild = grid("wild")
    wild.exact[0, 0] = 0
    made = report([grid("fire"), grid("fire", 1), grid("rope"), wild])
    text = page(made)
    head, _, *rows = Page(text).rows[:5]
    checked = 0
    table = texts(made.board.columns, made.board.rows)
    for row, (_, cells) in zip(rows, table.iterrows(), strict=True):
        assert cells.encoding in row[0]
        for name, cell in cells.drop(["encoding", "seeds"]).items():
            if name in head:
                assert row[head.index(name)] == cell
                checked += 1
    assert checked == 3 * 12 and rows[-1][0].startswith("wild not")
    assert {row[1] for row in rows} == {"2", "1†"}
    assert "a column: vs" in text
    # Costs have columns, which sort by number.
    costly = page(with_costs(made))
    head_costs, _, *lines = Page(costly).rows[:5]
    assert (head_costs[-4], head_costs[-2:]) == ("parameters", ["loss", "tokens/s"])
    assert all(line[-4:] == ["1,234", "6", "0.2000", "6,000"] for line in lines)
    # Points lie at the means of seeds.
    points = [float(a["cx"] or 0) for tag, a in Page(text).elements if tag == "circle"]
    end = 1.0 if "0 to 100 %" in head else 0.6
    means = [v for row in made.board.rows for v in row.panel.seed_means("out_of_distribution")]
    assert points == pytest.approx([3 + 96 * (mean or 0) / end for mean in means], abs=0.006)


def test_nothing_out_of_distribution() -> None:
    made = report([*(grid("fire", seed, trained=6) for seed in (0, 1)), grid("rope", trained=6)])
    numbers = data(page(made))
    assert numbers["pairs"]["mean"]["0 1"]["points"][0] is None
    assert "none scored" in numbers["encodings"][0]["choices"]["mean"]["lines"][0]
    table = texts(made.board.columns, made.board.rows)
    (each_seed,) = (name for name in table if str(name).startswith("each"))
    assert list(table[each_seed]) == ["-", "-"]


def test_hostile_names_stay_text() -> None:
    facts, config = {HOSTILE: HOSTILE, "commit": HOSTILE}, {"task": HOSTILE, HOSTILE: 1}
    more: dict[str, Any] = {"folder": HOSTILE, "commands": [HOSTILE], "recorded": HOSTILE}
    hostile = run(HOSTILE, facts=facts, config=config, **more)
    tame_runs = [run("tame"), run("rope")]
    made = report([grid("tame"), grid("rope")], runs=tame_runs, logs=logs("tame"))
    tame = Page(page(made))
    made = report(
        [grid(HOSTILE, settings={"task": HOSTILE}), grid("rope")],
        runs=[hostile, run("rope", facts={HOSTILE: "", "commit": "0"})],
        logs=logs(HOSTILE),
        left_out=[(HOSTILE, HOSTILE)],
        command="</script>{{ 7 * 7 }}",
    )
    text = page(made)
    parsed = Page(text)
    # No element and no attribute that a page of tame names has not, but for what was left out.
    assert {tag for tag, _ in parsed.elements} <= {tag for tag, _ in tame.elements} | {"li"}
    known = {(tag, name) for tag, attributes in tame.elements for name in attributes}
    extra = {(tag, name) for tag, attributes in parsed.elements for name in attributes} - known
    assert extra <= {("ul", "class")}
    assert [tag for tag, _ in parsed.elements].count("script") == 2
    assert "<img" not in text and "49" not in parsed.texts and "{{ 7 * 7 }}" in text
    assert sum(HOSTILE in piece for piece in parsed.texts) > 10
    assert {e["name"] for e in data(text)["encodings"]} == {HOSTILE, "rope"}


def test_the_page_allows_itself_and_no_other() -> None:
    text = page(report([grid("fire")]))
    assert text == page(report([grid("fire")]))  # so that its hashes stay
    parsed = Page(text)
    policy = next(a["content"] for tag, a in parsed.elements if a.get("http-equiv")) or ""
    assert policy.startswith("default-src 'none';")
    for name, kind in (("style", "style-src"), ("script", "script-src")):
        (piece,) = re.findall(rf"<{name}>(.*?)</{name}>", text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(piece.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    addresses = re.findall(r"\w+://[^\"'\s)]*", text)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    for tag, attributes in parsed.elements:
        assert "src" not in attributes and "style" not in attributes, tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert (attributes.get("href") or "#").startswith("#")


def test_the_page_can_be_read_by_ear() -> None:
    parsed = Page(page(report([grid("fire")], runs=[run("fire")])))
    ids = [a["id"] for _, a in parsed.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    labels = {a["for"] for tag, a in parsed.elements if tag == "label" and a.get("for")}
    for tag, attributes in parsed.elements:
        if tag == "select" or attributes.get("type") == "range":
            assert attributes["id"] in labels
        assert tag != "th" or attributes.get("scope")
        for name in ("aria-labelledby", "for", "list"):
            assert name not in attributes or attributes[name] in ids
        if (attributes.get("href") or "").startswith("#"):
            assert (attributes["href"] or "")[1:] in ids
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_facts_of_runs_stand_once_if_they_are_the_same() -> None:
    runs = [run("fire", 0), run("fire", 1)]
    text = page(report([grid("fire", 0), grid("fire", 1)], runs=runs))
    rows = [["run", "commit"], ["fire, seed 0", "0abc"], ["fire, seed 1", "1abc"]]
    assert Page(text).rows[-3:] == rows
    assert text.count("c" * 64) == 2 and "not recorded" in text  # attention
    assert "fire --seed 1" in text
    left = page(report([grid("fire")], left_out=[("rope-3", "unscored")]))
    assert "<code>rope-3</code>: unscored" in left


def line(step: int) -> dict[str, Any]:
    """Return metrics that fall with the step."""
    small_grid = {"out_of_distribution": 1 / step}
    return {"step": step, "loss": 1 / step, "exact_match": 1 / step, "small_grid": small_grid}


def test_curves_are_lines_of_seeds_and_their_mean() -> None:
    runs = [*logs("fire", 2), ("rope", 0, [line(step) for step in range(1, 1002)])]
    numbers = content(report([grid("fire")], logs=runs))
    fire, rope = numbers["curves"]
    assert fire["encoding"] == "fire" and len(fire["loss"]["seeds"]) == 2
    assert fire["loss"]["mean"][1] == (200, 1.0) and fire["loss"]["seeds"][1][1] == (200, 1.5)
    assert fire["out_of_distribution"] == {"seeds": [], "mean": []}
    thinned = rope["out_of_distribution"]["mean"]
    assert len(thinned) <= 201
    assert thinned[0] == (1, 1.0) and thinned[-1] == (1001, 0.000999)
    learnt = numbers["lengths"][0]
    assert learnt["seeds"] == [0, 1] and learnt["lengths"] == [1, 2, 3, 4, 5, 6]
    assert learnt["steps"] == [100, 200, 300, 400, 500]
    assert learnt["values"][2] == [0.0, 0.0, 1.0, 1.0, 1.0]


def test_exact_match_by_length_of_seeds_and_their_mean() -> None:
    grids = [grid("fire", seed) for seed in (0, 1)]
    numbers = content(report(grids, logs=[*logs("fire", 2), *logs("unscored")]))
    fire, unscored = numbers["curves"]
    assert "by_length" not in unscored
    longer = np.maximum(*np.indices(grids[0].exact.shape)) + 1
    for one, drawn in zip(grids, fire["by_length"]["seeds"], strict=True):
        shares = {n: (one.exact / one.total)[longer == n].mean() for n in np.unique(longer)}
        assert dict(drawn) == pytest.approx(shares, abs=5e-4)
    means = np.mean([[share for _, share in seed] for seed in fire["by_length"]["seeds"]], axis=0)
    assert [share for _, share in fire["by_length"]["mean"]] == pytest.approx(means, abs=5e-4)


def test_the_references_are_drawn_at_first() -> None:
    runs = [(name, 0, [line(1)]) for name in [f"pe{n}" for n in range(6)] + ["rope"]]
    made = report([grid("fire")], logs=runs)
    curves = content(made)["curves"]
    shown = [curve["encoding"] for curve in curves if curve["shown"]]
    assert shown == ["rope"]
    curves = content(report([grid("fire")], logs=runs[:3]))["curves"]
    assert [curve["encoding"] for curve in curves if curve["shown"]] == ["pe0", "pe1"]
    ticks = [attributes for _, attributes in Page(page(made)).elements if "checked" in attributes]
    assert [tick["value"] for tick in ticks] == ["6"]


@pytest.mark.slow
def test_thirty_encodings_of_five_seeds_fit() -> None:
    grids = [grid(f"pe-{n}", seed, digits=80) for n in range(30) for seed in range(5)]
    first, second = np.mgrid[1:81, 1:81]
    for place, one in enumerate(grids):  # solved to some length, then not, as real grids are
        number = place // 5
        share = 1 / (1 + np.exp((np.maximum(first, second) - 20 - 2 * number) / 2))
        one.exact[:] = np.random.default_rng([number, one.seed]).binomial(100, share)
    lines = [line(step) for step in range(20, 100_020, 20)]
    logged = [(f"pe-{n}", seed, lines) for n in range(30) for seed in range(5)]
    runs = [run(f"pe-{n}", seed) for n in range(30) for seed in range(5)]
    assert len(page(report(grids, runs=runs, logs=logged)).encode()) < 2_000_000
