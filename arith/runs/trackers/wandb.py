"""Weights & Biases, offline unless WANDB_MODE says otherwise: in RUN/tracking/wandb, from where
`wandb sync` takes it."""

import hashlib
import os
from importlib import import_module
from typing import TYPE_CHECKING

from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.tracking import Sink, scalars

if TYPE_CHECKING:
    from tape_arith.arith.training.evaluation import Metrics

NEEDS = "wandb"
PROJECT = "tape-arith"


class Wandb:
    """A step for each line of metrics."""

    def __init__(self, folder: RunFolder, record: RunRecord) -> None:
        wandb = import_module("wandb")
        name = f"{record.preset}/{record.encoding}/seed-{record.seed}"
        identity = f"{name} {record.config.sha256} {folder.path.absolute()}"
        folder.tracking.mkdir(parents=True, exist_ok=True)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            # The same for every process that goes on with this run: its parts become one.
            id=hashlib.sha256(identity.encode()).hexdigest()[:16],
            resume="allow",
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(folder.tracking),
            config={"encoding": record.encoding, "seed": record.seed, **record.config.as_dict()},
            settings=wandb.Settings(console="off", silent=True, disable_git=True),
        )

    def __call__(self, metrics: "Metrics") -> None:
        self.run.log(scalars(metrics), step=metrics.step)

    def close(self) -> None:
        self.run.finish()


def opened(folder: RunFolder, record: RunRecord, step: int) -> Sink:
    return Wandb(folder, record)
