"""`tape-arith generate`: problems on disk."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands.job_options import chosen_config
from tape_arith.arith.commands.options import Fresh, Preset, Settings, TaskName
from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import MOST_INTEGER

EXAMPLE = "tape-arith generate --preset mini --workers 2"


def command(
    preset: Preset = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder (default: data/addition-bucket-40).")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, max=10**12, help="Problems (default: the preset's).")
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_INTEGER,
            help="The run of this seed trains on them.",
        ),
    ] = 0,
    workers: Annotated[int, typer.Option(help="Threads for tokens (default: all cores).")] = 0,
    format: Annotated[
        str | None, typer.Option(help="tokens, text or parquet (default: tokens).")
    ] = None,
    task: TaskName = None,
    settings: Settings = None,
    verify: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Check every hash of a dataset instead.")
    ] = None,
    fresh: Fresh = False,
) -> None:
    """Write the training problems of a preset (default: paper-40), the same for any workers.

    A finished dataset is checked by its file sizes alone; --verify checks every hash.
    """
    from tape_arith.arith.runs.datasets import verified, write

    if verify is not None:
        given = (preset, out, count, seed or None, workers or None, format, task, settings)
        if fresh or any(option is not None for option in given):
            raise UsageError("--verify DIR only checks what is there: give it no other option")
        print(verified(verify))
        return
    _, config = chosen_config(preset or "paper-40", settings, task)
    form = format or "tokens"
    print(write(config, seed, out=out, count=count, workers=workers, form=form, fresh=fresh))
