"""One training shared out among processes: process r of N takes rows r, r + N, ... of every batch,
the gradients are added up, and all take the same step.

What DistributedDataParallel does, for gradients that are summed over groups of a batch first: its
hooks would add up after each group. Nothing is sent but numbers and JSON, never a pickle.
"""

import os
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

from arith.data.task import Problems, chosen
from arith.errors import Failure

#: What torchrun and `train --processes` set.
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
#: The others wait so long at most while the first one scores what is looked at on the way.
LONGEST_WAIT = timedelta(minutes=30)


class Lost(Failure):
    """Another process is gone; why, it has said itself."""


@dataclass(frozen=True)
class Processes:
    """This process's place among those of one training: alone, unless `joined` says otherwise."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether it is the one that reads and writes the run's folder, and talks."""
        return self.rank == 0

    def rows(
        self, problems: Problems, keys: NDArray[np.int64]
    ) -> tuple[Problems, NDArray[np.int64]]:
        """This process's share of a batch."""
        if self.size == 1:
            return problems, keys
        mine = np.arange(self.rank, len(keys), self.size)
        return chosen(problems, mine), keys[mine]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each of `tensors` by its sum over all processes, the same to the last bit in
        each of them."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _all_there():
            dist.all_reduce(flat)
        for tensor, piece in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(piece.view_as(tensor))

    def any(self, mine: bool) -> bool:
        """Whether any process says yes."""
        if self.size == 1:
            return mine
        said = torch.tensor([float(mine)], device=self.device)
        with _all_there():
            dist.all_reduce(said)
        return bool(said.item())

    def of_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite `tensors` with those of the first process."""
        for tensor in tensors if self.size > 1 else ():
            with _all_there():
                dist.broadcast(tensor, src=0)

    def told(self, text: str = "") -> str:
        """What the first process says; of the others `text` is not heard."""
        if self.size == 1:
            return text
        content = torch.tensor(list(text.encode()), dtype=torch.uint8, device=self.device)
        length = torch.tensor([len(content)], device=self.device)
        with _all_there():
            dist.broadcast(length, src=0)
            if not self.first:
                content = torch.empty(int(length), dtype=torch.uint8, device=self.device)
            dist.broadcast(content, src=0)
        return bytes(content.tolist()).decode()


ALONE = Processes()


@contextmanager
def _all_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise Lost("another process of this training is gone") from error


@contextmanager
def joined() -> Iterator[Processes]:
    """This process, while it is among the others that torchrun or `train --processes` started;
    alone where nobody did. Errors: Failure where they do not meet."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or any(v not in os.environ for v in VARIABLES):
        yield ALONE
        return
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    backend = "gloo" if device == "cpu" else "nccl"
    # Before they meet (an optimizer's first step would do it later): the default of its functions
    # is the group that is there then, which would outlive `destroy_process_group`, threads and
    # all, and a thread that frees a tensor while Python ends aborts the process.
    import_module("torch.distributed.nn.functional")
    try:
        dist.init_process_group(backend, timeout=LONGEST_WAIT)
    except (RuntimeError, ValueError) as error:
        raise Failure(f"the processes of this training do not meet: {error}") from error
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()
