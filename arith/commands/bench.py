"""`tape-arith bench`: measure each stage next to the limits of the machine."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.api.processes import configure
from tape_arith.arith.bench import ALL, STAGES
from tape_arith.arith.commands import option
from tape_arith.arith.errors import EXIT_PARTLY
from tape_arith.arith.registry.names import parse_list
from tape_arith.arith.runs.options import Compute
from tape_arith.arith.runs.preset import parse_settings

EXAMPLE = "tape-arith bench train --pe rope,tape --lengths 20,40"

_Stages = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STAGE",
        help=f"{', '.join(STAGES)}, or {ALL} (default).",
        autocompletion=lambda: [*STAGES, ALL],
    ),
]
_Lengths = Annotated[
    str, typer.Option(help="Digits of the longest operand, with commas; for attention: tokens.")
]
_Run = Annotated[Path | None, typer.Option(help="A run to score (default: random weights).")]
_Out = Annotated[
    Path | None,
    typer.Option(help="Write the numbers to this JSON file.", callback=option.written_file),
]
_Seconds = Annotated[float, typer.Option(metavar="S", min=1.0, help="Approximate time per stage.")]
_Quick = Annotated[
    bool, typer.Option("--quick", help="Measure everything at its smallest size, as a check.")
]


def command(
    stages: _Stages = None,
    pe: option.EncodingList = option.NO_ENCODINGS,
    preset: option.Preset = None,
    settings: option.Settings = None,
    lengths: _Lengths = "",
    run: _Run = None,
    backend: option.Backend = "auto",
    compiled: option.Compiled = None,
    count: option.Count = None,
    out: _Out = None,
    seconds: _Seconds = 60.0,
    quick: _Quick = False,
    threads: option.Threads = None,
) -> None:
    """Measure this machine's limits, and each stage next to them."""
    from tape_arith.arith.bench.measure import Options
    from tape_arith.arith.bench.run import run as run_stages

    configure(threads)
    options = Options(
        encodings=tuple(parse_list(",".join(pe))),
        preset=preset,
        settings=parse_settings(settings),
        lengths=tuple(option.whole_numbers("--lengths", lengths) if lengths else ()),
        count=count,
        run=run,
        compute=Compute(backend, compiled),
        seconds=0 if quick else seconds,
        threads=threads,
    )
    if not run_stages(stages or [ALL], options, out):
        raise typer.Exit(EXIT_PARTLY)
