"""Choose the dataset that a run is trained on, if there is one."""

from pathlib import Path

import numpy as np

from tape_arith.arith.data.dataset import FILE, Dataset
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.config import DATASETS, Config
from tape_arith.arith.tasks.load import task_hash
from tape_arith.arith.terminal import say

_COMPARED = 1_000
"""Number of problems of a dataset that are compared with those of a user's task as it is now."""


def training_data(
    path: Path | None, config: Config, seed: int, began_on: str | None = None
) -> Dataset | None:
    """Return the dataset at `path` or, without a path, the usual one if it fits and is intact.

    The usual one is what `generate` writes for the run. Without a dataset, training makes the same
    problems as needed. Raises UsageError unless `path` holds exactly these problems and, if
    `began_on` is given, has that hash.
    """
    if path is not None:
        return _open(path, config, seed, began_on)
    usual = config.dataset_folder(DATASETS, seed)
    if not (usual / FILE).exists():
        return None
    try:
        dataset = _open(usual, config, seed, began_on)
        dataset.check_hashes()  # all now, because an unrequested dataset must not end a training
    except UsageError:  # another number of problems, as for another preset
        return None
    except Failure as error:
        say(f"note: left out: {error}")
        return None
    return dataset


def _open(path: Path, config: Config, seed: int, began_on: str | None) -> Dataset:
    """Open a dataset. Raises UsageError unless it holds the problems of this run."""
    dataset, bucket, count = Dataset(path), config.bucket(seed), config.num_problems
    if not dataset.manifest.holds(bucket, count):
        raise UsageError(
            f"{path} holds {dataset.manifest}, and this run trains on {bucket.describe(count)}: "
            "leave --data out, or give `tape-arith generate` the preset, settings and seed of this "
            "run"
        )
    if task_hash(config.task):  # its file may have changed and not its version
        count = min(_COMPARED, config.num_problems)
        made, stored = (each.problems(0, count) for each in (config.bucket(seed), dataset))
        if not np.array_equal(made.tokens, stored.tokens):
            raise UsageError(
                f"{path} holds other problems than {config.task} makes now: its file has changed "
                "since, so write the dataset again with `tape-arith generate --fresh`"
            )
    if began_on not in (None, dataset.manifest.sha256):
        raise UsageError(
            f"{path} is not the dataset that the run began on ({dataset.manifest.sha256[:12]}, not "
            f"{began_on[:12]}): give that one, or leave --data out to generate the problems"
        )
    return dataset
