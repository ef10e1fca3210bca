"""Record a function as one CUDA graph, which a GPU runs without being told of each kernel."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

WARM_UPS = 3
"""Calls before the recorded one, in which kernels are compiled and libraries start."""


class Recording:
    """A function of `inputs`, recorded once; a call runs it on other tensors of the same shapes.

    The same kernels run again, on the numbers that are then in the inputs and in whatever else the
    function reads from the device, as parameters. All that Python computes stays as it was: shapes,
    plain numbers, what depends on them. So the function must not wait for the device.
    """

    def __init__(self, function: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]) -> None:
        self.inputs = inputs
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                function()
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = function()

    def __call__(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the outputs for `inputs`. The next call overwrites them."""
        for own, new in zip(self.inputs, inputs, strict=True):
            own.copy_(new, non_blocking=True)
        self.graph.replay()
        return self.outputs
