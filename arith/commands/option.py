"""Options that several commands take, and how they are completed."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.models.locate import known_names
from tape_arith.models.names import BACKENDS, known_backend


def complete_encoding(incomplete: str) -> list[str]:
    """Complete another encoding after a comma, and what can be joined to one after a plus."""
    cut = max(map(incomplete.rfind, ",+")) + 1
    head, last = incomplete[:cut], incomplete[cut:]
    known = known_names("encoding")
    if head.endswith("+"):
        known += known_names("extrapolation")
    return [head + name for name in known if name.startswith(last)]


def complete_from(module: str, function: str) -> Callable[[str], list[str]]:
    """Complete the names that a function of a module of `arith` returns, imported when needed."""

    def complete(incomplete: str) -> list[str]:
        names = getattr(import_module(f"tape_arith.arith.{module}"), function)()
        return [name for name in names if name.startswith(incomplete)]

    return complete


complete_sweep = complete_from("sweeps.sweep", "sweep_names")


def _complete_attention(incomplete: str) -> list[str]:
    return [name for name in ("auto", *BACKENDS) if name.startswith(incomplete)]


Preset = Annotated[
    str | None,
    typer.Option(
        help="A preset of `tape-arith list`.",
        autocompletion=complete_from("runs.record", "presets"),
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the preset."),
]
Split = Annotated[
    str, typer.Option(help="Which problems: evaluation (the usual ones) or carry (hard sums).")
]
MaxDigits = Annotated[
    int | None,
    typer.Option(min=1, help="Operands up to so many digits (default: the preset's tested ones)."),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="A task of `tape-arith list`.",
        autocompletion=complete_from("tasks.task", "tasks"),
    ),
]
Runs = Annotated[Path, typer.Option(file_okay=False, help="The folder of runs.")]
TimeLimit = Annotated[
    str | None, typer.Option(help="Stop in good order after 90s, 25m or 3h (exit code 3).")
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="CPU threads (default: all cores, or OMP_NUM_THREADS)."),
]
Attention = Annotated[
    str,
    typer.Option(
        help="What computes attention: auto, flash-attn, sdpa, eager or fused. One that "
        "cannot do what the encoding needs here is refused, never replaced.",
        callback=known_backend,
        autocompletion=_complete_attention,
    ),
]
Compiled = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        help="Compile the decoder's blocks (default: on a GPU). On a CPU it takes up to a minute "
        "the first time, and a C++ compiler, for steps that take 5 to 40 % less.",
    ),
]
LeadingBos = Annotated[
    int, typer.Option(min=0, help="Train with 0 to so many [BOS] in front of each problem.")
]
Track = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Metrics to tensorboard or wandb (offline) too, in RUN/tracking.",
        autocompletion=complete_from("runs.metrics", "tracker_names"),
    ),
]
NoCurves = Annotated[
    bool, typer.Option("--no-curves", help="Score no small grid on the way: no learning curves.")
]
Slots = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Jobs at the same time (default: the number of GPUs, or 1; elsewhere all there are); "
        "more than one run in subprocesses.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME[:KEY=VALUE...]",
        help="Where jobs run: local, ray or slurm, as in slurm:partition=gpu:throttle=8.",
        autocompletion=complete_from("sweeps.engines", "engine_names"),
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show jobs, cost and estimated time; write nothing.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over what is there already.")]
Compared = Annotated[
    str,
    typer.Option(
        "--compare",
        metavar="NAMES",
        help="Encodings, as in fire,tape+yarn, or all.",
        autocompletion=complete_encoding,
    ),
]
