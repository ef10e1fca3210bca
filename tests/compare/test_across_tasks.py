"""The leaderboard across tasks against the grids' files, read and ranked by code of its own."""

import csv
import io
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from scipy import stats

import tape_arith
from tape_arith.arith.compare.across_tasks import _ranks, across_tasks
from tape_arith.arith.compare.leaderboard import sort_panels
from tape_arith.arith.compare.selection import Selection
from tape_arith.arith.compare.tables import to_markdown
from tape_arith.arith.figures.across_tasks import compose
from tape_arith.arith.files import slug
from tape_arith.arith.grids.axes import region_mask, scored_axes
from tape_arith.arith.grids.facts import Evaluation
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.run import Run
from tests.helpers.figures import assert_nothing_is_cut_off
from tests.helpers.made_grids import flat, interrupt
from tests.helpers.tiny_runs import done, refused

PRESETS = ("mini", "mini-copy", "mini-sort")
OUTSIDE = {  # problems of 100 that are right out of distribution, by preset
    "rope": (30, 40, 50),
    "nope": (20, 40, 60),  # the same as rope in copy
    "fire": (50, 45, None),  # no run in sort
    "alibi": (60, 90, 10),  # does not converge in copy
    "t5": (95, 5, None),  # does not converge in copy, and is ranked first in the task that is left
    "abacus": (80, 10, 70),  # knows where digits stand
    "gone:b_f=3": (1, 2, 3),  # an encoding of another version, which converges nowhere
    "cope": (97, None, None),  # is scored in one task only, and so is neither shown nor a rival
}
STRUCTURED, BAD = {"abacus"}, {("alibi", "mini-copy"), ("t5", "mini-copy")}
TASKS = {"addition": "mini", "copy": "mini-copy", "sort": "mini-sort"}


@cache
def evaluation(preset: str) -> Evaluation:
    return replace(Evaluation.of(load_preset(preset).evaluation_bucket(), 1), problems_per_cell=100)


def write(root: Path, name: str, preset: str, seed: int, right: int, **more: Any) -> None:
    """Save the record and the grid of a run; seed 1 is a little better than seed 0."""
    config = load_preset(preset)
    record = RunRecord(name, seed, preset, config, 1, config.steps, None, "0.8.0")
    folder = Run(root / preset / slug(name) / f"seed-{seed}")
    folder.write_record(record)
    axes = scored_axes(config.bucket(0), config.evaluation_bucket())
    grid = Grid.empty(
        name,
        axes,
        preset=preset,
        seed=seed,
        budget=replace(record.budget, **more),
        evaluation=evaluation(preset),
    )
    converged = name != "gone:b_f=3" and (name, preset) not in BAD
    grid.total[:], grid.exact[:], grid.blocks_done = 100, right + 2 * seed, 100
    grid.exact[region_mask("in_distribution", axes)] = 100 if converged else 90
    grid.right_sum[:] = grid.exact
    grid.save(folder.path / "grid.json")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    for name, rights in OUTSIDE.items():
        for preset, right in zip(PRESETS, rights, strict=True):
            for seed in range(1 if name == "fire" else 2):
                if right is not None:
                    write(path, name, preset, seed, right)
    return path


def by_hand(root: Path) -> dict[tuple[str, str], list[float]]:
    """Return the mean out of distribution of each seed, from the files, by what the table shows."""
    means: dict[tuple[str, str], dict[int, float]] = {}
    for file in root.rglob("grid.json"):
        content = json.loads(file.read_text())
        digits = content["evaluation"]["max_digits"]
        pair = {"shortest": 1, "trained": content["trained_digits"], "tested": digits}
        axes = content.get("axes", [pair, pair])
        shares = np.array(content["exact"]) / 100
        inside = np.ones(shares.shape, dtype=bool)
        for number, axis in enumerate(axes):
            lengths = np.arange(axis["shortest"], axis["tested"] + 1)
            trained = lengths <= axis["trained"]
            inside &= trained[:, None] if number == 0 and len(axes) == 2 else trained
        key = content["encoding"], content["evaluation"]["task"]
        means.setdefault(key, {})[content["seed"]] = float(shares[~inside].mean())
    return {
        key: [seeds[seed] for seed in sorted(seeds)]
        for key, seeds in means.items()
        if key[0] != "cope"
    }


def test_means_intervals_and_ranks(root: Path) -> None:
    means = by_hand(root)
    table = tape_arith.tasks(runs=root)
    rows: dict[Any, Any] = {(row["encoding"], row["task"]): row for _, row in table.iterrows()}
    assert rows.keys() == means.keys()
    ranks: dict[str, list[float]] = {name: [] for name in OUTSIDE}
    for task in TASKS:
        for members in ({"rope", "nope", "fire", "alibi", "t5"}, STRUCTURED):
            ranked = [name for name in members if (name, task) in means]
            order = stats.rankdata([-np.mean(means[name, task]) for name in ranked])
            for name, rank in zip(ranked, order, strict=True):
                assert rows[name, task]["rank"] == rank
                ranks[name].append(rank)
    for (name, task), row in rows.items():
        seeds = means[name, task]
        assert row.preset == TASKS[task]
        assert row.out_of_distribution == pytest.approx(np.mean(seeds))
        if len(seeds) > 1:
            half = stats.t.ppf(0.975, len(seeds) - 1) * stats.sem(seeds)
            assert row.out_of_distribution_half_width == pytest.approx(half)
        if ranks[name]:
            assert row.mean_rank == pytest.approx(np.mean(ranks[name]))
    for name, preset in BAD:
        (task,) = (task for task, of in TASKS.items() if of == preset)
        assert rows[name, task]["rank"] >= 1 and rows[name, task].converged == "not converged"
    # By mean rank, each section by itself; what is scored in fewer than half of the tasks last.
    agnostic = sorted(
        ("rope", "nope", "fire", "alibi", "t5"), key=lambda name: (np.mean(ranks[name]), name)
    )
    assert list(dict.fromkeys(table.encoding)) == [*agnostic, "abacus", "gone:b_f=3"]


def test_what_ranks_is_the_mean_out_of_distribution() -> None:
    """Not that over all cells, where a better fit of the trained lengths would count too."""
    further = flat("fire", inside=99, outside=20)
    further.exact[7, 7] = 21
    panels = {"rope": Panel.of([flat("rope")]), "fire": Panel.of([further])}
    means = {name: panel.mean("all_cells") or 0.0 for name, panel in panels.items()}
    assert means["rope"] > means["fire"]
    assert [panel.name for panel in sort_panels(list(panels.values()))] == ["fire", "rope"]
    ranks = _ranks({name: {"addition": panel} for name, panel in panels.items()})
    assert ranks == {"fire": {"addition": 1}, "rope": {"addition": 2}}


def test_half_of_the_tasks_are_enough_to_be_ranked_first(root: Path) -> None:
    lines = across_tasks(Selection(root, "fire,rope"), "sort,copy").rows
    assert (lines[0].encoding, lines[0].ranks) == ("fire", {"copy": 1}) and len(lines[1].ranks) == 2


def test_tasks_that_tell_nothing_about_positions_are_in_no_mean(tmp_path: Path) -> None:
    for preset, right in (("mini-copy", 40), ("mini-parity", 90), ("mini-sum", 0)):
        for name, more in (("rope", 0), ("fire", 5 * (preset != "mini-sum"))):
            write(tmp_path, name, preset, 0, right + more)
    table = across_tasks(Selection(tmp_path))
    named = table.uncounted.split(": ", 1)[1].split("; ")
    assert [each.split(" (")[0] for each in named] == ["parity", "sum"]
    fire, rope = table.rows
    assert (fire.mean_rank, rope.mean_rank, table.has_counts) == (1.0, 2.0, False)
    assert rope.ranks == {"copy": 2.0, "parity": 2.0, "sum": 1.5}
    assert table.uncounted in done("tasks", "--runs", tmp_path, "all").out


def test_the_heatmap_has_the_table_s_means(root: Path) -> None:
    means, table = by_hand(root), across_tasks(Selection(root))
    figure = compose(table)
    ax = figure.axes[0]
    texts = {tuple(np.floor(text.get_position()).astype(int)): text.get_text() for text in ax.texts}
    names = dict(zip([line.encoding for line in table.rows], ax.get_yticks(), strict=True))
    for (name, task), seeds in means.items():
        place = list(TASKS).index(task), int(np.floor(names[name]))
        assert float(texts[place].rstrip("*\N{DAGGER}")) == pytest.approx(
            100 * np.mean(seeds), abs=0.06
        )
        assert texts[place].endswith("*") == (name == "gone:b_f=3" or (name, TASKS[task]) in BAD)
    assert len([patch for patch in ax.patches if isinstance(patch, Rectangle)]) == len(means)
    assert_nothing_is_cut_off(figure)


def test_the_command_and_its_forms(root: Path, tmp_path: Path) -> None:
    command = ("tasks", "--runs", root)
    text = done(*command, "mini-sort,copy", "--pe", "rope,alibi").out
    lines = [re.split(r" *\| *", line)[1:-1] for line in text.splitlines() if line[0:1] == "|"]
    assert lines[0] == ["encoding", "sort, %", "copy, %", "mean rank"]
    # Of these two.
    assert [cell.split(" ")[0] for cell in lines[2]] == ["ALiBi", "11.0", "91.0", "1.50"]
    assert [cell.split(" ")[0] for cell in lines[3]] == ["RoPE", "51.0", "41.0", "1.50"]
    assert lines[2][2][-1] == "*"
    rows = list(csv.DictReader(io.StringIO(done(*command, "all", "--csv").out)))
    assert len(rows) == 19 and json.loads(done(*command, "all", "--json").out)["schema"] == 1
    files = tmp_path / "a.tex", tmp_path / "a.svg"
    made = done(*command, "copy", "--out", files[0], "--figure", files[1]).out
    assert made.split() == list(map(str, files))
    only = json.loads(done("leaderboard", "--runs", root, "--task", "sort", "--json").out)
    assert only["preset"] == "mini-sort"
    for task in ("srot", "copy,srot"):
        assert "'sort'" in refused(*command, task)
    assert "parity" in refused(*command, "parity,sotr")


def test_a_column_has_one_preset_and_one_budget(root: Path, tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, "rope", "mini", seed, 30)
        write(tmp_path, "fire", "mini", seed, 30, steps=7)
        write(tmp_path, "tape", "paper-20", seed, 30)
    write(tmp_path, "tape", "paper-40", 0, 30)
    command = ("tasks", "--runs", tmp_path)
    assert "paper-20" in refused(*command, "mini,paper-20")
    assert done(*command, "addition").out == done(*command, "all").out
    table = across_tasks(Selection(tmp_path))  # the preset with more encodings
    (presets, _), (runs, why) = table.left_out
    assert [line.encoding for line in table.rows] == ["rope"] and presets.startswith("task")
    assert "paper-20, paper-40" in presets and "fire" in runs and "steps 7" in why
    assert "RoPE" not in done(*command, "paper-20").out


def test_words_are_of_what_is_shown(root: Path, tmp_path: Path) -> None:
    table = across_tasks(Selection(root, "fire"), "sort,addition")
    assert [(runs.task, "seed 0." in runs.source) for runs in table.runs] == [("addition", True)]
    assert "task sort" in dict(table.left_out)
    shown = to_markdown(across_tasks(Selection(root), "copy,addition"), ["encoding", "addition"])
    assert "Task addition" in shown and "Task copy" not in shown and "Mean rank" not in shown
    for seed in range(3):
        write(tmp_path, "rope", "mini", seed, 30)
    interrupt(tmp_path / "mini/rope/seed-1/grid.json")
    output = done("tasks", "--runs", tmp_path, "addition:order=reversed")
    (runs,) = across_tasks(Selection(tmp_path)).runs
    assert runs.source.endswith("0, 2.")
    assert all("rope seed 1" in text for text in (output.out, output.err))


def test_rank_correlations_over_all_and_over_the_leading_half(tmp_path: Path) -> None:
    addition = {"rope": 5, "nope": 60, "fire": 50, "alibi": 40, "t5": 30, "cope": 20, "fox": 10}
    addition |= {"rand-rope": 80, "abacus": 99}
    copied = {"rope": 1, "nope": 30, "fire": 40, "alibi": 50, "t5": 20, "cope": 20, "fox": 2}
    copied |= {"rand-rope": 10, "abacus": 98}
    for preset, right in {"mini": addition, "mini-copy": copied}.items():
        for name, share in right.items():
            write(tmp_path, name, preset, 0, share)
    for name in ("rope", "nope", "fire"):  # too few to lead
        write(tmp_path, name, "mini-sort", 0, addition[name])
    table = across_tasks(Selection(tmp_path))
    ranked = [name for name in sorted(addition, key=addition.__getitem__) if name != "abacus"]
    (found,) = table.rank_correlations
    assert (found.task, found.encodings, found.leading_encodings) == ("copy", 8, 4)
    for rho, names in ((found.all, ranked), (found.leading, ranked[4:])):
        means = [[right[name] for name in names] for right in (addition, copied)]
        assert rho == pytest.approx(stats.spearmanr(*means).statistic)
    assert found.leading < 0 < found.all
    note = f"copy +{found.all:.2f} (\N{MINUS SIGN}{-found.leading:.2f}). "
    note += "Numbers of encodings: 8 (4)."
    assert any("half of them that leads there: " + note in text for text in table.notes())
    assert json.loads(done("tasks", "--runs", tmp_path, "--json").out)["rank_correlations"] == [
        found._asdict()
    ]
