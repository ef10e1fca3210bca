"""Train one model with several processes that torchrun started.

Process r of N takes rows r, r + N, ... of every batch. Gradients are summed, and all processes take
the same step. DistributedDataParallel is not used: its hooks would sum the gradients after each of
the groups into which a batch is cut. Only numbers and JSON are sent, never a pickle.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.tasks.task import Problems, take

_TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Longer than the others wait while the first process scores the small grid.
_TIMEOUT = timedelta(minutes=30)


class PeerLost(Failure):
    """Another process of this training has ended; it printed why."""


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process among the `size` processes of a training; SINGLE if it is alone."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this process writes the run's folder and prints messages."""
        return self.rank == 0

    def rows(
        self, problems: Problems, keys: NDArray[np.int64]
    ) -> tuple[Problems, NDArray[np.int64]]:
        """Select this process's rows of a batch."""
        if self.size == 1:
            return problems, keys
        own = np.arange(self.rank, len(keys), self.size)
        return take(problems, own), keys[own]

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes; all get the same bits."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _explain_lost_peer():
            dist.all_reduce(flat)
        for tensor, piece in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(piece.view_as(tensor))

    def any(self, flag: bool) -> bool:
        """Tell whether `flag` is set in any process."""
        count = torch.tensor([float(flag)], device=self.device)
        self.all_reduce([count])
        return bool(count)

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite `tensors` with those of the first process."""
        for tensor in tensors:
            with _explain_lost_peer():
                dist.broadcast(tensor, src=0)

    def broadcast_text(self, text: str = "") -> str:
        """Return the `text` of the first process in every process."""
        if self.size == 1:
            return text
        content = torch.tensor(list(text.encode()), dtype=torch.uint8, device=self.device)
        length = torch.tensor([len(content)], device=self.device)
        self.broadcast([length])
        if not self.first:
            content = torch.empty(int(length), dtype=torch.uint8, device=self.device)
        self.broadcast([content])
        return bytes(content.tolist()).decode()


SINGLE = ProcessGroup()


@contextmanager
def _explain_lost_peer() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise PeerLost("another process of this training is gone") from error


@contextmanager
def process_group() -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started; yield SINGLE if it started none.

    Raises Failure if the processes cannot reach each other.
    """
    given = {name: os.environ.get(name, "").strip() for name in _TORCHRUN_VARIABLES}
    if not all(given.values()) or given["WORLD_SIZE"] == "1":  # of something else, or alone
        yield SINGLE
        return
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
        if re.fullmatch(r"[0-9]{1,9}", given[name]) is None:
            raise UsageError(
                f"{name}={given[name]} is no number: start processes by torchrun, or unset {name}"
            )
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{int(given['LOCAL_RANK']) % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    backend = "gloo" if device == "cpu" else "nccl"
    # Import this before the group exists; an optimizer's first step would import it later. Default
    # arguments of its functions would then keep the group and its threads alive after
    # `destroy_process_group`, and a thread that frees a tensor while Python exits aborts it.
    import_module("torch.distributed.nn.functional")
    try:
        dist.init_process_group(backend, timeout=_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise Failure(f"the processes of this training do not reach each other: {error}") from error
    try:
        yield ProcessGroup(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()
