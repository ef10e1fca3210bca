"""Device, precision and threads of a computation."""

import ctypes
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Hardware:
    """A device, and how to compute on it.

    device               "cpu" or "cuda"
    dtype                type of matrix products: bfloat16 if fast here, else float32; weights,
                         norms, softmax and logits stay in float32
    threads              CPU threads, which `parallel_map` shares out
    attention            name of an attention backend, or "auto"
    compiled             whether a decoder's blocks are compiled
    recorded             whether training steps of constant shapes are recorded as a CUDA graph
    """

    device: str
    dtype: torch.dtype
    threads: int = 1
    attention: str = "auto"
    compiled: bool = False
    recorded: bool = False

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device, self.dtype, enabled=self.dtype != torch.float32)

    def in_float32(self) -> "Hardware":
        """Return the same device in float32, with an attention backend that supports it."""
        return replace(self, dtype=torch.float32, attention="auto")

    @property
    def for_scoring(self) -> "Hardware":
        """The same hardware for scoring, which on a CPU takes less time than compiling."""
        return replace(self, compiled=self.compiled and self.device != "cpu")

    def parallel_map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        first_alone: bool = False,
    ) -> Iterator[Result]:
        """Apply `function` to each item, in order; on a CPU several at once, one thread each.

        With `first_alone` the other items start after the first is done. An item gets one thread,
        since models that suit a CPU have operations too small to share: two threads in one product
        gain a fifth, but next to another process they wait for each other and lose a factor of
        fifty. The result is also independent of the number of threads.
        """
        if self.device != "cpu" or self.threads == 1:
            return map(function, items)
        items, context = iter(items), copy_context()  # torch's settings belong to a context
        first = [function(item) for item in islice(items, 1 if first_alone else 0)]
        rest = _pool(self.threads).map(lambda item: context.copy().run(function, item), items)
        return chain(first, rest)

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def name(self) -> str:
        """The product name of the GPU or CPU, if the system has it."""
        if self.device == "cuda":
            return torch.cuda.get_device_name()
        try:
            with open("/proc/cpuinfo", encoding="utf-8") as file:
                models = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
        except OSError:
            models = []
        return models[0] if models else "CPU"


def detect(
    attention: str = "auto", compiled: bool | None = None, precision: str = "auto"
) -> Hardware:
    """Find the GPU if there is one, else the CPU and its threads; the process stays as it is.

    With `compiled` None, blocks are compiled on a GPU only, where steps are then recorded too.
    `precision` is "bfloat16", "float32" or "auto": bfloat16 only where its products are fast.
    """
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = _cpu_has_bfloat16()
    usual = torch.bfloat16 if fast else torch.float32
    compiled = on_gpu if compiled is None else compiled
    return Hardware(
        device="cuda" if on_gpu else "cpu",
        dtype=usual if precision == "auto" else getattr(torch, precision),
        threads=1 if on_gpu else cpu_threads(),
        attention=attention,
        compiled=compiled,
        recorded=compiled and on_gpu,
    )


def configure_process(threads: int | None = None) -> None:
    """Set up this process to compute; `threads` is its number of CPU threads, None torch's own.

    On a CPU, torch itself gets one thread, so that no bit depends on their number: the others are
    for `Hardware.parallel_map`. And glibc keeps freed memory. Products of float32 numbers get no
    coarser ones, whatever variables of the environment say.
    """
    torch.set_float32_matmul_precision("highest")  # also against TORCH_ALLOW_TF32_CUBLAS_OVERRIDE
    torch.backends.cudnn.allow_tf32 = False
    if "NVIDIA_TF32_OVERRIDE" in os.environ:  # which the libraries of a GPU read when they start
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    if threads is not None:
        torch.set_num_threads(threads)
    if torch.cuda.is_available():
        return
    cpu_threads()  # before torch has only one
    torch.set_num_threads(1)
    # torch then takes another kernel, which is slower.
    warnings.filterwarnings("ignore", message="mkldnn_.* failed, switching")
    # Each step allocates and frees the same tens of megabytes. If they were returned to the system,
    # each page would cost a fault: 6,000 per step at mini, some 5 % of its time.
    _set_malloc(trim_threshold=2**31 - 1, mmap_threshold=32 * 2**20)


@cache
def cpu_threads() -> int:
    """Return torch's number of threads before `configure_process` set it to one."""
    return torch.get_num_threads()


def release_memory() -> None:
    """Return freed memory to the system or the GPU, and no longer keep it, because it ran out."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    _set_malloc(trim_threshold=2**17, mmap_threshold=2**17)  # glibc's own
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _set_malloc(*, trim_threshold: int, mmap_threshold: int) -> None:
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is not None:
        mallopt(-1, trim_threshold)  # the numbers of malloc.h
        mallopt(-3, mmap_threshold)


@cache
def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))


def _cpu_has_bfloat16() -> bool:
    # These names are private and differ between versions of torch.
    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, test, lambda: False)() for test in tests)
