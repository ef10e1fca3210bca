"""`tape-arith generate`: write a dataset of problems."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import jobs, option
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.preset import parse_settings

EXAMPLE = "tape-arith generate --preset mini --workers 2"

_Out = Annotated[Path | None, typer.Option(help="The folder (default: data/addition-bucket-40).")]
_Workers = Annotated[
    int, typer.Option(metavar="N", min=0, show_default=False, help="Threads (default: all cores).")
]
_Format = Annotated[str | None, typer.Option(help="tokens, text or parquet (default: tokens).")]
_Verify = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Only check every hash of a dataset.")
]


def command(
    preset: option.Preset = None,
    out: _Out = None,
    count: option.Count = None,
    seed: option.Seed = None,
    workers: _Workers = 0,
    format: _Format = None,
    task: option.TaskName = None,
    settings: option.Settings = None,
    verify: _Verify = None,
    fresh: option.Fresh = False,
) -> None:
    """Write the training problems of a preset (default: paper-40), the same for any workers.

    `train` with the same preset, settings and seed uses them, unless --out changes the folder.
    A finished dataset is checked by file size alone; --verify checks every hash.
    """
    from tape_arith.arith.api import runs as api

    if verify is not None:
        options = (preset, out, count, seed, workers or None, format, task, settings)
        if fresh or any(value is not None for value in options):
            raise UsageError("--verify DIR only checks a dataset: leave out other options")
        print(api.verify(verify))
        return
    with jobs.stopping() as stopper:
        written = api.generate(
            preset or "paper-40",
            task=task,
            seed=seed or 0,
            count=count,
            form=format or "tokens",
            out=out,
            workers=workers,
            fresh=fresh,
            stopper=stopper,
            settings=parse_settings(settings),
        )
    print(written)
