"""Datasets of training problems: where they lie, how they are written. No torch here."""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import verify
from tape_arith.arith.data.formats import write_parquet, write_text
from tape_arith.arith.data.manifest import FILE
from tape_arith.arith.data.write_dataset import generate
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.runs.lock import NAME, lock_folder
from tape_arith.arith.stopping import Stopped
from tape_arith.arith.terminal import bar
from tape_arith.arith.training.config import MOST, Config

FORMATS = {"tokens": "", "text": ".txt", "parquet": ".parquet"}


def dataset_folder(root: Path, config: Config, seed: int) -> Path:
    """Where the training problems of a seed lie: data/addition-bucket-40, ...-40-seed-1."""
    suffix = f"-seed-{seed}" if seed else ""
    return root / f"{config.task}-bucket-{config.trained_digits}{suffix}"


def generate_dataset(
    folder: Path,
    bucket: Bucket,
    count: int,
    *,
    workers: int = 0,
    fresh: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> float:
    """Write a dataset with a bar, `workers` processes (0: all cores); the seconds it took.

    Errors: Busy where another process writes it; Stopped where `should_stop` said so between two
    shards; the next call goes on.
    """
    began = time.perf_counter()
    processes = workers or os.cpu_count() or 1
    # One that is whole is only looked at: it may lie where nobody can write.
    whole = (folder / FILE).exists() and not (folder / NAME).exists() and not fresh
    own = nullcontext() if whole else lock_folder(folder, "generate")
    with own, bar(f"generate {folder.name}", count) as update:

        def progress(done: int) -> None:
            update(done)
            if done < count and should_stop():
                raise Stopped

        generate(folder, bucket, count, workers=processes, progress=progress, fresh=fresh)
    return time.perf_counter() - began


def write(
    config: Config,
    seed: int,
    *,
    out: Path | None,
    count: int | None,
    workers: int,
    form: str,
    fresh: bool,
) -> Path:
    """Write the training problems of a config in one of FORMATS; where they are.

    Errors: UsageError for an unknown format, a place that holds something else, or `workers` for a
    format that one process writes.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    bucket = Bucket(config.task, config.trained_digits, seed, "train")
    number = config.num_problems if count is None else count
    if number > MOST["num_problems"]:
        raise UsageError(f"--count takes {MOST['num_problems']:,} at most, not {number:,}")
    folder = dataset_folder(Path("data"), config, seed)
    if form == "tokens":
        path = out or folder
        generate_dataset(path, bucket, number, workers=workers, fresh=fresh)
        return path
    if workers:
        raise UsageError(f"--workers goes with --format tokens: {form} is one file, in order")
    path = out or folder.with_name(folder.name + FORMATS[form])
    writer = {"text": write_text, "parquet": write_parquet}[form]
    with bar(f"generate {path.name}", number) as update:
        return writer(path, bucket, number, progress=update, fresh=fresh)


def verified(folder: Path) -> str:
    """Check every hash of a dataset; a line that says so. Errors: Failure naming what is wrong."""
    if folder.is_file():
        raise UsageError(
            f"--verify takes the folder of a dataset, and {folder} is a file: text and parquet are "
            "checked by the same `tape-arith generate --format ...` again"
        )
    manifest = verify(folder)
    return f"{folder}: {manifest.count:,} problems, every hash is right ({manifest.sha256[:12]})"
