"""The leaderboard against the raw files, read and counted by code of its own."""

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tape_arith.arith.commands import table_output
from tape_arith.arith.compare.across_tasks import _ranks
from tape_arith.arith.compare.board import Board
from tape_arith.arith.compare.effects import Effect, difference_columns, effects
from tape_arith.arith.compare.labels import display_names
from tape_arith.arith.compare.leaderboard import board_of, build_board
from tape_arith.arith.compare.selection import Selection
from tape_arith.arith.compare.tables import FORMATS
from tape_arith.arith.decoders.cost import about
from tape_arith.arith.files import slug
from tape_arith.arith.grids.axes import digit_pairs
from tape_arith.arith.grids.facts import About, Evaluation
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.grids.statistics import Welch
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.run import Run
from tests.helpers.boards import cells
from tests.helpers.documents import METRICS, edit_machine
from tests.helpers.made_grids import flat
from tests.helpers.tiny_runs import call, done, refused, untouched

EVALUATION: dict[str, Any] = {"task": "addition", "version": 1, "seed": 0, "max_digits": 16}
EVALUATION |= {"problems_per_cell": 50, "sha256": "ab" * 32}
TRAINED, TESTED = 8, 16
REACH = {  # how far each encoding gets, in digits; how its seeds differ; how many it has
    "rope": (8.4, 0.3, 3),
    "tape": (9.0, 0.2, 4),
    "fire": (12.2, 0.1, 5),
    "nope": (12.0, 0.0, 1),
    "abacus": (14.8, 0.1, 2),
    "rope+yarn": (9.4, 0.2, 3),
    "alibi": (6.2, 0.1, 3),  # does not fit its own lengths
    "gone:b_f=3": (10.6, 0.2, 2),  # an encoding of another version
}


@cache
def facts(encoding: str) -> About | None:
    """What a run of preset mini records of its encoding."""
    return None if encoding.startswith("gone") else about(parse(encoding), load_preset("mini"))


def write(
    root: Path, name: str, seed: int, exact: Any, *, steps: int = 1000, **evaluation: Any
) -> Run:
    """A run of preset mini as its files say, without weights: record, grid and times."""
    config = replace(load_preset("mini"), steps=steps)
    encoding = name.removesuffix("+yarn")
    record = RunRecord(
        encoding, seed, "mini", config, 1, steps, None, "0.2.0", about=facts(encoding)
    )
    folder = Run(root / "mini" / slug(encoding) / f"seed-{seed}")
    folder.write_record(record)
    folder.write_timing("train", 60.0 * (seed + 1))
    grid = Grid.empty(
        encoding,
        extrapolation="yarn" if name.endswith("+yarn") else None,
        preset="mini",
        seed=seed,
        axes=digit_pairs(TRAINED, 16),
        budget=record.budget,
        evaluation=Evaluation(**EVALUATION | evaluation),
        settings=record.settings,
    )
    grid.total[:], grid.exact[:], grid.right_sum[:] = 50, exact, (exact + 50) / 2
    grid.blocks_done = 50
    grid.save(folder.path / ("grid+yarn.json" if grid.extrapolation else "grid.json"))
    return folder


def counts(reach: float, seed: int) -> Any:
    """int[16, 16]: of 50 problems; fewer beyond `reach`, and where the first operand is longer."""
    draw = np.random.default_rng([seed, round(100 * reach)])
    first, second = np.mgrid[1:17, 1:17]
    p = 1 / (1 + np.exp(3 * (np.maximum(1.1 * first, second) - reach - 0.7)))
    inside = np.maximum(first, second) <= TRAINED
    p = np.where(inside & (reach > TRAINED), 1.0, p)
    return draw.binomial(50, p)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs of REACH. Not to be changed."""
    root = tmp_path_factory.mktemp("runs")
    for name, (reach, spread, seeds) in REACH.items():
        for seed in range(seeds):
            write(root, name, seed, counts(reach + spread * (seed - 1), seed))
    return root


@pytest.fixture(scope="module")
def board(written: Path) -> Board:
    """The leaderboard of `written`."""
    return build_board(Selection(written))


@pytest.fixture(scope="module")
def content(board: Board) -> dict[str, Any]:
    """The same as JSON. Not to be changed."""
    return as_json(board)


@pytest.fixture(scope="module")
def shares(written: Path) -> dict[str, Any]:
    """The shares of exact answers in `written`. Not to be changed."""
    return raw(written)


@pytest.fixture
def made(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a copy of `written` as `runs`."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(written, tmp_path / "runs")
    return tmp_path


def raw(root: Path) -> dict[str, Any]:
    """Return shares of exact answers of each name, float64[seeds, 16, 16]: straight from JSON."""
    by_name: dict[str, dict[int, Any]] = {}
    for file in root.rglob("grid*.json"):
        content = json.loads(file.read_text())
        added = content["extrapolation"]
        name = content["encoding"] + (f"+{added}" if added else "")
        shares = np.array(content["exact"]) / np.array(content["total"])
        by_name.setdefault(name, {})[content["seed"]] = shares
    return {name: np.array([of[seed] for seed in sorted(of)]) for name, of in by_name.items()}


def region_means(grids: Any, region: str) -> list[float]:
    """Return the mean of each seed over the cells of a region, as its name says it."""
    beyond = np.arange(1, TESTED + 1) > TRAINED
    longer = np.add.outer(beyond, beyond, dtype=int)
    cells = {
        "in_distribution": longer == 0,
        "one_longer": longer == 1,
        "both_longer": longer == 2,
        "out_of_distribution": longer > 0,
        "all_cells": longer >= 0,
    }[region]
    return [float(grid[cells].mean()) for grid in grids]


def outside(grids: Any) -> list[float]:
    return region_means(grids, "out_of_distribution")


def as_json(board: Board) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FORMATS["json"](board))
    return content


def leaderboard(names: str = "all", **options: Any) -> dict[str, Any]:
    return as_json(build_board(Selection(Path("runs"), names), **options))


def as_csv(board: Board, *columns: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(FORMATS["csv"](board, columns))))


def shown(text: str) -> dict[str, list[str]]:
    """Return the cells of each row of Markdown tables by what their second column shows."""
    return {row[1]: row for row in cells(text)}


def rows(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["encoding"]: row for section in content["sections"] for row in section["rows"]}


def test_means_and_intervals(content: dict[str, Any], shares: dict[str, Any]) -> None:
    found, expected = rows(content), shares
    assert found.keys() == expected.keys() == REACH.keys()
    for name, grids in expected.items():
        assert found[name]["seeds"] == list(range(len(grids)))
        for region, mean in found[name]["means"].items():
            values = region_means(grids, region)
            assert found[name]["values"][region] == pytest.approx(values)
            assert mean["mean"] == pytest.approx(np.mean(values))
            assert (mean["of"] == "seeds") == (len(values) > 1)
            if len(values) > 1:
                half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
                assert mean["half_width"] == pytest.approx(half, abs=1e-12)


def test_the_order_and_what_stands_apart(content: dict[str, Any], shares: dict[str, Any]) -> None:
    grids = shares
    sections = {section["title"]: section["rows"] for section in content["sections"]}
    names = {title: [row["encoding"] for row in of] for title, of in sections.items()}
    ranked = {n for n, of in grids.items() if min(region_means(of, "in_distribution")) >= 0.99}
    assert ranked == set(REACH) - {"alibi"}
    agnostic = ranked - {"abacus", "gone:b_f=3"}
    best_first = sorted(agnostic, key=lambda name: -float(np.mean(outside(grids[name]))))
    assert list(names.values()) == [best_first, ["abacus"], ["gone:b_f=3"], ["alibi"]]
    ranks = [[row["rank"] for row in of] for of in sections.values()]
    assert ranks == [[1, 2, 3, 4, 5], [1], [1], [None]]
    assert rows(content)["alibi"]["mark"] == "not converged"
    assert rows(content)["abacus"]["kind"] == "task-structured"
    assert rows(content)["gone:b_f=3"]["kind"] == "unknown"


def assert_differences(found: dict[str, Any], own: list[float], others: list[float]) -> None:
    """Compare with scipy: unpaired, and paired over the seeds that both have."""
    oracle = stats.ttest_ind(own, others, equal_var=False).confidence_interval()
    assert found["difference"] == pytest.approx(np.mean(own) - np.mean(others))
    assert found["half_width"] == pytest.approx((oracle.high - oracle.low) / 2)
    common = min(len(own), len(others))
    oracle = stats.ttest_rel(own[:common], others[:common]).confidence_interval()
    pairs = found["paired"]
    assert pairs["difference"] == pytest.approx((oracle.high + oracle.low) / 2)
    assert pairs["half_width"] == pytest.approx((oracle.high - oracle.low) / 2)
    assert pairs["seeds"] == common


def test_tests_against_the_references(
    made: Path, content: dict[str, Any], shares: dict[str, Any]
) -> None:
    grids = shares
    pairs = [("rope", "tape"), ("fire", "rope"), ("fire", "tape"), ("abacus", "rope")]
    pairs += [("abacus", "tape")]
    pairs += [("gone:b_f=3", "rope"), ("gone:b_f=3", "tape")]
    p = {
        pair: float(stats.ttest_ind(*(outside(grids[n]) for n in pair), equal_var=False).pvalue)
        for pair in pairs
    }
    adjusted: dict[tuple[str, str], float] = {}
    for place, pair in enumerate(sorted(pairs, key=p.__getitem__)):
        before = max(adjusted.values(), default=0.0)
        adjusted[pair] = max(before, min(1.0, (len(pairs) - place) * p[pair]))
    assert content["tests"] == len(pairs)
    found = rows(content)
    for (name, reference), value in adjusted.items():
        test = found[name]["tests"][reference]
        assert test["p"] == pytest.approx(p[name, reference], rel=1e-6)
        assert test["p_holm"] == pytest.approx(value, rel=1e-6)
        own, others = outside(grids[name]), outside(grids[reference])
        assert_differences(test, own, others)
    both_ways = found["tape"]["tests"]["rope"], found["rope"]["tests"]["tape"]
    assert both_ways[0]["p_holm"] == both_ways[1]["p_holm"]
    assert both_ways[0]["difference"] == -both_ways[1]["difference"]
    for name, reference, why in (
        ("rope", "rope", "the reference itself"),
        ("nope", "rope", "one seed of nope"),
        ("rope+yarn", "rope", "the same training runs"),
        ("alibi", "tape", "alibi is not ranked"),
    ):
        test = found[name]["tests"][reference]
        assert test["p_holm"] is None and test["why_not"] == why and "p" not in test
    # Runs that are scored again are compared, but they are no further encodings.
    again = found["rope+yarn"]["tests"]
    assert again["tape"]["p_holm"] is None and "not trained" in again["tape"]["why_not"]
    assert_differences(again["tape"], outside(grids["rope+yarn"]), outside(grids["tape"]))
    by_seed = np.subtract(outside(grids["rope+yarn"]), outside(grids["rope"]))
    assert again["rope"]["paired"]["difference"] == pytest.approx(by_seed.mean())
    # The first of a section is compared with nobody, the others with it.
    (agnostic,) = (s["rows"] for s in content["sections"] if s["title"] == "Task-agnostic")
    best, *below = (row["encoding"] for row in agnostic)
    assert found[best]["from_best"]["paired"] is None and "t" not in found[best]["from_best"]
    for name in below:
        if found[name]["from_best"]["why_not"] is None:
            assert_differences(found[name]["from_best"], outside(grids[name]), outside(grids[best]))
    shutil.rmtree(made / "runs/mini/tape")
    assert "tape" in rows(leaderboard())["fire"]["tests"]["tape"]["why_not"]


def test_planned_contrasts(written: Path, shares: dict[str, Any]) -> None:
    pairs = [("fire", "tape"), ("abacus", "rope"), ("tape", "rope"), ("alibi", "fire")]
    options = [f"--contrast={one} - {other}" for one, other in pairs]
    told = done("leaderboard", "--json", *options, "--runs", written)
    board, grids = json.loads(told.out), shares
    found = board["contrasts"]
    assert [(each["one"], each["other"]) for each in found] == pairs
    p = []
    for each, (one, other) in zip(found[:3], pairs, strict=False):
        assert_differences(each, outside(grids[one]), outside(grids[other]))
        p.append(
            stats.ttest_ind(outside(grids[one]), outside(grids[other]), equal_var=False).pvalue
        )
    first, second, third = sorted(p)
    holm = {first: 3 * first, second: max(3 * first, 2 * second)}
    holm[third] = max(*holm.values(), third)
    assert [each["p_holm"] for each in found[:3]] == pytest.approx([min(1, holm[x]) for x in p])
    assert "alibi" in found[3]["why_not"] and "p" not in found[3]
    assert any("these 3" in note for note in board["notes"])
    for wrong in ("fire", "fire - cope"):
        assert call("leaderboard", "--contrast", wrong, "--runs", written).code == 2


def test_runs_of_another_budget_are_left_out_and_named(made: Path, content: dict[str, Any]) -> None:
    before = rows(content)
    write(made / "runs", "fire", 7, counts(13, 7), steps=2000)
    write(made / "runs", "cope", 0, counts(13, 7), steps=2000)
    write(made / "runs", "tape", 8, counts(13, 8), version=2)
    write(made / "runs", "tape", 9, counts(13, 9), sha256="cd" * 32)
    told = done("leaderboard", "--format", "json")
    content = json.loads(told.out)
    assert rows(content) == before
    left = {entry["runs"]: entry["why"] for entry in content["left_out"]}
    wrong = {
        "cope seed 0; fire seed 7": "2000",
        "tape seed 8": "version",
        "tape seed 9": "cdcdcdcd",
    }
    assert left.keys() == wrong.keys()
    board = done("leaderboard").out
    for runs, why in left.items():
        assert wrong[runs] in why and f"{runs}: {why}" in told.err and f"{runs}: {why}." in board


def test_the_preset_s_own_budget_comes_before_a_larger_group(made: Path) -> None:
    larger = [f"gone:b_f={number}" for number in range(10, 20)]
    for name in larger:
        write(made / "runs", name, 0, counts(12, 0), steps=10)
    assert len(larger) > len(REACH) and rows(leaderboard()).keys() == REACH.keys()
    # Without any of the preset's own the larger group is shown.
    for name in REACH:
        shutil.rmtree(made / "runs/mini" / slug(name.removesuffix("+yarn")), ignore_errors=True)
    write(made / "runs", "rope", 0, counts(12, 0), steps=20)
    content = leaderboard()
    assert sorted(rows(content)) == sorted(larger) and content["settings"] == {"steps": 10}
    assert "steps 20" in content["left_out"][0]["why"]


def test_time_and_last_states(made: Path) -> None:
    folder = Run(made / "runs/mini/tape/seed-1")
    small_grids = [
        {"in_distribution": 1.0, "out_of_distribution": value, "by_length": {}}
        for value in (0.9, 0.20, 0.25, 0.22, 0.3, 0.26)
    ]
    for number, small_grid in enumerate(small_grids, start=1):
        folder.add_metrics({**METRICS, "step": 250 * number, "small_grid": small_grid})
    board = build_board(Selection(Path("runs")))
    found = rows(as_json(board))
    assert found["tape"]["train_seconds"] == [60.0, 120.0, 180.0, 240.0]
    # Of six states the last five; the seeds without any are not measured, and not 0.
    assert found["tape"]["last_states"] == [None, [0.20, 0.25, 0.22, 0.3, 0.26], None, None]
    assert found["tape"]["last_states_range"] == pytest.approx(0.1)
    assert found["fire"]["last_states_range"] is None
    text = FORMATS["markdown"](board)
    shown_rows = shown(text)
    assert {"10.0", "2.5"} <= set(shown_rows["tape"]) and "not measured" in shown_rows["fire"]
    # Of which steps they are, as the files have it.
    assert "500 to" in text and "1,500" in text


def test_costs_at_the_preset_s_size(written: Path, content: dict[str, Any]) -> None:
    told = done("leaderboard", "--costs", "--json", "--runs", written)
    found = rows(json.loads(told.out))
    for name in ("rope", "rope+yarn", "nope"):
        assert found[name]["parameters"] == found[name]["flops_a_token"] == 0
    # Per layer of four: 1 to 32 and 32 to 4 heads, with biases; init_l and c besides.
    assert found["fire"]["parameters"] == 792
    assert found["tape"]["flops_a_token"] > found["fire"]["flops_a_token"] > 0
    assert found["gone:b_f=3"]["parameters"] is None
    assert rows(content)["fire"]["parameters"] is None and not rows(content)["fire"]["trainings"]


def test_how_training_went_with_its_mfu(made: Path) -> None:
    folder, other = (Run(made / f"runs/mini/{run}") for run in ("tape/seed-1", "fire/seed-0"))
    last = {"step": 1000, "loss": 0.25, "tokens": 6_000_000, "seconds": 60.0}
    folder.add_metrics({**METRICS, **last})
    edit_machine(folder.record_file, hardware="NVIDIA H200")
    board = build_board(Selection(Path("runs")), costs=True)
    trainings = rows(as_json(board))["tape"]["trainings"]
    assert set(trainings[0].values()) == {None}
    assert (trainings[1]["loss"], trainings[1]["tokens_per_second"]) == (0.25, 100_000.0)
    assert trainings[1]["machine"] == "NVIDIA H200"
    # 6 FLOPs a weight and token, of 4 layers of 4 x 128 x 128 + 3 x 128 x 256, less the last
    # one's for tokens that are no answer, and attention and e on top.
    weights = 4 * (4 * 128**2 + 3 * 128 * 256)
    assert 0.7 < trainings[1]["mfu"] * 989e12 / (6 * weights * 1e5) < 1.6
    text = FORMATS["markdown"](board)
    assert shown(text)["tape"][-4:-1] == ["0.2500", "100,000", "0.0"]
    assert "NVIDIA H200" not in text
    (tape,) = (line for line in as_csv(board) if line["encoding"] == "tape")
    assert ["-", "0.25", "-", "-"] in [value.split() for value in tape.values()]
    # Where machines differ, they are named; the other has no datasheet.
    other.add_metrics({**METRICS, **last})
    edit_machine(other.record_file, hardware="AMD EPYC")
    board = build_board(Selection(Path("runs")), costs=True)
    trained_on = shown(FORMATS["markdown"](board))
    assert "NVIDIA H200" in trained_on["tape"] and "AMD EPYC" in trained_on["fire"]
    assert rows(as_json(board))["fire"]["trainings"][0]["mfu"] is None


@pytest.mark.parametrize(
    ("difference", "p_holm", "text"),
    [
        (0.1, 0.05, "\N{UPWARDS ARROW} +10.0 ± 2.5"),
        (-0.1, 0.049, "\N{DOWNWARDS ARROW} \N{MINUS SIGN}10.0 ± 2.5"),
        (0.1, 0.051, "+10.0 ± 2.5"),
        (0.1, None, "+10.0 ± 2.5"),
    ],
)
def test_an_arrow_marks_five_percent_and_its_direction(
    difference: float, p_holm: float | None, text: str
) -> None:
    test = Welch(difference, 1.0, 4.0, 0.01, 0.025)
    assert str(Effect(test, None, p_holm)) == text


def test_the_texts_say_the_same(
    written: Path, board: Board, content: dict[str, Any], shares: dict[str, Any]
) -> None:
    flat = as_csv(board)
    assert [line["encoding"] for line in flat] == list(rows(content))
    for line in flat:
        row = rows(content)[line["encoding"]]
        assert line["rank"] == ("" if row["rank"] is None else str(row["rank"]))
        assert float(line["out_of_distribution"]) == pytest.approx(
            row["means"]["out_of_distribution"]["mean"], abs=1e-6
        )
        each = [float(value) for value in line["out_of_distribution_seeds"].split()]
        assert each == pytest.approx(row["values"]["out_of_distribution"], abs=1e-6)
        assert line["solved_to_90"] == str(row["solved_to"]["0.9"])
        p = row["tests"]["rope"]["p_holm"]
        assert line["p_holm_rope"] == ("" if p is None else f"{p:.10g}")
        assert line["no_test_rope"] == (row["tests"]["rope"]["why_not"] or "")
        # Of the cells whose longer operand has 9 or 10 digits; half of the wrong answers' tokens.
        grids = shares[line["encoding"]]
        for more in (1, 2):
            last = TRAINED + more
            shells = [[*grid[:last, last - 1], *grid[last - 1, : last - 1]] for grid in grids]
            values = [float(value) for value in line[f"longer_by_{more}_seeds"].split()]
            assert values == pytest.approx(np.mean(shells, axis=1), abs=1e-9)
        values = [float(value) for value in line["right_tokens_seeds"].split()]
        assert values == pytest.approx((np.array(outside(grids)) + 1) / 2, abs=1e-9)
    text = done("leaderboard", "--runs", written).out
    tables = [part.splitlines() for part in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]
    assert len(tables) == 4 and all(len({x.count("|") for x in table}) == 1 for table in tables)
    names = [line.split(" | ")[1] for table in tables for line in table[2:]]
    assert names == list(display_names(rows(content)).values()) != list(rows(content))


def test_latex(written: Path, board: Board, here: Path) -> None:
    """The notes are comments, the caption is three sentences, and the columns are those chosen."""
    told = FORMATS["latex"](board)
    comments = [line for line in told.splitlines() if line.startswith("% ")]
    text = told.removeprefix("\n".join(comments) + "\n")
    notes = " ".join(line.removeprefix("% ") for line in comments)
    assert "Last states" in notes and "two-sided" in notes and "two-sided" not in text
    for environment in ("table*", "tabular"):
        assert text.count(f"\\begin{{{environment}}}") == text.count(f"\\end{{{environment}}}") == 1
    body = text[text.index("\\toprule") : text.index("\\bottomrule")]
    assert body.count("\\multicolumn") == 4 == body.count("\\midrule")
    assert all(ord(letter) < 128 for letter in text)
    assert body.count("\\textit{Task-structured") == 1
    caption = text[text.index("\\caption") :]
    assert len(re.findall(r"\.(?= |}$)", caption, re.MULTILINE)) == 3
    assert "problems)" not in body and body.count("1\\dag{}") == 1 == caption.count("\\dag{}")
    assert "longest solved" in caption and re.search(r"Holm\s+over\s+7", caption)
    # Nothing that LaTeX would take for more than text, outside of its own commands.
    bare = re.sub(r"\\[a-zA-Z]+|\\[\\%#_&{}$]|\$\\?[a-z<>|-]+\$", "", text)
    assert not re.search(r"[%#_$^]", bare)
    chosen = FORMATS["latex"](board, ["encoding", "out-of-distribution", "kind"])
    rows = [line for line in chosen.splitlines() if line.endswith(r"\\") and "multi" not in line]
    split = [row.removesuffix(r" \\").split(" & ") for row in rows]
    assert (split[0][0], split[0][2]) == ("encoding", "kind")
    assert len(rows) == 1 + len(REACH) and all(len(row) == 3 for row in split)
    assert "longest solved" not in chosen[chosen.index("\\caption") :]
    bare = done("leaderboard", "--runs", written, "--format", "latex", "--no-caption").out
    assert "\\caption" not in bare and "longest solved" in bare
    done("leaderboard", "--runs", written, "--out", "rope tape_2.tex")
    for table, label in ((told, "mini"), (Path("rope tape_2.tex").read_text(), "rope-tape_2")):
        assert re.findall(r"\\label\{(.*)\}", table) == [f"tab:{label}"]


def test_labels_of_one_s_own(made: Path) -> None:
    """They are in every text for people; programs and a choice of columns read what one types."""
    own = ["--label", "tape=Ours", "--label", "nope=None", "--show", "encoding,seeds,vs_tape"]
    own += ["--pe", "rope,fire,nope,rope+yarn"]
    for form, end in (("markdown", " |"), ("latex", r" \\")):
        table = done("leaderboard", "--format", form, *own).out
        assert "Ours" in table and f"vs Ours{end}" in table and "vs tape" not in table
        assert form == "latex" or "None: 0" in table
    with untouched(made):
        assert "--label" in refused("leaderboard", "--csv", "--label", "tape=Ours")
        assert "al_cells" in refused("leaderboard", "--show", "al_cells", "--out", "board.md")


def test_chosen_columns(written: Path, board: Board) -> None:
    own = ("leaderboard", "--runs", written)
    every, lines = done(*own).out, as_csv(board)
    table = done(*own, "--csv", "--show", "encoding, all_cells_low").out
    assert table.splitlines() == [
        "encoding,all_cells_low",
        *(f"{line['encoding']},{line['all_cells_low']}" for line in lines),
    ]
    # Notes are of the columns shown, which have the same names in CSV.
    notes = ("Longest solved", "Vs best", "Last states", "9 digits:", "two-sided")
    assert all(note in every for note in notes)
    few = FORMATS["markdown"](board, ["encoding", "vs_best", "solved_to_90"])
    assert [note in few for note in notes] == [True, True, False, False, False]
    chosen = as_csv(board, "encoding", "each_seed", "vs_best", "training_min")
    assert list(chosen[0]) == [
        *("encoding", "out_of_distribution_seeds", "difference_from_best"),
        *("difference_from_best_half_width", "paired_difference_from_best"),
        *("paired_difference_from_best_half_width", "train_seconds"),
    ]


def test_a_terminal_gets_what_fits(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(table_output, "sys", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    told = done("leaderboard", "--runs", written).out
    lines = told.splitlines()
    assert max(map(len, lines)) <= 60
    assert "|" not in told and "Not shown:" in told
    assert sum(line[3:].split(" ")[0] in REACH for line in lines) == len(REACH)


def test_named_encodings_keep_their_ranks_and_tests(made: Path, content: dict[str, Any]) -> None:
    board = leaderboard("rope,fire,alibi")
    names = [row["encoding"] for section in board["sections"] for row in section["rows"]]
    assert names == ["fire", "rope", "alibi"]
    assert all(row == rows(content)[name] for name, row in rows(board).items())
    (note,) = (note for note in board["notes"] if "shown;" in note)
    assert re.findall(r"\d+", note) == ["3", "8", "8"]
    named = ("--pe", "rope,fire,alibi", "--among-shown")
    alone = json.loads(done("leaderboard", "--json", *named).out)
    assert alone["tests"] == 1 < board["tests"]  # fire against rope: one seed is never tested
    assert not any("shown;" in note for note in alone["notes"])
    write(made / "runs", "cope", 0, counts(13, 7), steps=2000)  # a budget of its own
    assert list(rows(leaderboard("cope"))) == ["cope"]


def test_a_board_without_its_references(here: Path) -> None:
    for seed in range(3):
        write(here / "runs", "fire", seed, counts(9 + 0.7 * seed, 7))
    text = done("leaderboard").out
    assert "no test" in text and "Holm" not in text
    both_longer = shown(text)["FIRE"][7]  # not among the means that figures print
    assert "\N{EN DASH}" in both_longer and "highest" in text


def test_what_is_refused(made: Path) -> None:
    with untouched(made):
        # Before anything is written.
        assert "board.xml" in refused("leaderboard", "--out", "board.xml")
        assert "board.jpg" in refused("leaderboard", "--out", "board.md", "--figure", "board.jpg")
    file = made / "runs/mini/tape/seed-1/grid.json"
    file.write_text("{")
    assert "tape/seed-1/grid.json" in done("leaderboard").err


def test_what_is_not_ranked_is_neither_tested_nor_a_reference() -> None:
    panels = [
        Panel.of(flat(name, seed, inside=inside, outside=20 + seed) for seed in range(3))
        for name, inside in (("rope", 100), ("fire", 100), ("tape", 90), ("alibi", 90))
    ]
    compared, num_tests = effects(panels, ("rope", "tape"))
    tested = [(name, other) for name in compared for other, e in compared[name].items() if e.welch]
    assert (tested, num_tests) == ([("fire", "rope")], 1)
    column, _ = difference_columns(["rope"], num_tests, {})
    assert "interval; \N{UPWARDS ARROW} better" in column.signs
    assert column.signs.endswith("after Holm over 1 test") and "over the 1 test of" in column.note


def test_equal_means_share_a_rank() -> None:
    """Also where the same seeds in another order differ in the last bit of their mean."""
    rights = {"rope": (10, 20, 70), "fire": (70, 10, 20), "tape": (20, 70, 10), "nope": (9, 9, 9)}
    rights |= {"t5": (90, 90, 90)}
    made = [
        Panel.of(flat(name, seed, outside=right) for seed, right in enumerate(each))
        for name, each in rights.items()
    ]
    means = {panel.mean("out_of_distribution") for panel in made[:3]}
    assert max(filter(None, means)) - min(filter(None, means)) < 1e-15
    board = board_of(made, {})
    ranks = {row.panel.name: row.rank for row in board.rows}
    assert ranks == {"t5": 1, "fire": 2, "rope": 2, "tape": 2, "nope": 5}
    for notes, tied in ((board.notes(), True), (board_of(made[2:], {}).notes(), False)):
        assert any("share a" in note for note in notes) == tied
    shared = _ranks({panel.name: {"addition": panel} for panel in made})
    assert {name: by_task["addition"] for name, by_task in shared.items()} == {
        **{"t5": 1.0, "nope": 5.0},
        **dict.fromkeys(("fire", "rope", "tape"), 3.0),
    }
