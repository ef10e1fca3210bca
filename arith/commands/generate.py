"""`tape-arith generate`: write a dataset of problems."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import chosen_config
from tape_arith.arith.errors import UsageError, unknown

FORMATS = {"tokens": "", "text": ".txt", "parquet": ".parquet"}
EXAMPLE = "tape-arith generate --preset mini --workers 2"


def command(
    preset: option.Preset = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder (default: data/addition-bucket-40).")
    ] = None,
    count: option.Count = None,
    seed: option.Seed = None,
    workers: Annotated[int, typer.Option(min=0, help="Threads (default: all cores).")] = 0,
    format: Annotated[
        str | None, typer.Option(help="tokens, text or parquet (default: tokens).")
    ] = None,
    task: option.TaskName = None,
    settings: option.Settings = None,
    verify: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Only check every hash of a dataset.")
    ] = None,
    fresh: option.Fresh = False,
) -> None:
    """Write the training problems of a preset (default: paper-40), the same for any workers.

    `train` with the same preset, settings and seed uses them, unless --out changes the folder.
    A finished dataset is checked by file size alone; --verify checks every hash.
    """
    from tape_arith.arith.data.dataset import verify as check_hashes
    from tape_arith.arith.data.write_dataset import generate_dataset, write_problems
    from tape_arith.arith.runs.config import DATASETS
    from tape_arith.arith.terminal import bar

    if verify is not None:
        given = (preset, out, count, seed, workers or None, format, task, settings)
        if fresh or any(option is not None for option in given):
            raise UsageError("--verify DIR only checks a dataset: leave out other options")
        manifest = check_hashes(verify)
        digest = manifest.sha256[:12]
        print(f"{verify}: {manifest.count:,} problems, every hash is right ({digest})")
        return
    form = format or "tokens"
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    _, config = chosen_config(preset or "paper-40", settings, task)
    bucket, number = config.bucket(seed or 0), count or config.num_problems
    folder = config.dataset_folder(DATASETS, seed or 0)
    path = out or folder.with_name(folder.name + FORMATS[form])
    if form == "tokens":
        generate_dataset(path, bucket, number, workers=workers, fresh=fresh)
    else:
        with bar(f"generate {path.name}", number) as update:
            write_problems(
                path, bucket, number, form, workers=workers, progress=update, fresh=fresh
            )
    print(path)
