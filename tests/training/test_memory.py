"""A batch that does not fit into memory goes through in smaller groups: the same gradient."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tape_arith.arith.data.rows import Rows
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.train import continue_run
from tape_arith.arith.training import step as step_file
from tape_arith.arith.training.step import explain_failures, is_out_of_memory
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.attention import Eager
from tape_arith.models.decoder import Decoder
from tests.helpers.small_training import (
    assert_same_bits,
    final_weights,
    never,
    perturbed,
    run,
    small,
    trainer,
)
from tests.training.test_gradient import assert_close, step_gradient

CONFIG = small(trained_digits=4, tested_digits=6, batch_size=24, groups=2, clip=1e9)
ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError(),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 8388608 bytes. Error code 12 (Cannot allocate memory)"
    ),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
    RuntimeError(
        "aoti_torch_empty_strided(2, int_array_4, int_array_0, cached_torch_dtype_float32, "
        "cached_torch_device_type_cpu, 0, &buf6_handle) API call failed at a.main.cpp, line 60"
    ),
]


def forwards(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[Rows, int], bool], error: Exception
) -> list[int]:
    """Every forward of a training step raises `error` where `fails` says so of its rows and of its
    number; the rows of each that did not, in the order in which they came."""
    original, sizes, number = step_file.summed_loss, [], 0

    def limited(decoder: Decoder, rows: Rows, device: str) -> torch.Tensor:
        nonlocal number
        number += 1
        if fails(rows, number):
            raise error
        sizes.append(len(rows.source_index))
        return original(decoder, rows, device)

    monkeypatch.setattr(step_file, "summed_loss", limited)
    return sizes


def one_step() -> tuple[Trainer, float, float, dict[str, torch.Tensor]]:
    ours = trainer(CONFIG)
    perturbed(ours.decoder)
    return ours, *step_gradient(ours)


@pytest.fixture(params=["padded", "packed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Eager, "packs", request.param == "packed")
    return str(request.param)


@pytest.mark.parametrize("most", [13, 1])
def test_the_gradient_is_that_of_the_whole_batch(
    way: str, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, loss, norm, gradient = one_step()
    sizes = forwards(monkeypatch, lambda rows, number: len(rows.source_index) > most, MemoryError())
    ours, split_loss, split_norm, split_gradient = one_step()
    assert ours.decoder.packs == (way == "packed")
    assert split_loss == pytest.approx(loss, rel=1e-5)
    assert split_norm == pytest.approx(norm, rel=1e-5)
    assert_close(split_gradient, gradient)
    # The finer cut is kept, and reported only when it is made.
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == ours.split_factor.bit_length() - 1 and ours.split_factor > 1
    assert all(line.startswith("note: out of memory in step 1, with up to ") for line in notes)
    sizes.clear()
    ours.train_step()
    assert sum(sizes) == CONFIG.batch_size and max(sizes) <= most
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", ERRORS, ids=range(len(ERRORS)))
def test_every_device_s_error_is_recognized(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_groups_before_the_one_that_does_not_fit_count_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second of two groups does not fit; the first has been added up by then."""
    _, loss, norm, gradient = one_step()
    sizes = forwards(monkeypatch, lambda rows, number: number == 2, ERRORS[0])
    ours = trainer(CONFIG)
    perturbed(ours.decoder)
    again, again_norm, split = step_gradient(ours)
    assert len(sizes) == 1 + 4 and ours.split_factor == 2
    assert again == pytest.approx(loss, rel=1e-5)
    assert again_norm == pytest.approx(norm, rel=1e-5)
    assert_close(split, gradient)


def test_one_row_that_does_not_fit(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forwards(monkeypatch, lambda rows, number: True, MemoryError())
    ours = trainer(CONFIG)
    with pytest.raises(Failure, match="step 1 does not fit in memory, not even one") as caught:
        ours.train_step()
    assert "\n" not in str(caught.value)
    assert all(parameter.grad is None for parameter in ours.decoder.parameters())


def test_other_errors_are_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert not is_out_of_memory(error) and not is_out_of_memory(ValueError("out of memory"))
    forwards(monkeypatch, lambda rows, number: True, error)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        trainer(CONFIG).train_step()


def test_what_is_told_of_other_work() -> None:
    expected = "scoring rope does not fit into memory: free some"
    with pytest.raises(Failure, match=expected), explain_failures("scoring rope"):
        raise MemoryError
    blamed = Failure("mine.py:Mine failed: MemoryError")
    with (
        pytest.raises(Failure, match="scoring rope does not fit"),
        explain_failures("scoring rope"),
    ):
        raise blamed from MemoryError()
    for error in (ValueError("shape"), Failure("no such file")):
        with pytest.raises(type(error), match=str(error)), explain_failures("scoring rope"):
            raise error


@pytest.mark.usefixtures("often")
def test_a_run_that_is_resumed_goes_on_as_finely_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it is the run that was not stopped, where there is more memory too."""
    with monkeypatch.context() as patch:
        forwards(patch, lambda rows, number: len(rows.source_index) > 4, MemoryError())
        whole = run(tmp_path / "a")
        part = run(tmp_path / "b", stop=13)
    continue_run(part, should_stop=never)
    assert_same_bits(final_weights(part), final_weights(whole))


@pytest.mark.usefixtures("often")
def test_memory_that_ends_elsewhere_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Trainer, loss: torch.Tensor) -> torch.Tensor:
        raise ERRORS[0]

    monkeypatch.setattr(Trainer, "updated", full)
    with pytest.raises(Failure, match=r"^out of memory at step 1: CUDA out of memory") as caught:
        run(tmp_path)
    assert "\n" not in str(caught.value)
