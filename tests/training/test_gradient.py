"""A step's loss and gradient against a plain loop over rows, in whatever groups rows go through
the decoder, packed or padded, and however often memory runs out."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows
from tape_arith.arith.decoders.build import decoder_for, setting_for
from tape_arith.arith.decoders.failures import explain_failures
from tape_arith.arith.errors import Failure, is_out_of_memory
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.registry.names import parse
from tape_arith.arith.scoring.score import score
from tape_arith.arith.training import step
from tape_arith.arith.training.distributed import ProcessGroup
from tape_arith.arith.training.session import continue_run
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.attention import Eager
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences
from tests.helpers.small_decoders import build
from tests.helpers.small_training import (
    assert_same_bits,
    cpu,
    final_weights,
    kinds_first,
    never,
    perturbed,
    run,
    small,
    trainer,
)

CONFIG = small(trained_digits=4, tested_digits=6, batch_size=24, groups=2, clip=1e9)
NAMES = [*known_names("encoding"), "aug-rope", "aug-fire", "aug-rope:per=step"]
PACKABLE = [name for name in NAMES if build(name, setting_for(CONFIG)).needs.packed]
OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
Gradient = tuple[float, float, dict[str, Tensor]]
"""Loss, norm of the gradient, and gradient by parameter."""


def step_gradient(one: Trainer) -> Gradient:
    """Return the gradient of a trainer's next step."""
    gradient: dict[str, Tensor] = {}

    def keep_gradient(*_: Any) -> None:
        for name, parameter in one.decoder.named_parameters():
            assert parameter.grad is not None
            gradient[name] = parameter.grad.clone()

    one.optimizer.step = keep_gradient  # type: ignore[assignment, method-assign]
    loss, norm = one.train_step()
    return float(loss), float(norm), gradient


def perturbed_trainer(name: str = "rope", **changes: Any) -> Trainer:
    one = trainer(small(**{**vars(CONFIG), **changes}), name)
    perturbed(one.decoder)
    return one


def looped(one: Trainer) -> Gradient:
    """Return the same by a loop over rows: the mean cross-entropy of answer and end tokens."""
    problems, keys = one.batches.problems(one.step)
    losses, count, start = [], 0, 0
    for row, length in enumerate(problems.lengths):
        tokens = torch.from_numpy(problems.tokens[start : start + length].astype(np.int64))
        start += length
        prompt = int(problems.prompt_lengths[row])
        final_length = torch.tensor([problems.final_lengths[row]])
        key = torch.tensor([keys[row]])
        seqs = Sequences(tokens[None, :-1], final_length, key, batch_key=int(keys[0]))
        logits = one.decoder(seqs)[0, prompt - 1 :]
        losses.append(F.cross_entropy(logits, tokens[prompt:], reduction="sum"))
        count += len(tokens) - prompt
    loss = torch.stack(losses).sum() / count
    parameters = dict(one.decoder.named_parameters())
    gradient = torch.autograd.grad(loss, list(parameters.values()))
    norm = torch.cat([piece.flatten() for piece in gradient]).norm()
    return float(loss.detach()), float(norm), dict(zip(parameters, gradient, strict=True))


def assert_close(actual: Gradient, expected: Gradient) -> None:
    assert actual[0] == pytest.approx(expected[0], rel=1e-5)
    assert actual[1] == pytest.approx(expected[1], rel=1e-4)
    assert actual[2].keys() == expected[2].keys()
    largest = max(float(gradient.norm()) for gradient in expected[2].values())
    for name, gradient in expected[2].items():
        # What cannot act (the bias of FIRE's output) has nothing but rounding for a gradient.
        size = max(float(gradient.norm()), 1e-2 * largest)
        error = float((actual[2][name] - gradient).norm()) / size
        assert error < 1e-5, f"{name}: relative error {error:.1e}"


@pytest.mark.parametrize("name", kinds_first(NAMES))
def test_groups_sum_to_the_gradient_of_a_loop_over_rows(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = looped(perturbed_trainer(name, batch_size=12))
    assert_close(step_gradient(perturbed_trainer(name, batch_size=12, groups=4)), expected)
    if name in PACKABLE:
        monkeypatch.setattr(Eager, "packs", True)
        packed = perturbed_trainer(name, batch_size=12)
        assert packed.runner.packs
        assert_close(step_gradient(packed), expected)


class Half(ProcessGroup):
    """One of two processes that never meet: each keeps its own sum."""

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        pass


@pytest.mark.parametrize("name", ["rope", "aug-rope", "aug-rope:per=step"])
def test_processes_sum_to_the_gradient_of_one(name: str) -> None:
    halves = []
    for rank in (0, 1):
        one = perturbed_trainer(name)
        one.processes = Half(rank, 2)
        halves.append(step_gradient(one))
    (loss, _, first), (other, _, second) = halves
    summed = {key: gradient + second[key] for key, gradient in first.items()}
    norm = torch.cat([piece.flatten() for piece in summed.values()]).norm()
    assert_close((loss + other, float(norm), summed), step_gradient(perturbed_trainer(name)))


def test_the_clipped_gradient_has_the_norm_it_is_clipped_to() -> None:
    _, norm, gradient = step_gradient(perturbed_trainer(clip=1e-3))
    clipped = torch.cat([piece.flatten() for piece in gradient.values()]).norm()
    assert norm > 1e-3 and float(clipped) == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize("name", kinds_first(PACKABLE))
def test_packed_scores_are_those_of_padded_groups(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = perturbed(decoder_for(CONFIG, parse(name), 0)).eval()
    bucket = Bucket("addition", 6, 0, "evaluation")
    problems, keys = bucket.problems(0, 100), bucket.keys(0, 100)
    padded = score(Runner(decoder, cpu()), problems, keys)
    monkeypatch.setattr(Eager, "packs", True)
    packing = Runner(decoder, cpu())
    packed = score(packing, problems, keys)
    assert packing.packs
    for field in ("exact", "num_correct", "answer_tokens", "first_wrong"):
        assert np.array_equal(getattr(packed, field), getattr(padded, field)), field
    np.testing.assert_allclose(packed.margin, padded.margin, rtol=1e-3, atol=1e-5)
    # Some digits are right by chance: the comparison is not one of zeros.
    assert 0 < padded.num_correct.sum() < padded.answer_tokens.sum()


def test_packed_steps_have_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Eager, "packs", True)
    one = trainer(CONFIG)
    shapes = set()
    for number in range(20):
        (rows,) = one.groups(*one.batches.problems(number))
        assert rows.starts is not None
        shapes.add((rows.inputs.shape, rows.starts.shape, rows.longest))
    assert len(shapes) == 1
    # A bias of plain indices is that of every row; one of random indices is not.
    assert trainer(CONFIG, "fire").runner.packs
    assert not trainer(CONFIG, "rand-fire").runner.packs


# ---- memory runs out -----------------------------------------------------------------------


def limit_forwards(
    patch: pytest.MonkeyPatch, fails: Callable[[Rows, int], bool], error: Exception
) -> list[int]:
    """Make forwards raise `error` where `fails` says so of their rows and number.

    Returns the rows of those that did not, as a list that grows.
    """
    original, sizes, number = step.summed_loss, [], 0

    def limited(runner: Runner, rows: Rows) -> Tensor:
        nonlocal number
        number += 1
        if fails(rows, number):
            raise error
        sizes.append(len(rows.source_index))
        return original(runner, rows)

    patch.setattr(step, "summed_loss", limited)
    return sizes


@pytest.mark.parametrize(("packs", "most"), [(False, 13), (True, 13), (False, 1)])
def test_smaller_groups_give_the_gradient_of_the_batch(
    packs: bool, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Eager, "packs", packs)
    expected = step_gradient(perturbed_trainer())
    sizes = limit_forwards(
        monkeypatch, lambda rows, _: len(rows.source_index) > most, MemoryError()
    )
    one = perturbed_trainer()
    assert_close(step_gradient(one), expected)
    # The finer cut is kept, and reported only when it is made.
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == one.finer.bit_length() - 1 and one.finer > 1
    assert all("step 1," in line for line in notes)
    sizes.clear()
    one.train_step()
    assert sum(sizes) == CONFIG.batch_size and max(sizes) <= most
    assert capsys.readouterr().err == ""


def test_groups_before_the_one_that_does_not_fit_count_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second of two groups does not fit; the first has been added up by then."""
    expected = step_gradient(perturbed_trainer())
    sizes = limit_forwards(monkeypatch, lambda _, number: number == 2, OUT_OF_MEMORY)
    one = perturbed_trainer()
    assert_close(step_gradient(one), expected)
    assert len(sizes) == 1 + 4 and one.finer == 2


def test_one_row_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_forwards(monkeypatch, lambda *_: True, MemoryError())
    one = trainer(CONFIG)
    with pytest.raises(Failure, match="step 1"):
        one.train_step()
    assert all(parameter.grad is None for parameter in one.decoder.parameters())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OUT_OF_MEMORY, True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), True),
        (RuntimeError("aoti_torch_empty_strided(2, int_array_4) API call failed"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
    ids=str,
)
def test_errors_of_every_device_are_recognized(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected
    explained = "scoring rope does not fit"
    raised = pytest.raises(Exception, match=explained if expected else str(error))
    with raised, explain_failures("scoring rope"):
        raise error
    raised = pytest.raises(Failure, match=explained if expected else "mine.py")
    with raised, explain_failures("scoring rope"):
        raise Failure("mine.py:Mine failed") from error


@pytest.mark.usefixtures("often")
def test_a_resumed_run_goes_on_as_finely_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it is the run that was not stopped, even if there is more memory now."""
    with monkeypatch.context() as patch:
        limit_forwards(patch, lambda rows, _: len(rows.source_index) > 4, MemoryError())
        unbroken = run(tmp_path / "a", small(steps=6))
        part = run(tmp_path / "b", small(steps=6), stop=3)
    continue_run(part, should_stop=never)
    assert_same_bits(final_weights(part), final_weights(unbroken))
