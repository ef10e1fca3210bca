"""Device, precision and threads are detected; several threads keep order."""

import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

import pytest
import torch

from tape_arith.models import hardware
from tape_arith.models.backends import AttentionChoice
from tape_arith.models.hardware import Hardware, detect


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    hardware._threads.cache_clear()


@pytest.fixture
def cpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_map_keeps_order(threads: int) -> None:
    def slowly(item: int) -> int:
        time.sleep(0.002 * (5 - item % 5))
        return item * item

    items = iter(range(20))
    assert list(Hardware("cpu", torch.float32, threads).parallel_map(slowly, items)) == [
        item * item for item in range(20)
    ]


def test_map_runs_side_by_side_with_one_thread_of_torch_each() -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(item: int) -> int:
        both.wait()
        return torch.get_num_threads()

    assert list(Hardware("cpu", torch.float32, 2).parallel_map(meet, range(4))) == [1, 1, 1, 1]


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


def test_threads_have_the_configuration_of_torch() -> None:
    """It belongs to a context, which a thread does not have by itself."""
    setting = ContextVar("setting", default=0)
    token = setting.set(7)
    try:
        values = Hardware("cpu", torch.float32, 2).parallel_map(lambda _: setting.get(), "abc")
        assert list(values) == [7] * 3
    finally:
        setting.reset(token)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.usefixtures("cpu_only")
def test_a_cpu_gives_its_threads_to_map(threads: int) -> None:
    hardware._threads.cache_clear()
    torch.set_num_threads(threads)
    assert detect().threads == threads
    assert torch.get_num_threads() == 1
    # Asked again, it has not forgotten that torch was given more.
    assert detect().threads == threads


@pytest.mark.parametrize("fast", [True, False, None])
@pytest.mark.usefixtures("cpu_only")
def test_bfloat16_only_where_a_cpu_has_it(
    monkeypatch: pytest.MonkeyPatch, fast: bool | None
) -> None:
    """None: a torch that cannot tell."""
    for test in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        if fast is None:
            monkeypatch.delattr(torch.cpu, test, raising=False)
        else:
            monkeypatch.setattr(torch.cpu, test, lambda: fast, raising=False)
    hardware = detect()
    assert hardware.device == "cpu"
    assert hardware.dtype_name == ("bfloat16" if fast else "float32")


@pytest.mark.parametrize("fast", [True, False])
def test_bfloat16_only_where_a_gpu_has_it(monkeypatch: pytest.MonkeyPatch, fast: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: fast)
    assert detect() == Hardware("cuda", torch.bfloat16 if fast else torch.float32)


def test_what_is_compiled() -> None:
    """By default blocks of a GPU; on a CPU a grid is scored before its blocks would be compiled."""
    for device, compiled, trains, scores in [
        *(("cpu", None, False, False), ("cpu", True, True, False), ("cpu", False, False, False)),
        *(("cuda", None, True, True), ("cuda", True, True, True), ("cuda", False, False, False)),
    ]:
        hardware = Hardware(device, torch.float32, compiled=compiled)
        assert (hardware.compiles, hardware.for_scoring.compiles) == (trains, scores)
    choices = [AttentionChoice("sdpa", compiled).for_scoring for compiled in (None, True, False)]
    assert [choice.compiled for choice in choices] == [None, None, False]
    assert AttentionChoice("sdpa", True).options == ["--attention", "sdpa", "--compile"]
    assert AttentionChoice(compiled=False).options == ["--no-compile"]
    assert AttentionChoice().options == [] and detect("eager", True).compiles


def test_in_float32() -> None:
    low = Hardware("cpu", torch.bfloat16, 2)
    assert low.in_float32() == Hardware("cpu", torch.float32, 2)
    a = torch.ones(3, 3)
    with low.autocast():
        assert (a @ a).dtype == torch.bfloat16
        with low.in_float32().autocast():
            assert (a @ a).dtype == torch.float32
