"""FLOPs as torch counts them, and the workload of plain attention."""

from collections.abc import Callable

from torch.utils.flop_counter import FlopCounterMode

from tape_arith.models.encoding import Workload


def counted(function: Callable[[], object]) -> int:
    """Return the FLOPs of a call by torch's counter, which sees only torch's own products."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def padded(rows: int, tokens: int) -> Workload:
    """Return what plain attention computes: the full square of each row, future included."""
    return Workload(rows * tokens, rows * tokens**2, tokens**2)
