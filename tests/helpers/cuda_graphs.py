"""CUDA graphs on a CPU: operations of torch, recorded with their tensors and plain numbers."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)


class Graph(TorchDispatchMode):
    """Runs what it recorded again, in the same memory, and refuses what a graph cannot record.

    Like a CUDA graph it knows nothing of Python: every shape and number is the recorded one.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.replays = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WAITS:
            raise RuntimeError(f"{func} waits, which no recording can")
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    @torch.no_grad()
    def replay(self) -> None:
        self.replays += 1
        for func, args, kwargs, recorded in self.calls:
            again = tree_leaves(func(*args, **kwargs))
            for old, new in zip(tree_leaves(recorded), again, strict=True):
                if isinstance(old, Tensor):
                    old.copy_(new)


def on_cpu(patch: pytest.MonkeyPatch) -> list[Graph]:
    """Give torch.cuda such graphs; return those that are made."""
    made: list[Graph] = []

    def graph() -> Graph:
        made.append(Graph())
        return made[-1]

    @contextmanager
    def record(graph: Graph) -> Iterator[None]:
        with graph:
            yield

    patch.setattr(torch.cuda, "CUDAGraph", graph)
    patch.setattr(torch.cuda, "graph", record)
    patch.setattr(torch.cuda, "Stream", MagicMock())
    patch.setattr(torch.cuda, "current_stream", MagicMock())
    patch.setattr(torch.cuda, "stream", nullcontext)
    return made
