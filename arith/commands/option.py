"""Declare each option that several commands take once, so that its name has one meaning.

--pe       encodings, or the one to train       --runs    the folder of runs
--preset   a recipe, --set changes it           --out     the file or folder that a command makes
--seed(s)  seeds of runs                        --figure  a file to draw
--backend  how attention is computed            --data    a dataset (--datasets: a folder of them)
--json     print JSON                           --format  the form of what is made
"""

from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.documents import MOST_INTEGER
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.registry.locate import known_names


def complete_encoding(incomplete: str) -> list[str]:
    """Complete the last name: an encoding, or after a plus an extrapolation too."""
    cut = max(map(incomplete.rfind, ",+")) + 1
    head, last = incomplete[:cut], incomplete[cut:]
    known = known_names("encoding")
    if head.endswith("+"):
        known += known_names("extrapolation")
    return [head + name for name in known if name.startswith(last)]


def complete_from(module: str, function: str, *arguments: str) -> Callable[[str], list[str]]:
    """Return a completion of the names that `function` in `arith.module` returns.

    The module is imported only when a shell completes a name.
    """

    def complete(incomplete: str) -> list[str]:
        names = getattr(import_module(f"tape_arith.arith.{module}"), function)(*arguments)
        return [name for name in names if name.startswith(incomplete)]

    return complete


def complete_task(incomplete: str) -> list[str]:
    """Complete a task, or after a colon an option of it."""
    from tape_arith.arith.registry.locate import known_names, locate

    name, *options = incomplete.split(":")
    if not options:
        return [task for task in known_names("task") if task.startswith(name)]
    try:
        declared = locate("task", name).declaration().options
    except UsageError:
        return []
    *earlier, last = options
    used = {option.partition("=")[0] for option in earlier}
    endings = [
        f"{key}={value}"
        for key, option in declared.items()
        if key not in used
        for value in option.choices or [""]
    ]
    head = ":".join([name, *earlier])
    return [f"{head}:{ending}" for ending in endings if ending.startswith(last)]


complete_sweep = complete_from("sweeps.sweep", "sweep_names")


def _known_preset(name: str | None) -> str | None:
    from tape_arith.arith.runs.preset import known_preset

    return known_preset(name)


def _known_split(name: str) -> str:
    from tape_arith.arith.data.bucket import known_split

    return known_split(name)


def _known_backend(name: str) -> str:
    if name != "auto":  # the default: nothing to import
        from tape_arith.models.backends import known_backend

        known_backend(name)
    return name


def _complete_backend(incomplete: str) -> list[str]:
    from tape_arith.models.backends import BACKENDS

    return [name for name in ("auto", *BACKENDS) if name.startswith(incomplete)]


def _complete_setting(incomplete: str) -> list[str]:
    from dataclasses import fields

    from tape_arith.arith.runs.config import Config

    names = [f"{field.name}=" for field in fields(Config)]
    return [name for name in names if name.startswith(incomplete)]


# ---- runs: which, and how they are trained --------------------------------------------------

RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, as `tape-arith list` shows it.")
]
Encodings = Annotated[
    str,
    typer.Option(
        "--pe",
        "--compare",
        metavar="NAMES",
        help="Encodings, as in fire,tape+yarn, or all.",
        autocompletion=complete_encoding,
    ),
]
EncodingList = Annotated[
    str,
    typer.Option(
        "--pe", metavar="NAMES", help="Encodings, with commas.", autocompletion=complete_encoding
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="A preset of `tape-arith list`, or PRESET@TASK.",
        callback=_known_preset,
        autocompletion=complete_from("runs.preset", "presets"),
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of the preset.",
        autocompletion=_complete_setting,
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="NAME[:OPTION=VALUE...]",
        help="A task of `tape-arith list`, or FILE.py:CLASS.",
        autocompletion=complete_task,
    ),
]
Seed = Annotated[
    int | None, typer.Option(min=0, max=MOST_INTEGER, help="Of weights, problems and positions.")
]
Runs = Annotated[Path, typer.Option("--runs", file_okay=False, help="The folder of runs.")]
MadeRuns = Annotated[
    Path, typer.Option("--runs", "--out", file_okay=False, help="The folder of runs.")
]
Datasets = Annotated[Path, typer.Option("--datasets", help="The folder of datasets.")]
Count = Annotated[
    int | None,
    typer.Option(min=1, max=10**12, help="Problems to generate (default: the preset's)."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over what is there already.")]
NoCurves = Annotated[
    bool, typer.Option("--no-curves", help="Score no small grid on the way: no learning curves.")
]
Track = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Metrics to tensorboard or wandb (offline) too, in RUN/tracking.",
        autocompletion=complete_from("runs.metrics", "tracker_names"),
    ),
]

# ---- scoring and showing --------------------------------------------------------------------

With = Annotated[
    str | None,
    typer.Option("--with", help="An extrapolation at test time: yarn[:ramp=paper]."),
]
Split = Annotated[
    str,
    typer.Option(
        help="Which problems: evaluation (the usual ones) or carry (long carry chains).",
        callback=_known_split,
    ),
]
MaxDigits = Annotated[
    int | None,
    typer.Option(min=1, help="Problems of up to so many digits (default: those tested)."),
]
Problems = Annotated[
    int | None, typer.Option(min=1, help="Measure so many problems of the evaluation set.")
]
Costs = Annotated[
    bool, typer.Option("--costs", help="With parameters and FLOPs at the preset's size.")
]
Figure = Annotated[
    Path | None,
    typer.Option("--figure", metavar="FILE", help="Draw into this .png, .svg or .pdf file."),
]
MadeFigure = Annotated[
    Path | None,
    typer.Option(
        "--figure",
        "--out",
        metavar="FILE",
        help="Draw into this .png, .svg or .pdf file.",
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=TEXT",
        help='A name to print, as in mine.py:Mine="Ours"; again for another.',
        autocompletion=complete_encoding,
    ),
]
Width = Annotated[
    float | None,
    typer.Option(min=2, max=20, help="Inches, as of a column: 3.3, 5.5 or 7.0."),
]
NoCaption = Annotated[
    bool, typer.Option("--no-caption", help="Write no words below the legend: a paper has its own.")
]
Columns = Annotated[
    int | None, typer.Option(min=1, max=20, help="Panels beside each other (default: what fits).")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON on stdout.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="As CSV on stdout.")]


def chosen_format(
    format: str | None, known: Collection[str], *, as_csv: bool, as_json: bool
) -> str | None:
    """Return the format that the options ask for, if any. Raises UsageError for two or unknown."""
    requested = {format, *["csv"] * as_csv, *["json"] * as_json} - {None}
    if len(requested) > 1:
        raise UsageError("choose one of --format, --csv and --json")
    chosen = next(iter(requested), None)
    if chosen is not None and chosen not in known:
        raise unknown("format", chosen, known)
    return chosen


# ---- the machine ----------------------------------------------------------------------------

TimeLimit = Annotated[
    str | None, typer.Option(help="Stop in good order after 90s, 25m or 3h (exit code 3).")
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, max=1024, help="CPU threads in all (default: all cores, or OMP_NUM_THREADS)."
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        help="What computes attention: auto, flash-attn, sdpa, eager or fused. One that "
        "cannot do what the encoding needs here is refused, never replaced.",
        callback=_known_backend,
        autocompletion=_complete_backend,
    ),
]
Compiled = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        help="Compile the decoder's blocks (default: on a GPU; on a CPU in trainings whose preset "
        "says compile = true). On a CPU it takes a C++ compiler, and a minute or two the first "
        "time, for steps that take 5 to 40 % less.",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Jobs at the same time (default: one for each GPU, or for each core if their size "
        "suits a core; on other engines as many as they take); more than one run in subprocesses.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME[:KEY=VALUE...]",
        help="Where jobs run: local, ray or slurm, as in slurm:partition=gpu:throttle=8.",
        autocompletion=complete_from("registry.locate", "known_names", "engine"),
    ),
]
