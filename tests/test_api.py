"""The Python API: the same runs, grids and tables as the commands, and the notebook's cells."""

import ast
import io
import json
import re
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

import tape_arith
from tape_arith import Grid, Run, UsageError
from tape_arith.arith import api
from tape_arith.models.sequences import Sequences
from tests.helpers.tiny_runs import SETTINGS, contents, done, refused, settings, untouched

TINY: dict[str, Any] = dict(SETTINGS)
RESULTS = Path(__file__).resolve().parents[1] / "results"


def test_a_run_is_that_of_the_command_line(here: Path) -> None:
    run = tape_arith.train("rope", preset="mini", seed=1, runs="api", **TINY)
    grid = run.score()
    done("train", "--pe", "rope", "--seed", "1", "--runs", "cli", *settings())
    command = Path("cli/mini/rope/seed-1")
    assert contents(run.path / "weights") == contents(command / "weights")
    assert (run.path / "grid.json").read_bytes() == (command / "grid.json").read_bytes()
    assert np.array_equal(Grid.load(command / "grid.json").exact, grid.exact)
    assert run.state().trained and len(run.to_frame()) > 0 and run.to_frame().loss.notna().all()
    assert run.score("yarn", split="carry").name == "rope+yarn"
    decoder = run.decoder("yarn")
    assert not decoder.training and decoder.pe.rescaling is not None
    answer = json.loads(done("ask", run.path, "9+8", "--json").out)
    assert run.answer("9+8").content() == answer
    assert run.train(steps=8).record().config.steps == 8
    assert tape_arith.find_runs("api") == [run]


def test_a_number_from_python_is_refused_before_anything_is_written(
    trained: Path, here: Path
) -> None:
    run, runs = Run(trained / "runs/mini/rope/seed-0"), trained / "runs"
    calls: dict[str, Callable[..., object]] = {
        "seed": partial(tape_arith.train, "rope", preset="mini", **TINY),
        "count": partial(tape_arith.generate, "mini", **TINY),
        "workers": partial(tape_arith.generate, "mini", **TINY),
        "slots": partial(tape_arith.run, "rope", preset="mini", **TINY),
        "max_digits": run.score,
        "steps": run.train,
        "problems": partial(tape_arith.study, "errors", [run.path]),
        "layer": partial(tape_arith.study, "attention", [run.path]),
        "columns": partial(tape_arith.heatmap, runs=runs, preset="mini"),
    }
    values: list[Any] = [-1, 1.5, "0", True, [1], np.float64(2.5), np.True_]
    with untouched(trained), untouched(here):
        for value, (name, call) in product(values, calls.items()):
            words = f"^--{name.replace('_', '-')} must be (a whole number|at least [01])(, not |$)"
            with pytest.raises(UsageError, match=words):
                call(**{name: value})
        for value in values:
            with pytest.raises(UsageError, match=r"^--seeds must"):
                tape_arith.run("rope", seeds=[value], preset="mini", **TINY)
            with pytest.raises(UsageError, match="'num_heads'"):
                tape_arith.train("rope", preset="mini", **TINY | {"num_heads": [value]})


def test_the_limits_of_numbers_are_those_of_the_command_line(trained: Path, here: Path) -> None:
    run = trained / "runs/mini/rope/seed-0"
    calls: dict[tuple[object, ...], Callable[[], object]] = {
        ("train", "--pe", "rope", "--seed", 2**63): lambda: tape_arith.train("rope", seed=2**63),
        ("generate", "--count", 0): lambda: tape_arith.generate(count=0),
        ("score", run, "--max-digits", 0): lambda: Run(run).score(max_digits=0),
        ("train", run, "--steps", 0): lambda: Run(run).train(0),
        ("study", "errors", run, "--problems", 0): lambda: tape_arith.study(
            "errors", [run], problems=0
        ),
        ("study", "attention", run, "--layer", 0): lambda: tape_arith.study(
            "attention", [run], layer=0
        ),
        ("run", "--pe", "rope", "--slots", 0): lambda: tape_arith.run("rope", slots=0),
        ("heatmap", "--width", 1): lambda: tape_arith.heatmap(width=1),
    }
    for options, call in calls.items():
        with pytest.raises(UsageError) as raised:
            call()
        assert str(raised.value) == refused(*options).replace(f"'{options[-1]}'", str(options[-1]))


@pytest.mark.usefixtures("undrawn")
def test_numbers_of_numpy_are_numbers(here: Path) -> None:
    seed: Any = np.int64(3)
    int32: Any = np.int32(4)
    tiny: dict[str, Any] = {
        key: np.float64(value) if "." in value else np.int64(value) for key, value in TINY.items()
    }
    run = tape_arith.train("rope", preset="mini", seed=seed, **tiny)
    assert run.record().seed == 3 and run.score(max_digits=int32).complete
    assert json.loads(run.record_file.read_text())["config"]["steps"] == int(TINY["steps"])
    (figure,) = tape_arith.run("rope", preset="mini", seeds=range(3, 4), **tiny).files
    assert figure.name == "rope.png"


def test_hooks_on_a_block_of_a_decoder_fire_once_a_forward(trained: Path) -> None:
    decoder = Run(trained / "runs/mini/rope/seed-0").decoder()
    shapes: list[tuple[int, ...]] = []
    decoder.blocks[0].register_forward_hook(lambda block, inputs, out: shapes.append(out[0].shape))
    tokens = torch.tensor([[4, 5, 6]])
    for count in (1, 2):
        decoder(Sequences(tokens, final_length=torch.tensor([5]), key=torch.tensor([0])))
        assert len(shapes) == count
    assert shapes[0] == (1, 3, decoder.config.hidden_size)


def test_a_frame_holds_a_row_for_each_cell(trained: Path) -> None:
    frame = tape_arith.load_grids(trained / "runs", ["fire", "tape+yarn"])
    assert frame.groupby(["pe", "seed"]).size().tolist() == [9] * 4
    for (pe, seed), cells in frame.groupby(["pe", "seed"]):
        name = str(pe)
        file = "grid+yarn.json" if "+" in name else "grid.json"
        grid = Grid.load(trained / f"runs/mini/{name.split('+')[0]}/seed-{seed}/{file}")
        assert cells.exact_match.mean() == pytest.approx(grid.mean("all_cells"))
        inside = cells[cells.in_distribution]
        assert inside.exact_match.mean() == pytest.approx(grid.mean("in_distribution"))
        row = cells[(cells.digits_a == 3) & (cells.digits_b == 1)].iloc[0]
        assert (row.exact, row.total) == (grid.exact[2, 0], grid.total[2, 0])


def test_a_leaderboard_has_the_columns_of_csv(trained: Path) -> None:
    frame = tape_arith.leaderboard(trained / "runs")
    text = done("leaderboard", "--runs", trained / "runs", "--format", "csv").out
    table = pd.read_csv(io.StringIO(text))
    assert list(frame.columns) == list(table.columns)
    shown = ["encoding", "out_of_distribution"]
    pd.testing.assert_frame_equal(frame[shown], table[shown], check_dtype=False)


def test_a_heatmap_shows_the_grids_that_are_given(trained: Path) -> None:
    looks: dict[str, Any] = {"labels": {"fire": "Ours"}, "width": 5.5}
    by_name = tape_arith.heatmap("fire,rope", runs=trained / "runs", **looks)
    assert by_name.get_size_inches()[0] == 5.5 and by_name.axes[0].get_title(loc="left") == "Ours"
    runs = [
        run for run in tape_arith.find_runs(trained / "runs") if run.record().encoding != "tape"
    ]
    by_grid = tape_arith.heatmap([run.score() for run in runs], **looks)
    assert _panels(by_name) == _panels(by_grid)
    texts = [text.get_text() for text in tape_arith.heatmap(runs=trained / "runs", seed=0).texts]
    assert any("order: " in text for text in texts)
    image = by_name._repr_png_()  # type: ignore[attr-defined]
    assert image.startswith(b"\x89PNG") and len(image) > 10_000


def _panels(figure: Any) -> dict[str, list[float]]:
    """Return the cells of each panel by its title."""
    return {
        ax.get_title(loc="left"): np.asarray(ax.collections[0].get_array()).ravel().tolist()
        for ax in figure.axes[:2]
    }


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="trian"):
        tape_arith.trian  # type: ignore[attr-defined]  # noqa: B018


def test_all_that_is_listed_is_there() -> None:
    assert sorted(tape_arith.__all__) == sorted(tape_arith._PLACES)
    assert all(getattr(tape_arith, name) is not None for name in tape_arith.__all__)


def test_the_stop_button_saves_what_is_trained(here: Path) -> None:
    folder = Path("runs/mini/rope/seed-0")

    def stop() -> None:
        while not (folder / "metrics.jsonl").exists():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt, match="continues"):
        tape_arith.train("rope", preset="mini", **TINY | {"steps": "100000"})
    [run] = tape_arith.find_runs()
    assert not run.state().trained and (folder / "weights" / "latest.safetensors").exists()


@pytest.mark.slow
def test_the_cells_of_the_notebook_run(here: Path) -> None:
    (here / "mini").symlink_to(RESULTS / "mini")
    names: dict[str, Any] = {}
    shown = []
    for cell in json.loads((RESULTS / "tour.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), names)  # noqa: S102 (our own cells)
            if isinstance(last, ast.Expr):
                expression = compile(ast.Expression(last.value), "cell", "eval")
                shown.append(eval(expression, names))  # noqa: S307
    plt.close("all")  # pandas leaves its figure open
    kinds = [type(value).__name__ for value in shown]
    assert kinds == ["Run", "DataFrame", "Answer", "Axes", "DataFrame", "DataFrame", "Page"]
    means = shown[4][False]
    assert means["rope"] == pytest.approx(0.022, abs=0.002)  # as results/mini/leaderboard.md


@pytest.mark.slow
def test_the_examples_of_the_api_run(here: Path) -> None:
    (here / "results").symlink_to(RESULTS)
    names: dict[str, Any] = {}
    lines = re.findall(r"^    (?=\S)(.*)$", str(api.__doc__), re.MULTILINE)
    for line in lines:
        exec(line, names)  # noqa: S102 (our own lines)
    assert len(lines) > 5 and names["run"].state().scored
