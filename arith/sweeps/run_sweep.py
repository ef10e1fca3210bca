"""Run the jobs of a sweep or of `run`, and write what came of them: tables and figures."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from tape_arith.arith.compare.order import figure_path
from tape_arith.arith.compare.panels import split_complete
from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.figures import heatmap
from tape_arith.arith.figures.tables import Row, ranked, rows, to_csv, to_markdown
from tape_arith.arith.files import write_text
from tape_arith.arith.lock import lock_folder
from tape_arith.arith.runs.build import check_trainable
from tape_arith.arith.runs.folder import find_grids
from tape_arith.arith.scoring.grid import DEFAULT_SET, EvaluationSet, Grid
from tape_arith.arith.studies import ablations
from tape_arith.arith.sweeps.engines import Engine
from tape_arith.arith.sweeps.engines.worker import JobState, read_state, state_file, write_state
from tape_arith.arith.sweeps.jobs import Job, JobEnd, Outcome, log_file, run_jobs
from tape_arith.arith.sweeps.sweep import Run, Sweep, sweep_copy, sweep_folder
from tape_arith.arith.terminal import Stopper, say
from tape_arith.models.names import AttentionChoice, Name


def check_runs(runs: Sequence[Run], compute: AttentionChoice) -> None:
    """Raise UsageError if a run could not be trained and scored with attention by `compute`."""
    for config, name in dict.fromkeys((run.config, run.name) for run in runs):
        check_trainable(config, name, compute)


def run_sweep(
    sweep: Sweep, out: Path, jobs: Sequence[Job], engine: Engine, stopper: Stopper
) -> Outcome:
    """Run the jobs that are not done, leaving what `status` reads in the sweep's folder.

    Raises Busy if another process runs a sweep of this name.
    """
    folder = sweep_folder(sweep, out)

    def failed(end: JobEnd) -> None:
        state = JobState(state="failed", code=end.code, reason=end.reason)
        write_state(log_file(folder, end.job.id), state)

    with lock_folder(folder, "sweep"):
        for log in (log_file(folder, job.id) for job in jobs):
            if (state := read_state(log)) and state.state == "failed":
                state_file(log).unlink()  # it waits again
        write_text(sweep_copy(folder), sweep.text)
        return run_jobs(jobs, engine, stopper, failed)


# ---- the comparison of `run` -------------------------------------------------------------------


def draw_comparison(runs: Sequence[Run]) -> Path | None:
    """Draw the heatmap and write the tables of the encodings of `runs`; return the figure's path.

    Takes every seed that is completely scored. Returns None if nothing is.
    """
    names = list(dict.fromkeys(run.name for run in runs))
    grids = find_grids(runs[0].root, runs[0].preset, names)
    alike = [grid for grid in grids if _has_budget(grid, runs[0])]
    panels = _panels(names, split_complete(runs[0].root, alike, DEFAULT_SET)[0])
    left_out = [f"{g.name} seed {g.seed}" for g in grids if not _has_budget(g, runs[0])]
    if left_out:
        say(f"note: left out, trained with other settings or steps: {', '.join(left_out)}")
    if not panels:
        say("nothing is scored yet, so nothing is drawn")
        return None
    figure = figure_path(runs[0].root, panels)
    heatmap.draw(panels, figure)
    _write(figure.parent, {f"table.{end}": text(rows(panels)) for end, text in _FORMATS.items()})
    return figure


def _has_budget(grid: Grid, run: Run) -> bool:
    budget = (grid.budget.get("steps"), grid.budget.get("config_sha256"))
    return budget == (run.config.steps, run.config.sha256)


def _panels(names: Sequence[Name], grids: Sequence[Grid]) -> list[list[Grid]]:
    """Return the grids of each encoding that has any, in the order of `names`."""
    panels = [[grid for grid in grids if grid.name == str(name)] for name in names]
    return [panel for panel in panels if panel]


# ---- the tables of a sweep ---------------------------------------------------------------------

_FORMATS = {"md": to_markdown, "csv": to_csv}


def write_tables(sweep: Sweep, out: Path) -> list[Path]:
    """Write a table of each split, and of ablations, of what is scored; return the paths.

    Removes stale files of an earlier sweep of the same name, and says so.
    """
    folder = sweep_folder(sweep, out)
    texts: dict[str, str] = {}
    scored: list[list[Grid]] = []
    for split in sweep.splits:
        stem = "table" if split == EVALUATION else f"table@{split}"
        table: list[Row] = []
        if sweep.learning_rates:
            table = _tuned_rows(sweep, out, split)
        elif panels := _scored_panels(sweep, out, EvaluationSet(split)):
            table = rows(panels)
            if split == EVALUATION and _is_family(sweep):
                scored = panels
        if table:
            texts |= {f"{stem}.{end}": text(table) for end, text in _FORMATS.items()}
    families = ablations.families(scored) if scored else []
    if families:
        formats = ablations.FORMATS.items()
        texts |= {f"ablations.{end}": text(families) for end, text in formats}
    written = _write(folder, texts)
    if families:
        written.append(folder / "ablations.png")
        ablations.draw(families, scored, written[-1])
    earlier = [*folder.glob("table*.*"), *folder.glob("ablations.*")]
    if stale := sorted(file.name for file in set(earlier) - set(written)):
        for name in stale:
            (folder / name).unlink()
        say(f"note: removed {', '.join(stale)} from {folder}: nothing of the sweep is in them")
    return written


def _is_family(sweep: Sweep) -> bool:
    """Return whether most encodings differ only in options from another one of the sweep."""
    counts = Counter(str(name).split(":")[0] for name in sweep.names)
    related = sum(count for count in counts.values() if count > 1)
    return 2 * related > len(sweep.names)


def _scored_panels(
    sweep: Sweep, out: Path, evaluation_set: EvaluationSet, learning_rate: float | None = None
) -> list[list[Grid]]:
    """Return the sweep's complete grids, a panel an encoding in the file's order.

    A tuned sweep has those of one learning rate.
    """
    root = sweep.root(out, learning_rate)
    runs = [run for run in sweep.runs(out) if run.root == root]
    expected = {(str(run.name), run.seed) for run in runs}
    grids = find_grids(root, sweep.preset, sweep.names, evaluation_set)
    of_sweep = [
        grid for grid in grids if (grid.name, grid.seed) in expected and _has_budget(grid, runs[0])
    ]
    return _panels(sweep.names, split_complete(root, of_sweep, evaluation_set)[0])


def choices(
    sweep: Sweep, out: Path, evaluation_set: EvaluationSet = DEFAULT_SET
) -> Iterator[tuple[float, list[Grid]]]:
    """Choose the learning rate of each encoding that is best in distribution, the first of equals.

    Yields it with its grids: nothing out of distribution decides. Skips an encoding unless every
    rate has the same seeds, each with a mean in distribution: that would be another search.
    """
    by_rate = {
        rate: [grid for panel in _scored_panels(sweep, out, evaluation_set, rate) for grid in panel]
        for rate in sweep.learning_rates
    }
    for name in sweep.names:
        panels = {
            rate: [g for g in grids if g.name == str(name) and g.converged is not None]
            for rate, grids in by_rate.items()
        }
        seeds = {tuple(sorted(grid.seed for grid in panel)) for panel in panels.values()}
        if len(seeds) == 1 and seeds != {()}:
            best = max(panels, key=lambda rate: _in_distribution(panels[rate]))
            yield best, panels[best]


def _tuned_rows(sweep: Sweep, out: Path, split: str) -> list[Row]:
    return ranked(
        replace(row, encoding=f"{row.encoding} (learning_rate {rate:g})")
        for rate, panel in choices(sweep, out, EvaluationSet(split))
        for row in rows([panel])
    )


def _in_distribution(panel: Sequence[Grid]) -> float:
    """Return the mean on the standard problems: hard sums never choose."""
    standard = [grid if grid.split == EVALUATION else grid.usual for grid in panel]
    return fmean(grid.mean("in_distribution") or 0.0 for grid in standard if grid is not None)


def _write(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write texts by the names of their files; return the paths."""
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]
