"""Choose and check the dataset that a run is trained on."""

from pathlib import Path

import numpy as np

from tape_arith.arith.data.dataset import FILE, Dataset, Identity
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.config import DATASETS, Config
from tape_arith.arith.tasks.load import task_hash
from tape_arith.arith.terminal import say

_COMPARED = 1_000
"""Problems of a dataset that are compared with those of a user's task as it is now."""


def open_training_data(
    path: Path, config: Config, seed: int, began_on: str | None = None
) -> Dataset:
    """Open the dataset of a run at `path`.

    Raises UsageError unless it holds exactly the problems that the run would otherwise generate,
    and, if `began_on` is given, has that hash.
    """
    dataset, expected = Dataset(path), Identity.of(config.bucket(seed), config.num_problems)
    if dataset.manifest.identity != expected:
        raise UsageError(
            f"{path} holds {dataset.manifest.identity}, and this run trains on {expected}: leave "
            "--data out, or give `tape-arith generate` the preset, settings and seed of this run"
        )
    if task_hash(config.task):  # its file may have changed and not its version
        count = min(_COMPARED, config.num_problems)
        made, stored = (each.problems(0, count) for each in (config.bucket(seed), dataset))
        if not np.array_equal(made.tokens, stored.tokens):
            raise UsageError(
                f"{path} holds other problems than {config.task} makes now: its file has changed "
                "since, so write the dataset anew with `tape-arith generate --fresh`"
            )
    if began_on not in (None, dataset.manifest.sha256):
        raise UsageError(
            f"{path} is not the dataset that the run began on ({dataset.manifest.sha256[:12]}, not "
            f"{began_on[:12]}): give that one, or leave --data out and the problems are made anew"
        )
    return dataset


def usual_dataset(config: Config, seed: int, began_on: str | None = None) -> Path | None:
    """Return the dataset that `generate` writes for a run, if it exists, fits and is intact."""
    folder = config.dataset_folder(DATASETS, seed)
    if not (folder / FILE).exists():
        return None
    try:
        # All of it now: nobody asked for it, so it must not end a training later.
        open_training_data(folder, config, seed, began_on).check_hashes()
    except UsageError:  # another number of problems, as for another preset
        return None
    except Failure as error:
        say(f"note: left out: {error}")
        return None
    return folder
