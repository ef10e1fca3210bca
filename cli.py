"""The commands of tape-arith: parse, call, print. No logic.

What is slow to import (torch, pandas) is imported inside the commands that need it.
"""

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arith.errors import Failure, UsageError
from models import catalog

if TYPE_CHECKING:
    from arith.scoring.grid import Grid
    from arith.suite.stopping import Stopper
    from arith.training.config import Config

app = typer.Typer(
    pretty_exceptions_enable=False,
    help="Length generalization in addition: generate problems, train decoders that differ only "
    "in their positional encoding, score exact match, draw comparison heatmaps.",
)

EXIT_FAILED, EXIT_USAGE, EXIT_PARTLY, EXIT_INTERRUPTED = 1, 2, 3, 130


def _complete_encoding(incomplete: str) -> list[str]:
    """After a comma another encoding, after a plus what can be joined to one."""
    cut = max(map(incomplete.rfind, ",+")) + 1
    head, last = incomplete[:cut], incomplete[cut:]
    known = catalog.names("encoding")
    if head.endswith("+"):
        known += catalog.names("extrapolation")
    return [head + name for name in known if name.startswith(last)]


def _complete_preset(incomplete: str) -> list[str]:
    from arith.suite.presets import presets

    return [name for name in presets() if name.startswith(incomplete)]


def _complete_stage(incomplete: str) -> list[str]:
    from arith.bench.stages import ALL, stages

    return [name for name in [*stages(), ALL] if name.startswith(incomplete)]


def _complete_attention(incomplete: str) -> list[str]:
    return [n for n in ("auto", *catalog.backends()) if n.startswith(incomplete)]


Preset = Annotated[
    str | None,
    typer.Option(help="A preset of `tape-arith list`.", autocompletion=_complete_preset),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the preset."),
]
TaskName = Annotated[str | None, typer.Option("--task", help="A task of `tape-arith list`.")]
Runs = Annotated[Path, typer.Option(help="The folder of runs.")]
Seed = Annotated[int, typer.Option(min=0, help="Initialization, training problems, positions.")]
TimeLimit = Annotated[
    str | None, typer.Option(help="Stop in good order after 90s, 25m or 3h (exit code 3).")
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads (default: all cores, or OMP_NUM_THREADS).")
]
Attention = Annotated[
    str,
    typer.Option(
        help="What computes attention: auto, flash-attn, sdpa, flex, eager or fused. One that "
        "cannot do what the encoding needs here is refused, never replaced.",
        autocompletion=_complete_attention,
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over what is there already.")]
Compared = Annotated[
    str,
    typer.Option(
        "--compare",
        metavar="NAMES",
        help="Encodings, as in fire,tape+yarn.",
        autocompletion=_complete_encoding,
    ),
]


@app.command(epilog="Example: tape-arith generate --preset mini --workers 2")
def generate(
    preset: Preset = "paper-40",
    out: Annotated[
        Path | None, typer.Option(help="The folder (default: data/addition-bucket-40).")
    ] = None,
    count: Annotated[int | None, typer.Option(help="Problems (default: the preset's).")] = None,
    seed: Seed = 0,
    workers: Annotated[int, typer.Option(help="Processes (default: all cores).")] = 0,
    format: Annotated[str, typer.Option(help="tokens, text or parquet")] = "tokens",
    task: TaskName = None,
    settings: Settings = None,
    verify: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Check every hash of a dataset instead.")
    ] = None,
    fresh: Fresh = False,
) -> None:
    """Write training problems, the same bytes whatever the number of workers."""
    from arith.suite import problems

    if verify is not None:
        if out or count is not None or seed or workers or task or settings or fresh:
            raise UsageError("--verify DIR only checks what is there: give it no other option")
        print(problems.verified(verify))
        return
    _, config = _config(preset, settings, task)
    print(
        problems.write(
            config, seed, out=out, count=count, workers=workers, form=format, fresh=fresh
        )
    )


@app.command(epilog="Example: tape-arith train --pe tape --preset mini --seed 1")
def train(
    run: Annotated[
        Path | None, typer.Argument(help="A run's folder to go on with, instead of --pe.")
    ] = None,
    pe: Annotated[
        str | None,
        typer.Option(
            help="The positional encoding: name[:option=value...][+name].",
            autocompletion=_complete_encoding,
        ),
    ] = None,
    preset: Preset = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Initialization, training problems, positions (default: 0)."),
    ] = None,
    settings: Settings = None,
    task: TaskName = None,
    steps: Annotated[
        int | None, typer.Option(help="With RUN: extend its budget to so many steps.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A generated dataset (default: made as needed).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of runs (default: runs).")] = None,
    no_score: Annotated[bool, typer.Option("--no-score", help="Leave the grid out.")] = False,
    time_limit: TimeLimit = None,
    threads: Threads = None,
    attention: Attention = "auto",
    fresh: Fresh = False,
) -> None:
    """Train one encoding, or go on with a run, then score its grid."""
    if (run is None) == (pe is None):
        raise UsageError("name an encoding (--pe tape) or the folder of a run to go on with")
    if run is not None and (preset or settings or task or fresh or out or seed is not None):
        raise UsageError("a run keeps its settings: only --steps, --data and limits go with RUN")
    if steps is not None and run is None:
        raise UsageError("--steps extends a run that is there; for a new one use --set steps=N")
    names = catalog.parse_list(pe) if pe is not None else []
    if run is None and not names:
        raise UsageError("--pe is empty: name an encoding, as in --pe tape")
    if len(names) > 1:
        raise UsageError(f"train takes one encoding: `tape-arith run --pe {pe}` takes several")

    stopper = _stopper(time_limit)
    _threads(threads)
    from arith.suite import runs as suite
    from arith.suite.folders import existing_run

    with stopper.listening():
        if run is not None:
            folder = existing_run(run)
            if steps is not None:
                suite.extend_run(folder, steps, data=data)
            suite.continue_run(folder, data=data, attention=attention, should_stop=stopper)
            extrapolation = None
        else:
            extrapolation = names[0].extrapolation
            name, config = _config(preset, settings, task)
            folder = suite.train_run(
                out or Path("runs"),
                name,
                config,
                names[0],
                seed or 0,
                data=data,
                attention=attention,
                fresh=fresh,
                should_stop=stopper,
            )
        done = folder.finished()
        if done and not no_score:
            grid = suite.score_run(folder, extrapolation, attention=attention, should_stop=stopper)
            done = grid.complete
            _report(grid, as_json=False)
    print(folder.path)
    if not done:
        _leave(stopper)


@app.command(epilog="Example: tape-arith score runs/mini/rope/seed-0 --with yarn")
def score(
    run: Annotated[Path, typer.Argument(help="A run's folder, as `tape-arith list` shows it.")],
    with_: Annotated[
        str | None, typer.Option("--with", help="An extrapolation at test time: yarn[:ramp=paper].")
    ] = None,
    max_digits: Annotated[
        int | None, typer.Option(min=1, help="Operands up to so many digits.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The grid on stdout.")] = False,
    time_limit: TimeLimit = None,
    threads: Threads = None,
    attention: Attention = "auto",
    fresh: Fresh = False,
) -> None:
    """Score a run on the grid of operand lengths, by one teacher-forced pass."""
    extrapolation = catalog.parse_extrapolation(with_) if with_ else None
    stopper = _stopper(time_limit)
    _threads(threads)
    from arith.suite import runs as suite
    from arith.suite.folders import existing_run

    with stopper.listening():
        grid = suite.score_run(
            existing_run(run),
            extrapolation,
            max_digits=max_digits,
            attention=attention,
            fresh=fresh,
            should_stop=stopper,
        )
    _report(grid, as_json)
    if not grid.complete:
        _leave(stopper)


@app.command(
    "run", epilog="Example: tape-arith run --pe rope,fire,tape --seeds 0,1,2 --preset mini"
)
def run_command(
    pe: Annotated[
        str, typer.Option(help="Encodings, with commas.", autocompletion=_complete_encoding)
    ],
    seeds: Annotated[str, typer.Option(help="Seeds, with commas.")] = "0",
    preset: Preset = None,
    settings: Settings = None,
    task: TaskName = None,
    data: Annotated[Path, typer.Option(help="The folder of datasets.")] = Path("data"),
    out: Runs = Path("runs"),
    time_limit: TimeLimit = None,
    threads: Threads = None,
    attention: Attention = "auto",
    workers: Annotated[int, typer.Option(help="Processes that generate (default: all cores).")] = 0,
) -> None:
    """Generate, train, score and draw; what is done already is never done again."""
    names = catalog.parse_list(pe)
    numbers = _whole_numbers("--seeds", seeds)
    stopper = _stopper(time_limit)
    _threads(threads)
    name, config = _config(preset, settings, task)
    from arith.suite import pipeline

    with stopper.listening():
        done = pipeline.run_all(
            names,
            numbers,
            name,
            config,
            runs=out,
            data=data,
            workers=workers,
            attention=attention,
            should_stop=stopper,
        )
    if not done:
        _leave(stopper)


@app.command(epilog="Example: tape-arith heatmap --compare rope,rand-rope,nope,fire,tape")
def heatmap(
    compare: Compared,
    preset: Preset = None,
    seed: Annotated[int | None, typer.Option(help="One seed only (default: their mean).")] = None,
    runs: Runs = Path("runs"),
    out: Annotated[
        Path | None, typer.Option(help="A .png, .svg or .pdf file (default: beside the runs).")
    ] = None,
) -> None:
    """Draw exact match over operand lengths, a panel an encoding."""
    from arith.figures.heatmap import draw
    from arith.suite.compare import figure_path, panels
    from arith.suite.presets import known

    chosen = panels(runs, catalog.parse_list(compare), known(preset))
    path = out or figure_path(runs, chosen)
    draw(chosen, path, seed=seed)
    print(path)


@app.command(epilog="Example: tape-arith table --compare rope,fire,tape --format csv")
def table(
    compare: Annotated[
        str, typer.Option(metavar="NAMES", help="Encodings (default: all that are scored).")
    ] = "",
    preset: Preset = None,
    runs: Runs = Path("runs"),
    format: Annotated[str, typer.Option(help="markdown, csv or json")] = "markdown",
) -> None:
    """Print the means of scored runs with their intervals."""
    from arith.figures.table import FORMATS, rows
    from arith.suite.compare import all_panels, panels

    if format not in FORMATS:
        raise UsageError(f"unknown format '{format}'. Known: {', '.join(FORMATS)}")
    names = catalog.parse_list(compare)
    from arith.suite.presets import known

    preset = known(preset)
    chosen = panels(runs, names, preset) if names else all_panels(runs, preset)
    print(FORMATS[format](rows(chosen)), end="")


@app.command("list", epilog="Example: tape-arith list --json")
def list_command(
    runs: Runs = Path("runs"),
    costs: Annotated[
        bool, typer.Option("--costs", help="Parameters and extra FLOPs at the paper's size too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show encodings with their options, presets, tasks and runs."""
    from arith.suite.listing import as_text, everything

    content = everything(runs, costs=costs)
    print(json.dumps(content, indent=1) if as_json else as_text(content))


@app.command(epilog="Example: tape-arith bench train --pe rope,tape --lengths 20,40")
def bench(
    stages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STAGE]...",
            help="generate, train, score, ...: a wrong name lists all of them (all, if none).",
            autocompletion=_complete_stage,
        ),
    ] = None,
    pe: Annotated[
        str,
        typer.Option(help="Encodings, with commas.", autocompletion=_complete_encoding),
    ] = "",
    preset: Preset = None,
    settings: Settings = None,
    lengths: Annotated[
        str, typer.Option(help="With commas: digits of the longest operand; attention: tokens.")
    ] = "",
    run: Annotated[
        Path | None, typer.Option(help="A run to score; without, random weights.")
    ] = None,
    attention: Annotated[
        str, typer.Option(help="The backend of attention: auto, or its name.")
    ] = "auto",
    count: Annotated[int | None, typer.Option(min=1, help="Problems to generate.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where to write, if not to a temporary folder.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Keep the figures as JSON.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw scaling: .png, .svg or .pdf.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="About how long each stage may take.")
    ] = 60.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Every line at its smallest: a check, no figures.")
    ] = False,
    threads: Threads = None,
) -> None:
    """Measure this machine's limits and each stage beside them."""
    names = catalog.parse_list(pe)
    sizes = _whole_numbers("--lengths", lengths) if lengths else []
    from arith.bench.stages import ALL, chosen

    wanted = chosen(stages or [ALL])
    _threads(threads)
    from arith.bench.measure import Options
    from arith.bench.running import run as run_stages
    from arith.suite.presets import pairs

    options = Options(
        encodings=tuple(names),
        preset=preset,
        settings=pairs(settings or []),
        lengths=tuple(sizes),
        directory=directory,
        count=count,
        run=run,
        plot=plot,
        attention=attention,
        seconds=seconds,
        quick=quick,
        threads=threads,
    )
    if not run_stages(wanted, options, file):
        raise typer.Exit(EXIT_PARTLY)


def _config(
    preset: str | None, settings: list[str] | None, task: str | None
) -> "tuple[str, Config]":
    """The preset's name and its settings with those of the command line."""
    from arith.suite.presets import load_preset, pairs

    if preset is None:
        from arith.suite.estimate import default_preset

        preset, why = default_preset()
        print(why, file=sys.stderr)
    chosen = pairs(settings or []) | ({"task": task} if task else {})
    return preset, load_preset(preset).with_settings(chosen)


def _report(grid: "Grid", as_json: bool) -> None:
    from arith.suite.compare import summary

    print(json.dumps(grid.content()) if as_json else summary(grid))


def _whole_numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"{option} takes whole numbers with commas, as in 0,1,2, not '{text}'")
    return list(dict.fromkeys(map(int, parts)))


def _stopper(time_limit: str | None) -> "Stopper":
    from arith.suite.stopping import Stopper, seconds

    try:
        return Stopper(None if time_limit is None else seconds(time_limit))
    except ValueError:
        raise UsageError(f"--time-limit takes 90s, 25m or 3h, not '{time_limit}'") from None


def _threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _leave(stopper: "Stopper") -> None:
    """Exit with what stopped us, if anything did."""
    if stopper.exit_code:
        print("stopped in good order: the same command goes on from here", file=sys.stderr)
        raise typer.Exit(stopper.exit_code)


class _Interrupted(BaseException):
    """Ctrl-C where no command takes it itself; not KeyboardInterrupt, whose exit code would be
    1 in typer's hands."""


def _interrupt(*_: object) -> None:
    raise _Interrupted


def _one_line(error: Exception) -> str:
    """typer's own errors know more than their text: which option it was."""
    message = getattr(error, "format_message", lambda: str(error))()
    return " ".join(message.split())


def main() -> None:
    """The console script: errors for people become one line and an exit code."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except (UsageError, typer.TyperException) as error:
        print(f"tape-arith: {_one_line(error)}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except (Failure, OSError) as error:
        print(f"tape-arith: {_one_line(error)}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
    except _Interrupted:
        print("tape-arith: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
