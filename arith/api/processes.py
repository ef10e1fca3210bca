"""Set this process up to compute, and choose the process of `torchrun` that leads a training."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tape_arith.arith.errors import EXIT_DONE, EXIT_FAILED
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.stopping import Stopper, stopping

if TYPE_CHECKING:
    from tape_arith.arith.training.distributed import ProcessGroup


def configure(threads: int | None = None) -> None:
    """Set this process up to compute with `threads` CPU threads; None: as many as torch chooses."""
    from tape_arith.models.hardware import configure_process

    configure_process(threads)


@contextmanager
def training(
    options: TrainOptions, stopper: Stopper | None
) -> Iterator[tuple[Stopper, "ProcessGroup"]]:
    """Yield what stops a training, and the processes of `torchrun`, to the first of these.

    It trains, prints and returns. The others train along and exit.
    """
    from tape_arith.arith.training.distributed import process_group
    from tape_arith.arith.training.session import train_as_worker

    configure()
    with stopping(stopper) as stop, process_group() as processes:
        if processes.first:
            yield stop, processes
        else:
            done = train_as_worker(processes, options, should_stop=stop)
            sys.exit(EXIT_DONE if done else EXIT_FAILED)
