"""From nothing to a heatmap: generate, train, score and draw, never a thing twice."""

from collections.abc import Callable, Sequence
from pathlib import Path

from arith.errors import UsageError
from arith.figures.heatmap import draw
from arith.figures.table import rows, to_csv, to_markdown
from arith.files import write_text
from arith.suite.building import check, training_bucket
from arith.suite.compare import figure_path, summary
from arith.suite.folders import find_grids, run_folder
from arith.suite.problems import dataset_folder, generate_dataset
from arith.suite.progress import say
from arith.suite.runs import score_run, train_run
from arith.suite.stopping import Stopped
from arith.training.config import Config
from models.catalog import Name


def run_all(
    names: Sequence[Name],
    seeds: Sequence[int],
    preset: str,
    config: Config,
    *,
    runs: Path,
    data: Path,
    workers: int,
    attention: str = "auto",
    should_stop: Callable[[], bool],
) -> bool:
    """All encodings of the first seed, then of the next: what is there when the time is up is a
    whole comparison. True when everything is done."""
    if not names or not seeds:
        raise UsageError("nothing to run: name encodings with --pe and seeds with --seeds")
    for name in names:
        check(config, name, attention)
    done = True
    for seed in seeds:
        if should_stop():
            done = False
            break
        for name in names:
            done = done and one_run(
                name,
                seed,
                preset,
                config,
                runs=runs,
                data=dataset_folder(data, config, seed),
                workers=workers,
                attention=attention,
                should_stop=should_stop,
            )
    draw_comparison(names, runs, preset)
    return done


def one_run(
    name: Name,
    seed: int,
    preset: str,
    config: Config,
    *,
    runs: Path,
    data: Path,
    workers: int,
    attention: str = "auto",
    should_stop: Callable[[], bool],
) -> bool:
    """Generate, train and score one encoding; False where it was stopped before its end."""
    if should_stop():
        return False
    trained = run_folder(runs, preset, name.encoding, seed).finished()
    if not trained:
        bucket = training_bucket(config, seed)
        try:
            seconds = generate_dataset(
                data, bucket, config.num_problems, workers=workers, should_stop=should_stop
            )
        except Stopped:
            return False
    folder = train_run(
        runs,
        preset,
        config,
        name,
        seed,
        data=None if trained else data,
        attention=attention,
        should_stop=should_stop,
    )
    if not trained and "generate" not in folder.timings():
        folder.write_timing("generate", seconds)
    if not folder.finished() or should_stop():
        return False
    grid = score_run(folder, name.extrapolation, attention=attention, should_stop=should_stop)
    say(summary(grid))
    return grid.complete


def draw_comparison(names: Sequence[Name], runs: Path, preset: str) -> None:
    """The heatmap and the table of what is scored so far, beside the runs of the preset."""
    grids = find_grids(runs, preset, names)
    scored = [[g for g in grids if g.name == str(name)] for name in names]
    panels = [panel for panel in scored if panel]
    if not panels:
        say("nothing is scored yet, so nothing is drawn")
        return
    figure = figure_path(runs, panels)
    draw(panels, figure)
    write_text(runs / preset / "table.md", to_markdown(rows(panels)))
    write_text(runs / preset / "table.csv", to_csv(rows(panels)))
    print(figure)
