"""`tape-arith generate`: problems on disk."""

from pathlib import Path
from typing import Annotated

import typer

from arith.commands.conduct import chosen_config
from arith.commands.options import Fresh, Preset, Seed, Settings, TaskName
from arith.errors import UsageError

EXAMPLE = "tape-arith generate --preset mini --workers 2"


def command(
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
    _, config = chosen_config(preset, settings, task)
    print(
        problems.write(
            config, seed, out=out, count=count, workers=workers, form=format, fresh=fresh
        )
    )
