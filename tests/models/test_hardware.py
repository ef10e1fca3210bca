"""Device, precision and threads are detected; several threads keep order."""

import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest
import torch

from tape_arith.models import hardware
from tape_arith.models.hardware import Hardware, configure_process, detect


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    hardware.cpu_threads.cache_clear()


def test_map_runs_side_by_side_with_one_thread_of_torch_each() -> None:
    """The threads have torch's configuration, which belongs to a context, of the caller."""
    both, setting = threading.Barrier(2, timeout=10), ContextVar("setting", default=0)

    def meet(_: int) -> tuple[int, int]:
        both.wait()
        return torch.get_num_threads(), setting.get()

    token = setting.set(7)
    try:
        results = list(Hardware("cpu", torch.float32, 2).parallel_map(meet, range(4)))
    finally:
        setting.reset(token)
    assert results == [(1, 7)] * 4


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_alone(threads: int) -> None:
    """The first item is done before any of the others begins, and in the calling thread."""
    hardware, caller = Hardware("cpu", torch.float32, threads), threading.current_thread()
    begun: list[tuple[int, bool]] = []

    def begin(item: int) -> int:
        assert item == 0 or (0, True) in begun
        begun.append((item, threading.current_thread() is caller))
        return item

    assert list(hardware.parallel_map(begin, iter(range(4)), first_alone=True)) == [0, 1, 2, 3]
    assert begun[0] == (0, True) and sorted(begun)[1:] == [(i, threads == 1) for i in (1, 2, 3)]
    assert list(hardware.parallel_map(begin, [], first_alone=True)) == []


@pytest.mark.parametrize("threads", [1, 3])
def test_a_cpu_gives_its_threads_to_map(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    hardware.cpu_threads.cache_clear()
    torch.set_num_threads(threads)
    assert detect().threads == torch.get_num_threads() == threads  # looking changes nothing
    for _ in range(2):  # the second time torch itself has one thread
        configure_process()
        assert detect().threads == threads and torch.get_num_threads() == 1
    hardware.cpu_threads.cache_clear()
    configure_process(5)
    assert detect().threads == 5 and torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("device", "choice", "compiled"),
    [("cpu", None, False), ("cuda", None, True), ("cpu", True, True), ("cuda", False, False)],
)
def test_blocks_are_compiled_on_a_gpu_or_by_request(
    device: str, choice: bool | None, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device == "cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    detected = detect(compiled=choice)
    assert detected.compiled == compiled
    # Scoring takes less time on a CPU than compiling.
    assert detected.for_scoring.compiled == (compiled and device == "cuda")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("fast", [True, False, None])
def test_bfloat16_only_if_it_is_fast(
    device: str, fast: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: a torch that cannot tell for a CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device == "cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: fast)
    for test in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, test, lambda: fast, raising=False)
        if fast is None:
            monkeypatch.delattr(torch.cpu, test)
    detected = detect()
    assert (detected.device, detected.dtype_name) == (device, "bfloat16" if fast else "float32")
    for precision in ("bfloat16", "float32"):
        assert detect(precision=precision).dtype_name == precision


def test_in_float32() -> None:
    low = Hardware("cpu", torch.bfloat16, 2)
    assert low.in_float32() == Hardware("cpu", torch.float32, 2)
    a = torch.ones(3, 3)
    with low.autocast():
        assert (a @ a).dtype == torch.bfloat16
        with low.in_float32().autocast():
            assert (a @ a).dtype == torch.float32


def test_nothing_makes_float32_coarser(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's setting is also that of its variable, TORCH_ALLOW_TF32_CUBLAS_OVERRIDE."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    assert torch.backends.cuda.matmul.allow_tf32
    configure_process()
    assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"
