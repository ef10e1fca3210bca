"""What a step's loss and gradient are: a plain loop over rows, whatever the groups."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import pad
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.tasks.task import concatenate
from tape_arith.arith.tasks.vocabulary import PAD
from tape_arith.arith.training.step import make_optimizer, summed_loss
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.decoder import Decoder
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import parse
from tape_arith.models.sequences import Sequences
from tests.helpers.small_training import perturbed, small, trainer

BUCKET = Bucket("addition", 3, 0, "train")


def step_gradient(of: Trainer) -> tuple[float, float, dict[str, Tensor]]:
    """Loss, norm and gradient of a trainer's next step."""
    seen: dict[str, Tensor] = {}

    def step(*_: Any) -> None:
        for name, parameter in of.decoder.named_parameters():
            assert parameter.grad is not None
            seen[name] = parameter.grad.clone()

    of.optimizer.step = step  # type: ignore[assignment, method-assign]
    loss, norm = of.train_step()
    return float(loss), float(norm), seen


def looped(of: Trainer) -> tuple[float, dict[str, Tensor]]:
    """The same by a loop over rows: the mean cross-entropy of answer and end tokens."""
    problems, keys = of.batches.problems(of.step)
    losses, count, start = [], 0, 0
    for row, length in enumerate(problems.lengths):
        tokens = torch.from_numpy(problems.tokens[start : start + length].astype(np.int64))
        start += length
        prompt = int(problems.prompt_lengths[row])
        logits = of.decoder(
            Sequences(
                tokens[None, :-1],
                torch.tensor([problems.final_lengths[row]]),
                torch.tensor([keys[row]]),
            )
        )[0]
        losses.append(F.cross_entropy(logits[prompt - 1 :], tokens[prompt:], reduction="sum"))
        count += len(tokens) - prompt
    loss = torch.stack(losses).sum() / count
    parameters = dict(of.decoder.named_parameters())
    gradient = torch.autograd.grad(loss, list(parameters.values()))
    return float(loss.detach()), dict(zip(parameters, gradient, strict=True))


def assert_close(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    whole = max(float(gradient.norm()) for gradient in theirs.values())
    for name in ours:
        # What cannot act (the bias of FIRE's output) has nothing but rounding for a gradient.
        size = max(float(theirs[name].norm()), 1e-2 * whole)
        error = float((ours[name] - theirs[name]).norm()) / size
        assert error < 1e-5, f"{name}: relative error {error:.1e}"


@pytest.mark.parametrize("name", known_names("encoding"))
def test_groups_sum_to_the_gradient_of_a_loop_over_rows(name: str) -> None:
    config = small(trained_digits=3, clip=1e9)
    expected = trainer(config, name)
    perturbed(expected.decoder)
    loss, gradient = looped(expected)
    for groups in (1, 4):
        ours = trainer(small(trained_digits=3, clip=1e9, groups=groups), name)
        perturbed(ours.decoder)
        got_loss, got_norm, got = step_gradient(ours)
        assert got_loss == pytest.approx(loss, rel=1e-5)
        assert_close(got, gradient)
        whole = torch.cat([piece.flatten() for piece in gradient.values()]).norm()
        assert got_norm == pytest.approx(float(whole), rel=1e-5)


def test_the_clipped_gradient_has_the_norm_it_is_clipped_to() -> None:
    ours = trainer(small(clip=1e-3))
    _, norm, gradient = step_gradient(ours)
    assert norm > 1e-3
    clipped = torch.cat([piece.flatten() for piece in gradient.values()]).norm()
    assert float(clipped) == pytest.approx(1e-3, rel=1e-4)


def loss_of(decoder: Decoder, rows: Any) -> float:
    with torch.no_grad():
        return float(summed_loss(decoder, rows, "cpu"))


def test_only_answer_and_end_tokens_are_learned_from() -> None:
    decoder = perturbed(decoder_for(small(), parse("rope"), 0))
    problems = BUCKET.problems(0, 9)
    rows = pad(problems, BUCKET.keys(0, 9), np.arange(9))
    loss = loss_of(decoder, rows)
    targets = rows.targets.copy()
    targets[~rows.is_answer] = 4 + (targets[~rows.is_answer] + 1) % 10
    assert loss_of(decoder, rows._replace(targets=targets)) == loss
    for place in np.argwhere(rows.is_answer):
        targets = rows.targets.copy()
        targets[tuple(place)] = 4 if targets[tuple(place)] != 4 else 5
        assert loss_of(decoder, rows._replace(targets=targets)) != loss
    assert rows.is_answer.sum() == (problems.lengths - problems.prompt_lengths).sum()


def test_padding_never_enters() -> None:
    decoder = perturbed(decoder_for(small(), parse("tape"), 0))
    rows = pad(BUCKET.problems(0, 9), BUCKET.keys(0, 9), np.arange(9))
    assert (rows.inputs == PAD).any()
    inputs = np.where(rows.inputs == PAD, 9, rows.inputs)
    assert loss_of(decoder, rows._replace(inputs=inputs)) == pytest.approx(
        loss_of(decoder, rows), rel=1e-6
    )
    (gradient,) = torch.autograd.grad(summed_loss(decoder, rows, "cpu"), [decoder.embedding.weight])
    assert not gradient[PAD].any()
    assert gradient[4:14].any()


def settings_of(name: str) -> dict[str, tuple[float, float]]:
    """Weight decay and factor of the learning rate of each parameter."""
    decoder = decoder_for(small(num_layers=3), parse(name), 0)
    of = {id(p): path for path, p in decoder.named_parameters()}
    groups = make_optimizer(decoder, small(num_layers=3)).param_groups
    found = [
        (of[id(p)], (group["weight_decay"], group["lr_factor"]))
        for group in groups
        for p in group["params"]
    ]
    assert sorted(path for path, _ in found) == sorted(of.values())
    return dict(found)


@pytest.mark.parametrize("name", known_names("encoding"))
def test_matrices_decay_and_norms_do_not(name: str) -> None:
    decoder = decoder_for(small(num_layers=3), parse(name), 0)
    settings = settings_of(name)
    for path, parameter in decoder.named_parameters():
        decay, factor = settings[path]
        if path.startswith("pe."):
            assert parameter.ndim > 1 or decay == 0, path
        else:
            assert (decay, factor) == (0.01 if parameter.ndim == 2 else 0.0, 1.0), path


def test_the_heads_of_tape_heads_learn_faster() -> None:
    settings = settings_of("tape-heads")
    fast = {path for path, (_, factor) in settings.items() if factor != 1}
    assert fast == {"pe.layers.0.s", "pe.layers.1.s"}
    assert {settings[path] for path in fast} == {(0.0, 2.0)}
    ours = trainer(small(num_layers=3, steps=10, warmup=0.5), "tape-heads")
    for step in range(2):
        ours.train_step()
        rates = {group["lr_factor"]: group["lr"] for group in ours.optimizer.param_groups}
        once = 3e-3 * (step + 1) / 5
        assert rates == {1.0: pytest.approx(once), 2.0: pytest.approx(2 * once)}


def test_the_first_step_moves_each_weight_by_the_learning_rate() -> None:
    """Adam's first step is the gradient's sign, so this reads off the rates that were used."""
    ours = trainer(small(weight_decay=0.0, warmup=0.5, steps=10), "tape-heads")
    perturbed(ours.decoder)
    before = {name: p.detach().clone() for name, p in ours.decoder.named_parameters()}
    ours.train_step()
    for name, parameter in ours.decoder.named_parameters():
        expected = 3e-3 / 5 * (2 if name.endswith(".s") else 1)
        moved = float((parameter.detach() - before[name]).abs().max())
        assert moved == pytest.approx(expected, rel=1e-2), name


@pytest.mark.parametrize("total, size", [(10, 4), (10, 5), (10, 3), (10, 16), (3, 16), (10, 10)])
def test_batches_start_over_and_draw_again(total: int, size: int) -> None:
    ours = trainer(small(num_problems=total, batch_size=size))
    steps = -(-4 * total // size)
    batches = [ours.batches.problems(step) for step in range(steps)]
    places = np.arange(steps * size)
    expected = concatenate(
        [ours.bucket.problems(place, place + 1) for place in (places % total).tolist()]
    )
    got = concatenate([problems for problems, _ in batches])
    for ours_array, theirs in zip(got, expected, strict=True):
        assert np.array_equal(np.asarray(ours_array), np.asarray(theirs))
    keys = np.concatenate([keys for _, keys in batches])
    assert np.array_equal(keys[:total], ours.bucket.keys(0, total))
    assert len(set(keys.tolist())) == len(keys), "a problem met again has the key it had before"


def test_batches_take_up_where_the_last_ended() -> None:
    ours = trainer(small())
    for step in (0, 1, 7):
        problems, keys = ours.batches.problems(step)
        assert np.array_equal(problems.tokens, ours.bucket.problems(16 * step, 16 * step + 16)[0])
        assert np.array_equal(keys, ours.bucket.keys(16 * step, 16 * step + 16))
