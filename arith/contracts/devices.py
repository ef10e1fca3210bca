"""Find the tensors that a hook makes on the CPU, on a machine that has no other device."""

from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from tape_arith.arith.contracts.hooks import tensors_in

_PLACED_LIKE = {torch.Tensor.to, torch.Tensor.type_as}
"""Functions whose result is where their last tensor is."""
_INDEXED = {torch.Tensor.__getitem__, torch.Tensor.__setitem__}
"""Tensors on a GPU may be indexed by those on the CPU."""


class CPUTensors(TorchFunctionMode):
    """Follow the tensors that are on the CPU wherever the model is; refuse to mix them with others.

    A function that is given neither a tensor nor a `device` makes such a tensor, and functions of
    such tensors alone pass it on, until one is given a device. Numbers may be mixed, as in torch:
    tensors without axes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: MutableMapping[Tensor, str] = WeakIdKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        keywords = kwargs or {}
        tensors = list(tensors_in([args, keywords]))
        on_cpu = [tensor for tensor in tensors if tensor in self.made]
        some_elsewhere = len(tensors) > len(on_cpu)
        wide = [tensor for tensor in on_cpu if tensor.ndim]
        placed = func in _PLACED_LIKE and len(tensors) > 1 and some_elsewhere
        placed |= any(isinstance(value, torch.device) for value in (*args, *keywords.values()))
        if wide and some_elsewhere and not placed and func not in _INDEXED:
            raise RuntimeError(
                f"a tensor that {self.made[wide[0]]} made on the CPU meets one of the model's "
                "device: make it with device=x.device"
            )
        result = func(*args, **keywords)
        name = self.made[on_cpu[0]] if on_cpu else f"torch.{getattr(func, '__name__', func)}"
        for tensor in tensors_in(result):
            if placed:
                self.made.pop(tensor, None)  # the same tensor, where the CPU is the model's device
            elif not some_elsewhere:
                self.made[tensor] = name
        return result
