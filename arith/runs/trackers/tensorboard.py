"""Event files for TensorBoard, in RUN/tracking/tensorboard."""

from typing import TYPE_CHECKING

from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.tracking import Sink, scalars

if TYPE_CHECKING:
    from tape_arith.arith.training.evaluation import Metrics

NEEDS = "tensorboard"


class TensorBoard:
    """A scalar for each number of a line of metrics."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        # What an earlier process wrote of the steps that are taken again is not shown.
        self.writer = SummaryWriter(str(folder.tracking / "tensorboard"), purge_step=step + 1)

    def __call__(self, metrics: "Metrics") -> None:
        for name, value in scalars(metrics).items():
            self.writer.add_scalar(name, value, metrics.step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


def opened(folder: RunFolder, record: RunRecord, step: int) -> Sink:
    return TensorBoard(folder, step)
