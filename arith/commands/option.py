"""Declare the options that several commands share, each with one meaning, and read their values.

--pe       encodings and models (--model)       --runs    the folder of runs
--preset   a recipe; --set changes it           --out     the file or folder that a command writes
--seed(s)  seeds of runs                        --figure  a file to draw
--backend  how attention is computed            --data    a dataset (--datasets: their folder)
--json     print JSON                           --format  the format of the output
"""

import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.archives import check_writable
from tape_arith.arith.commands import completion
from tape_arith.arith.data.bucket import known_split
from tape_arith.arith.documents import MOST_INTEGER
from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import check_replaceable
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.runs.config import Policy, Precision
from tape_arith.arith.runs.metrics import parse_trackers, tracker_names
from tape_arith.arith.runs.options import Compute, TrainOptions
from tape_arith.arith.runs.preset import known_preset, presets

PANELS = ("What", "How long", "Where", "Machine")
"""The titles under which a command's help lists options; it lists the others after them."""
what, how_long, where, machine = (partial(typer.Option, rich_help_panel=title) for title in PANELS)
"""Declare an option under each title."""
_MOST_NUMBERS = 10_000


def _known_backend(name: str) -> str:
    if name != "auto":  # the default needs no import
        from tape_arith.models.backends import known_backend

        known_backend(name)
    return name


def written_file(path: Path | None) -> Path | None:
    """Return the file that a command will write. Raises Failure if it would replace no file."""
    if path is not None:
        check_replaceable(path)
    return path


def _written_folder(path: Path) -> Path:
    """Return the folder that a command will write. Raises UsageError if it is an archive."""
    check_writable(path)
    return path


# ---- runs: which, and how they are trained --------------------------------------------------

RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, as `tape-arith list` shows it.")
]
_encodings = partial(what, metavar="NAMES", autocompletion=completion.complete_encoding)
Encodings = Annotated[
    list[str],
    _encodings(
        "--pe",
        "--compare",
        "--model",
        help="Encodings and models, such as fire,tape+yarn,gru, or all.",
    ),
]
EncodingList = Annotated[
    list[str], _encodings("--pe", "--model", help="Encodings and models, with commas.")
]
ALL_ENCODINGS, NO_ENCODINGS = ["all"], list[str]()
Preset = Annotated[
    str | None,
    what(
        metavar="PRESET",
        help="A preset of `tape-arith list`, or PRESET@TASK.",
        callback=known_preset,
        autocompletion=completion.complete_among(presets),
    ),
]
Settings = Annotated[
    list[str] | None,
    what(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of the preset; `list PRESET` explains them. Repeatable.",
        autocompletion=completion.complete_setting,
    ),
]
TaskName = Annotated[
    str | None,
    what(
        "--task",
        metavar="TASK",
        help="A task of `tape-arith list`, or FILE.py:CLASS, as name[:option=value...].",
        autocompletion=completion.complete_task,
    ),
]
Seed = Annotated[
    int | None,
    what(metavar="N", min=0, max=MOST_INTEGER, help="Seed of weights, problems, positions."),
]
Runs = Annotated[
    Path, where("--runs", metavar="DIR", help="The folder of runs, or an archive of `pack`.")
]
ComparedRuns = Annotated[
    list[Path],
    where(
        "--runs",
        metavar="DIR",
        help="The folder of runs, or an archive of `pack`; given twice, of two labs, together.",
    ),
]
OWN_RUNS = [Path("runs")]
MadeRuns = Annotated[
    Path,
    where("--runs", "--out", metavar="DIR", help="The folder of runs.", callback=_written_folder),
]
Archive = Annotated[
    Path | None,
    where(
        "--pack",
        metavar="FILE",
        help="After each grid, pack what is scored into this .tgz, without weights.",
        callback=written_file,
    ),
]
Count = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, max=10**12, help="Problems to generate (default: the preset's)."
    ),
]
Fresh = Annotated[bool, how_long("--fresh", help="Start over, and replace what exists.")]
NoCurves = Annotated[
    bool, how_long("--no-curves", help="Do not score the small grid for learning curves.")
]
Track = Annotated[
    str | None,
    where(
        metavar="NAMES",
        help="Also log metrics to tensorboard or wandb (offline), in RUN/tracking.",
        autocompletion=completion.complete_among(tracker_names),
    ),
]

# ---- scoring and showing --------------------------------------------------------------------

With = Annotated[
    str | None,
    what("--with", metavar="NAME", help="An extrapolation at test time, such as yarn:ramp=paper."),
]
Split = Annotated[
    str,
    what(
        metavar="NAME",
        help="The problems: evaluation, or carry with long carry chains.",
        callback=known_split,
    ),
]
MaxDigits = Annotated[
    int | None,
    what(metavar="N", min=1, help="Digits of the longest operands (default: tested_digits)."),
]
Costs = Annotated[
    bool, typer.Option("--costs", help="Add parameters and FLOPs at the preset's size.")
]
_drawn = partial(
    where, metavar="FILE", help="Draw into this .png, .svg or .pdf file.", callback=written_file
)
Figure = Annotated[Path | None, _drawn("--figure")]
MadeFigure = Annotated[Path | None, _drawn("--figure", "--out")]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=TEXT",
        help='The printed name of an encoding, as in mine.py:Mine="Ours"; may be repeated.',
        autocompletion=completion.complete_encoding,
    ),
]
Width = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        min=2,
        max=20,
        help="Width in inches, such as that of a column: 3.3, 5.5 or 7.0.",
    ),
]
NoCaption = Annotated[
    bool, typer.Option("--no-caption", help="Write no caption, for a paper that has its own.")
]
Columns = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=20, help="Panels per row (default: as many as fit)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV to stdout.")]


# ---- the machine ----------------------------------------------------------------------------

TimeLimit = Annotated[
    str | None,
    how_long(
        metavar="TIME",
        help="Save and stop after this time: 90s, 25m, 1h30m or 1:30:00 (exit code 3).",
    ),
]
Threads = Annotated[
    int | None,
    machine(
        metavar="N",
        min=1,
        max=1024,
        help="CPU threads in total (default: all cores, or OMP_NUM_THREADS).",
    ),
]
Backend = Annotated[
    str,
    machine(
        metavar="NAME",
        help="How attention is computed: auto, varlen, flash-attn, sdpa, eager or fused. "
        "Fails if the backend does not support the encoding; never falls back.",
        callback=_known_backend,
        autocompletion=completion.complete_backend,
    ),
]
Compiled = Annotated[
    bool | None,
    machine(
        "--compile/--no-compile",
        help="Compile the decoder's blocks (default: on a GPU, or if the preset says so); on a "
        "GPU, steps of packed rows are also recorded as a CUDA graph. A CPU needs a C++ compiler "
        "and, once, a minute or two; steps then take 5 to 40 % less.",
    ),
]
InPrecision = Annotated[
    Precision,
    machine(
        "--precision",
        metavar="TYPE",
        help="Of matrix products: bfloat16, float32, or auto: bfloat16 where it is "
        "fast. Runs of two types are not compared.",
    ),
]
Slots = Annotated[
    int | None,
    machine(
        metavar="N",
        min=1,
        help="Parallel jobs; more than one run as subprocesses (default: one per GPU, or per "
        "core if their size suits a core; other engines have limits of their own).",
    ),
]
DryRun = Annotated[
    bool, how_long("--dry-run", help="Show jobs, cost and estimated time; write nothing.")
]
On = Annotated[
    str | None,
    how_long(
        "--on",
        metavar="GPU",
        help="With --dry-run: the time on this GPU, such as h200, one per slot, from steps that "
        "were measured there.",
        autocompletion=completion.complete_gpu,
    ),
]
Engine = Annotated[
    str,
    machine(
        metavar="ENGINE",
        help="Where jobs run: local, ray or slurm, as in slurm:partition=gpu:throttle=8.",
        autocompletion=completion.complete_among(lambda: known_names("engine")),
    ),
]


# ---- values ---------------------------------------------------------------------------------


def whole_numbers(option: str, text: str) -> list[int]:
    """Parse "0,1,2" or "0-2" as numbers without duplicates. Raises UsageError, naming `option`."""
    numbers: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part, re.ASCII)
        if ends is None:
            raise UsageError(
                f"{option} takes whole numbers with commas, as in 0,1,2 or 0-2, not '{text}'"
            )
        # Python refuses to read a number of thousands of digits.
        first, last = (int(end[:100]) for end in (ends[1], ends[2] or ends[1]))
        if max(first, last) > MOST_INTEGER or last - first >= _MOST_NUMBERS:
            raise UsageError(f"{option} takes numbers up to {MOST_INTEGER}, not {text[:100]}")
        if last < first:
            raise UsageError(f"{option}: {part.strip()} counts down: write {last}-{first}")
        numbers += range(first, last + 1)
    return list(dict.fromkeys(numbers))


def train_options(
    backend: str,
    compiled: bool | None,
    no_curves: bool,
    track: str | None,
    precision: Precision,
    data: Path | None = None,
    on_nonfinite: Policy | None = None,
) -> TrainOptions:
    """Build TrainOptions from the values of a command. Raises UsageError for a bad `track`."""
    compute = Compute(backend, compiled, precision)
    return TrainOptions(data, compute, not no_curves, parse_trackers(track), on_nonfinite)


def estimated_slots(dry_run: bool, on: str | None, slots: int | None) -> int | None:
    """Return the slots of a plan: one GPU, unless more are named. Raises UsageError for `on`."""
    if on and not dry_run:
        raise UsageError("--on only estimates: add --dry-run, or leave out --on to run here")
    return slots or 1 if on else slots
