"""Datasets of training problems: their places, reading and writing. Never imports torch."""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import FILE, Dataset
from tape_arith.arith.data.write_dataset import generate
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.lock import NAME, lock_folder
from tape_arith.arith.stopping import Stopped
from tape_arith.arith.terminal import bar
from tape_arith.arith.training.config import Config


def refuse_dataset(root: Path) -> None:
    """Raise UsageError if `root` is a dataset and not a folder of datasets."""
    if (root / FILE).exists():
        raise UsageError(
            f"{root} is a dataset, and --data takes the folder of datasets here: --data "
            f"{root.parent} (`train` takes one dataset)"
        )


def dataset_folder(root: Path, config: Config, seed: int) -> Path:
    """Return the folder of a seed's training problems, as in data/addition-bucket-40-seed-1."""
    suffix = f"-seed-{seed}" if seed else ""
    return root / f"{config.task}-bucket-{config.trained_digits}{suffix}"


def training_bucket(config: Config, seed: int) -> Bucket:
    """Return the problems that a run of `seed` is trained on."""
    return Bucket(config.task, config.trained_digits, seed, "train")


def open_training_data(
    path: Path, config: Config, seed: int, began_on: str | None = None
) -> Dataset:
    """Open the dataset of a run at `path`.

    Raises UsageError unless it holds the problems that the run would make itself and has the hash
    `began_on`, if that is given.
    """
    dataset, bucket = Dataset(path), training_bucket(config, seed)
    given, count = dataset.bucket, dataset.manifest.count
    if (given, count) != (bucket, config.num_problems):
        raise UsageError(
            f"{path} holds {count:,} problems of {given.task} to {given.max_digits} digits of seed "
            f"{given.seed}, and this run trains on {config.num_problems:,} of {bucket.task} to "
            f"{bucket.max_digits} of seed {bucket.seed}: leave --data out, or give "
            "`tape-arith generate` the preset, settings and seed of this run"
        )
    if began_on not in (None, dataset.manifest.sha256):
        raise UsageError(
            f"{path} is not the dataset that the run began on ({dataset.manifest.sha256[:12]}, not "
            f"{began_on[:12]}): give that one, or leave --data out and the problems are made anew"
        )
    return dataset


def generate_dataset(
    folder: Path,
    bucket: Bucket,
    count: int,
    *,
    workers: int = 0,
    fresh: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> float:
    """Write a dataset with a progress bar and `workers` threads (0: all cores).

    Returns the seconds it took. Raises Busy if another process writes it, Stopped if `should_stop`
    returned True between two shards; the next call goes on.
    """
    began = time.perf_counter()
    threads = workers or os.cpu_count() or 1
    # A complete dataset takes no lock: it may be where nobody can write.
    complete = (folder / FILE).exists() and not (folder / NAME).exists() and not fresh
    lock = nullcontext() if complete else lock_folder(folder, "generate")
    with lock, bar(f"generate {folder.name}", count) as update:

        def progress(done: int) -> None:
            update(done)
            if done < count and should_stop():
                raise Stopped

        generate(folder, bucket, count, workers=threads, progress=progress, fresh=fresh)
    return time.perf_counter() - began
