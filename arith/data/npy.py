"""What stands in a .npy file before its numbers."""

import io
from typing import Any, BinaryIO

import numpy as np

HEADER_BYTES = 128
"""What numpy writes before the data of a one-dimensional array, whatever its length."""


def npy_header(dtype: np.dtype[Any], count: int) -> bytes:
    """What stands in a .npy file before `count` numbers."""
    file = io.BytesIO()
    write_header(file, dtype, count)
    return file.getvalue()


def write_header(file: BinaryIO, dtype: np.dtype[Any], count: int) -> None:
    """Write what `npy_header` gives to `file`, which is at its start."""
    header = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, header)
    assert file.tell() == HEADER_BYTES
